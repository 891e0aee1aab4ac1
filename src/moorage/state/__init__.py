"""What we believe about the cluster: nodes as columns, pods as counters, and one log of changed rows."""
