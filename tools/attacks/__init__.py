"""Attack the embedded API server as hostile clients would, and check each response without a reference server."""
