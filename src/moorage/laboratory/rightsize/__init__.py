"""What requests that follow usage would change: nodes, money, pressure."""
