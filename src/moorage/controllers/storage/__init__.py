"""Volumes and devices: bound, made, and given to claims."""
