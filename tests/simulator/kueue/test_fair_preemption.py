"""Victims of fair sharing in trees that the recordings do not have."""

from moorage.simulator.kueue import read_objects, read_workload
from moorage.simulator.kueue.preemption import Asking, find_targets

STAMP = "2026-01-01T00:00:00Z"


def queue(name):
    quotas = [{"name": resource, "nominalQuota": 4} for resource in ("cpu", "gpu")]
    group = {"coveredResources": ["cpu", "gpu"], "flavors": [{"name": "f", "resources": quotas}]}
    rules = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    spec = {"cohort": "all", "resourceGroups": [group], "preemption": rules}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def workload(name, priority, to="", **requests):
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    data = {"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, "podSets": [{"template": template}]}}
    if to:
        assigned = {"name": "main", "flavors": dict.fromkeys(requests, "f"), "resourceUsage": requests, "count": 1}
        reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": STAMP}
        data["status"] = {"admission": {"clusterQueue": to, "podSetAssignments": [assigned]}, "conditions": [reserved]}
    return read_workload(data)


def test_a_share_that_falls_by_another_resource_lets_a_queue_take_from_others():
    """While ``low`` holds GPUs its queue has the larger share. Once it would be gone, ``other`` must give CPUs back."""
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "f"}}
    objects = read_objects([flavor, *map(queue, "abc")])
    for held in (workload("low", 0, "a", cpu=2, gpu=10), workload("other", 0, "b", cpu=8)):
        objects.queues[held.cluster_queue].workloads[held.key] = held
        objects.queues[held.cluster_queue].changed()
        objects.queues[held.cluster_queue].add(held.usage)
    cpu = ("f", "cpu")
    asking = Asking(workload("new", 10), objects.queues["a"], objects.queues, frozenset({cpu}), {cpu: 6000}, {}, {})
    assert [(one.workload.name, one.reason) for one in find_targets(asking, fair=True)] == [("other", "InCohortFairSharing")]
