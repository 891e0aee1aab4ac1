"""Names in dumps and logs replaced by tokens."""
