"""Kubernetes objects as frozen values, and the small languages written inside them (quantities, selectors)."""
