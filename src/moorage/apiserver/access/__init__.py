"""Who is asking, how they show it, and what they may do."""
