"""Questions about a cluster: what would happen if, why, and what would help. ``moorage.Cluster`` is the entry."""
