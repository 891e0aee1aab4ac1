"""The explanation of gangs against brute force: the largest part, the fewest pods that make room, and what can never fit.

``CLUSTERS=2000 pytest tests/laboratory/test_gang_oracle.py`` compares more random clusters than the suite does.
"""

import os
import random
from itertools import combinations, product

import pytest

import moorage
from moorage.api.pod_groups import PodGroup
from moorage.api.workloads import PodDisruptionBudget
from moorage.laboratory.explain.explain_gang import explain_group
from moorage.report.answer import AnswerRequest

CLUSTERS = int(os.environ.get("CLUSTERS", "12"))
FIRST = int(os.environ.get("FIRST", "0"))
GATES = {
    "1.36": "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
    "1.37": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
}
VERSION = {"1.36": "v1alpha2", "1.37": "v1alpha3"}
AS_ONE = {"1.36": "PodGroup", "1.37": {"all": {}}}


def a_pod(name, cpu, priority=0, group=None, node=None, labels=None, owner=None, **more):
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{cpu}"}}}],
        "priority": priority,
        **more,
    }
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if node:
        spec["nodeName"] = node
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u-o", "controller": True}] if owner else []
    return {
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "namespace": "x", "uid": f"uid-{name}", "labels": labels or {}, "ownerReferences": owners},
    }  # fmt: skip


def a_group(name, least, release, key=None, as_one=False, priority=0):
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}, "priority": priority}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if as_one:
        spec["disruptionMode"] = AS_ONE[release]
    version = f"scheduling.k8s.io/{VERSION[release]}"
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name, "namespace": "x"}, "spec": spec}


def random_cluster(seed, release):
    """Up to five nodes in two racks, up to seven placed pods, some in a gang or behind a budget, and a gang that waits."""
    draw = random.Random(seed)
    nodes, free = [], {}
    for at in range(draw.randint(2, 5)):
        name = f"n{at}"
        free[name] = draw.randint(2, 6)
        taints = [{"key": "t", "effect": "NoSchedule"}] if draw.random() < 0.15 else []
        amounts = {"cpu": str(free[name]), "memory": "8Gi", "pods": str(draw.choice([3, 10]))}
        labels = {"kubernetes.io/hostname": name, "rack": draw.choice("ab")}
        nodes.append({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
            "status": {"allocatable": amounts, "capacity": amounts},
        })  # fmt: skip
    objects = list(nodes)
    as_one = draw.random() < 0.6
    for at in range(draw.randint(0, 7)):
        cpu, name = draw.randint(1, 3), draw.choice(list(free))
        if free[name] < cpu:
            continue
        free[name] -= cpu
        labels = {"app": draw.choice(["guarded", "free"])}
        group = "other" if draw.random() < 0.25 else None
        owner = draw.choice([None, None, "DaemonSet"]) if not group else None
        objects.append(a_pod(f"p{at}", cpu, draw.choice([0, 0, 0, 5] if not group else [0]), group, name, labels, owner))
    objects.append(a_group("other", 1, release, as_one=as_one))
    if draw.random() < 0.4:
        objects.append({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "x"},
            "spec": {"selector": {"matchLabels": {"app": "guarded"}}, "maxUnavailable": 1},
            "status": {"disruptionsAllowed": draw.randint(0, 1), "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1},
        })  # fmt: skip
    sizes = [draw.randint(1, 4) for _ in range(draw.choice([1, 1, 2]))]
    count = draw.randint(2, 5)
    members = [draw.choice(sizes) for _ in range(count)]
    key = "rack" if draw.random() < 0.5 else None
    objects.append(a_group("gang", draw.choice([count, count, max(1, count - 1)]), release, key))
    objects += [a_pod(f"g{at}", cpu, 0, "gang") for at, cpu in enumerate(members)]
    return objects, key, members


# -- brute force ---------------------------------------------------------------------------------------------------------


def domains_of(cluster, key):
    nodes = {node.name: node for node in cluster.snapshot.table.nodes}
    named = {name: node.labels.get(key, "") if key else "all nodes" for name, node in nodes.items()}
    return {domain: [name for name in nodes if named[name] == domain] for domain in named.values()}


def room_of(cluster, without=()):
    """Free cpu and pods of each node that the gang tolerates, once some pods are gone."""
    table, room = cluster.snapshot.table, {}
    for row, node in enumerate(table.nodes):
        pods = [pod for pod in table.pods[row].values() if pod.uid not in without]
        if not node.spec.taints:
            cpu = int(node.status.allocatable["cpu"]) * 1000 - sum(pod.requests.get("cpu", 0) for pod in pods)
            room[node.name] = (cpu, int(node.status.allocatable["pods"]) - len(pods))
    return room


