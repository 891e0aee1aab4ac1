"""Which nodes to buy, and which can be removed."""
