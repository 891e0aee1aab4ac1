"""Devices: finding the claims of a pod, what slices offer, who holds what, and a way to satisfy the claims on one node."""
