"""The recorder: it follows a cluster, writes each change into a log, and decides beside the scheduler of the cluster."""
