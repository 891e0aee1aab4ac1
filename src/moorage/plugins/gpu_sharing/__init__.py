"""Shared GPUs: plugins that place pods on parts of devices, and measure how fragmented the devices are.

They follow the simulator of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent"
(USENIX ATC 2023). Amounts are in milli: a whole GPU is 1000. Annotations and extended resources hold what pods request and
nodes have.
"""
