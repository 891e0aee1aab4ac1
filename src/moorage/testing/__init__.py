"""What we ship for testing: builders, checks for plugins, and answers to recorded scenarios."""
