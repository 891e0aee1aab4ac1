"""Changes as users and programs write them, and how they are applied to a cluster."""
