"""What the plugins of 1.21 share: volumes, requests and siblings of a pod, zones."""
