"""The HTTP server: connections, requests, responses and watch streams."""
