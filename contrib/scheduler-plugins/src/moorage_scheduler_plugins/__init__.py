"""The plugins of kubernetes-sigs/scheduler-plugins for Moorage, on its public contract alone."""
