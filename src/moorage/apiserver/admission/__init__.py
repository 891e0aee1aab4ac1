"""What becomes of an object on its way in: what is filled in, what is refused, and what may change."""
