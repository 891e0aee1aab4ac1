"""Changes to parts of objects: patches in every dialect, and who manages which field."""
