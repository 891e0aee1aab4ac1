"""What happens when nodes are lost, and whether a cluster survives it."""
