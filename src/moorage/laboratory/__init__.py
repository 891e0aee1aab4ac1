"""Questions about a cluster: what-ifs, explanations, and changes that would help. ``moorage.Cluster`` is the entry point."""
