"""Tables for ``kubectl get`` and metrics for ``kubectl top``."""
