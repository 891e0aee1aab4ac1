"""Readers of published traces: one module a format, all in the registry of ``formats``.

Files are read line by line, and a trace keeps columns, so that millions of rows fit into memory.
"""
