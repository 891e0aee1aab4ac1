"""The client of an API server: kubeconfig, requests, lists, watches and reflectors."""
