"""Authentication, authorization and the objects and keys that they need."""
