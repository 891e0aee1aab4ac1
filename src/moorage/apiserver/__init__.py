"""The embedded API server: a store with Kubernetes' semantics, and the HTTP that kubectl and clients speak to it."""
