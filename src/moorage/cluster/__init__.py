"""A cluster in one process: API server and controllers."""
