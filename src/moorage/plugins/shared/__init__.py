"""What plugins of several kinds use, and which release has which plugins."""
