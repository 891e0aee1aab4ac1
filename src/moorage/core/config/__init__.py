"""KubeSchedulerConfiguration: decode it strictly, validate it, and resolve the plugins of each profile."""
