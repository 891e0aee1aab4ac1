"""What a plugin is, and how a profile of plugins runs."""