def largest(members, nodes, room):
    """The most members that fit on these nodes together, by every assignment."""
    nodes = [name for name in nodes if name in room]
    best = 0
    for choice in product([None, *nodes], repeat=len(members)):
        placed = [(cpu, node) for cpu, node in zip(members, choice, strict=True) if node]
        if len(placed) <= best:
            continue
        used = {name: [cpu * 1000 for cpu, node in placed if node == name] for name in nodes}
        if all(sum(some) <= room[name][0] and len(some) <= room[name][1] for name, some in used.items()):
            best = len(placed)
    return best


def is_daemon(pod):
    return any(owner.kind == "DaemonSet" for owner in pod.pod.metadata.owner_references)


def units_of(cluster):
    table, groups = cluster.snapshot.table, cluster.snapshot.objects(PodGroup)
    held = {}
    for on_row in table.pods:
        for pod in on_row.values():
            if not is_daemon(pod):
                as_one = pod.spec.scheduling_group is not None and groups["x/other"].disrupted_as_one
                held.setdefault("other" if as_one else pod.uid, []).append(pod)
    return list(held.values())


def keeps_budgets(cluster, pods):
    for budget in cluster.snapshot.objects(PodDisruptionBudget).values():
        guarded = sum(pod.labels.get("app") == "guarded" for pod in pods)
        if guarded > budget.status.disruptions_allowed:
            return False
    return True


def starts_without(cluster, pods, needed):
    with cluster.transaction():
        arrivals = cluster.simulation.arrivals
        cluster.evict(*[pod.uid for pod in pods], grace_s=0)
        again = cluster.simulation.arrived_after(arrivals)
        assert not again or all(pod.metadata.owner_references for pod in again)
        known = cluster.snapshot.group("x/gang")
        cluster.schedule([next(iter(known.unscheduled)).uid])
        return known.scheduled_count >= needed and all(pod.priority <= 0 for pod in pods)


def fewest(cluster, needed):
    units = units_of(cluster)
    sets = [some for count in range(len(units) + 1) for some in combinations(units, count)]
    for some in sorted(sets, key=lambda some: sum(map(len, some))):
        pods = [pod for unit in some for pod in unit]
        if pods and keeps_budgets(cluster, pods) and starts_without(cluster, pods, needed):
            return len(pods)
    return None


def compare(seed, release):
    """Return what the explanation says otherwise than brute force; None if the gang does not wait."""
    objects, key, members = random_cluster(seed, release)
    cluster = moorage.Cluster.from_objects(*objects, feature_gates=GATES[release], release=release)
    cluster.run()
    before = cluster.digest()
    found = explain_group(cluster, "x/gang", AnswerRequest(release=release))
    assert cluster.digest() == before
    if found.state == "scheduled":
        return None
    domains, room = domains_of(cluster, key), room_of(cluster)
    wrong = []
    by_domain = {name: largest(members, nodes, room) for name, nodes in domains.items()}
    told = {one.name: (one.fits, one.at_most) for one in found.domains}
    wrong += [f"{name} holds {count}, told {told[name]}" for name, count in by_domain.items() if told[name] != (count, count)]
    if found.largest != max(by_domain.values()):
        wrong.append(f"largest {found.largest}, is {by_domain}")
    gone = {pod.uid for unit in units_of(cluster) for pod in unit}
    ever = max(largest(members, nodes, room_of(cluster, gone)) for nodes in domains.values())
    if (found.state == "never") != (ever < found.needed):
        wrong.append(f"{found.state}, although {ever} of {found.needed} fit ever")
    ways = [one for one in found.ways if one.kind == "room"]
    least = fewest(cluster, found.needed) if found.state == "waiting" else None
    size = len(ways[0].moved) + len(ways[0].evicted) if ways else None
    if found.state == "waiting" and size != least:
        wrong.append(f"room by {size} pods, is {least}")
    if ways and ways[0].at_least != size:
        wrong.append("not proven")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("release", GATES)
def test_the_explanation_says_what_brute_force_finds(release):
    results = {seed: compare(seed, release) for seed in range(FIRST, FIRST + CLUSTERS)}
    waits = {seed: wrong for seed, wrong in results.items() if wrong is not None}
    assert len(waits) >= CLUSTERS // 3
    assert {seed: wrong for seed, wrong in waits.items() if wrong} == {}
