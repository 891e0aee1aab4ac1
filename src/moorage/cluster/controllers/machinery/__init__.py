"""Building blocks of controllers: the object index, steps, ownership, names, and the work queue."""
