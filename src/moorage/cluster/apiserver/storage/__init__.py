"""The object store: versions, lists, watches, subresources and the log on disk."""
