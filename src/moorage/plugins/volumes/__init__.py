"""Shared parts of the volume plugins: claims, CSI migration, the volumes in use on each node, matching volumes to claims."""
