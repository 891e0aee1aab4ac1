"""A scheduler without I/O: its configuration, queue, cycle and engine."""
