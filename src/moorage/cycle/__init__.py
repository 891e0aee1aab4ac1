"""One pod, one snapshot, one decision; and preemption when there is no room."""
