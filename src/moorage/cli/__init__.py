"""The command line: what a user types, wired to the parts that do it."""
