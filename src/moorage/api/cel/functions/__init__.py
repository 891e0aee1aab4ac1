"""The functions and operators of CEL, by the types on which they work."""
