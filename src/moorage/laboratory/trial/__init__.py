"""Try a change or a pod and take it back; state that records how its changes are undone."""
