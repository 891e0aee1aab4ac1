"""Questions about logs: replay a part of one, cut the smallest case out of it, write one without names."""
