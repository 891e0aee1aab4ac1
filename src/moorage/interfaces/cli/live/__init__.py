"""The commands that run a scheduler: ``moorage run``, with kube-scheduler's flags, and ``moorage up``."""
