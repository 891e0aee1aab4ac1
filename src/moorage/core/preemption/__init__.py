"""Preemption: which pods may be evicted, from which node, for a pod that fits nowhere."""
