"""What plugins of earlier releases share."""
