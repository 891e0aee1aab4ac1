"""The plugins of Kubernetes 1.21: those removed since, and the earlier behaviour of those that have changed."""
