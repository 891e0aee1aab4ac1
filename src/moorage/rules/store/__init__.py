"""The objects of a cluster in memory: versions, lists, watches, subresources, and what admission makes of each write."""
