"""Rules as Kubernetes 1.21 had them: those that were removed since, and the old form of those that have changed."""
