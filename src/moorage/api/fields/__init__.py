"""Patches in every format, and field management with server-side apply."""
