"""Requests over HTTP, from the socket to the store and back."""
