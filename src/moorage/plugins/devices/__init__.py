"""Devices: the claims of a pod, the devices in resource slices, who holds them, and the allocator for one node."""
