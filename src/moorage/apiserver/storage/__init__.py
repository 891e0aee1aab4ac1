"""The objects: kept, numbered, watched, bound, scaled, and gone in steps."""
