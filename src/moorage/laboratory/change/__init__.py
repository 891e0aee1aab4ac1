"""The least change that would place a pod, and other advice."""
