"""The scheduler's cluster state: nodes as columns, pods as counts, and a log of changed rows."""
