"""What a cluster accepts and makes of objects, without a server: simulations and the embedded cluster decide by the same rules.

``admission`` defaults, admits and validates objects. ``store`` holds the objects of a cluster and passes each write through
admission. ``workloads`` says which pods a workload has and which evictions a budget allows, ``volumes`` which volume or device
a claim gets. All work on documents in memory.
"""
