"""KubeSchedulerConfiguration: read strictly, checked as a whole, resolved to the plugins of each profile."""
