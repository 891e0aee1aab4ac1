"""Dumps of clusters, and the names in them replaced by tokens."""
