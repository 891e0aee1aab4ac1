"""Victims of fair sharing in trees that the recordings do not have."""

import random

import pytest

from moorage.simulator.kueue import preemption, read_objects, read_workload
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


def hold(objects, *workloads):
    for held in workloads:
        objects.queues[held.cluster_queue].workloads[held.key] = held
        objects.queues[held.cluster_queue].changed()
        objects.queues[held.cluster_queue].add(held.usage)


def test_a_share_that_falls_by_another_resource_lets_a_queue_take_from_others():
    """While ``low`` holds GPUs its queue has the larger share. Once it would be gone, ``other`` must give CPUs back."""
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "f"}}
    objects = read_objects([flavor, *map(queue, "abc")])
    hold(objects, workload("low", 0, "a", cpu=2, gpu=10), workload("other", 0, "b", cpu=8))
    cpu = ("f", "cpu")
    asking = Asking(workload("new", 10), objects.queues["a"], objects.queues, frozenset({cpu}), {cpu: 6000}, {}, {})
    assert [(one.workload.name, one.reason) for one in find_targets(asking, fair=True)] == [("other", "InCohortFairSharing")]


def random_tree(rng):
    """Return queues in a tree of Cohorts, with limits and weights, in which more is in use than the queues have."""
    documents = [{"kind": "ResourceFlavor", "metadata": {"name": "f"}}]
    for at in range(3):
        spec = {"parentName": f"c{rng.randrange(at)}"} if at else {}
        documents.append({"kind": "Cohort", "metadata": {"name": f"c{at}"}, "spec": spec})
    for name in "abcdef":
        one = queue(name)
        one["spec"] |= {"cohort": f"c{rng.randrange(3)}", "fairSharing": {"weight": rng.choice(("0", "1", "1", "2"))}}
        if rng.random() < 0.3:
            one["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = 2
        documents.append(one)
    objects = read_objects(documents)
    for number in range(16):
        asks = {"cpu": rng.randint(1, 4), "gpu": rng.randint(0, 4)}
        hold(objects, workload(f"w{number}", rng.randrange(3), rng.choice("abcdef"), **asks))
    return objects


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_out_as_hopeless_changes_no_answer(seed, monkeypatch):
    rng = random.Random(seed)
    objects = random_tree(rng)

    def answers():
        found = []
        for name, one in objects.queues.items():
            for priority, cpu, gpu in ((0, 1000, 1), (1, 3000, 0), (2, 6000, 4)):
                one.asked = (-1, {})
                requests = {("f", "cpu"): cpu, ("f", "gpu"): gpu}
                asking = Asking(
                    workload(f"new-{name}", priority),
                    one,
                    objects.queues,
                    frozenset(requests),
                    requests,
                    {},
                    {},
                    entitles=False,
                )
                found.append([(victim.workload.name, victim.reason) for victim in find_targets(asking, fair=True)])
        return found

    pruned, used = answers(), {name: dict(one.usage) for name, one in objects.queues.items()}
    monkeypatch.setattr(preemption, "_find_hopeless", lambda *_, **__: {})
    assert answers() == pruned
    assert {name: dict(one.usage) for name, one in objects.queues.items()} == used
    assert any(pruned)
