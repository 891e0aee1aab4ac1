"""Kubernetes objects as frozen values, and the small languages inside them (quantities, selectors, durations, schedules)."""
