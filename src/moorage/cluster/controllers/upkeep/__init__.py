"""Controllers that clean up: garbage collection, namespace deletion, finalizers and quotas."""
