"""Check that an API server behaves as kube-apiserver does."""
