"""Make a release: what must hold first, the files, and the tag. ``scripts/release`` starts it."""
