"""The questions about a cluster, a table each: their options, fields and parameters, for people, programs and agents."""
