"""Kubernetes' own end-to-end tests, run against its real programs, ``moorage run`` and ``moorage up``."""
