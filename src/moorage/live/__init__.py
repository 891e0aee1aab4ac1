"""The scheduler on a cluster: client, runtime and server."""
