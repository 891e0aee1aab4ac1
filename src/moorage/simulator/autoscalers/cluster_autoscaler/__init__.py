"""What cluster-autoscaler decides: the expanders, which pods keep a node, and which nodes are unneeded."""
