"""Whose turn it is: the scheduling queue, and which events bring a pod back to it."""
