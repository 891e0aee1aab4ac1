"""Attack the embedded API server as hostile clients would, and judge each answer without a second server."""
