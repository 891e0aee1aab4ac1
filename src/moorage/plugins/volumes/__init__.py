"""What the volume plugins share: claims, CSI migration, the volumes in use on each node, and matching volumes to claims."""
