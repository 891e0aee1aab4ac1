"""The command line: parse what the user types and wire the other packages together."""
