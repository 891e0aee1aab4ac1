"""Kueue: queues of batch workloads, and the quota they share, in front of the scheduler.

``read_objects`` reads ClusterQueues, Cohorts, LocalQueues and ResourceFlavors, ``read_workload`` a Workload. An ``Admission``
holds them and decides, one cycle at a time, which workloads get quota, with which flavors, and who is evicted for it.
"""

from moorage.simulator.kueue.cycle import CycleResult, Eviction, QueueAdmission
from moorage.simulator.kueue.objects import ClusterQueue, Flavor, Objects, read_objects
from moorage.simulator.kueue.workloads import Assigned, PodSet, Workload, read_workload

__all__ = [
    "Assigned",
    "ClusterQueue",
    "CycleResult",
    "Eviction",
    "Flavor",
    "Objects",
    "PodSet",
    "QueueAdmission",
    "Workload",
    "read_objects",
    "read_workload",
]
