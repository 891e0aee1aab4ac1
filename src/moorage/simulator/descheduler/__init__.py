"""The descheduler's rules: which pods a ``DeschedulerPolicy`` evicts from a cluster as it is."""
