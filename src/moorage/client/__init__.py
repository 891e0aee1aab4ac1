"""The way to a real API server: kubeconfig, requests, lists and watches."""
