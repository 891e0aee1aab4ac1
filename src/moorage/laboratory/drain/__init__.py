"""What happens when nodes are drained or cordoned."""
