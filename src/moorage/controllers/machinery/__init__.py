"""What controllers are made of: the world as they see it, steps, owners, names, and the queue."""
