"""Shared GPUs: plugins that place pods on parts of devices, and measure how fragmented the devices are.

They follow the simulator of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent"
(USENIX ATC 2023). A GPU is 1000 milli; pods and nodes say by annotations and extended resources what they need and have.
"""
