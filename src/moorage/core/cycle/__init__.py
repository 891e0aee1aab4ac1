"""Schedule one pod against one snapshot: filter, score, pick a node, or search for pods to preempt."""
