"""How many instances of a pod fit, and what stops the next one."""
