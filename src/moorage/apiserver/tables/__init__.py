"""What ``kubectl get`` and ``kubectl top`` print: objects as rows."""
