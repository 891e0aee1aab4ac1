"""Rows with nominated pods of a pod class, followed from pod to pod, against judging all of them each time."""

from __future__ import annotations

import os
import random
from types import MappingProxyType

import pytest

from moorage.core.cycle.cycle import Cycle
from moorage.testing.builders import a_cluster, a_node, a_pod
from tests.core.cycle.test_pod_classes import default_profile


def wants(name, cpu, priority=0, **spec):
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    return a_pod(name, {"app": "x"}, containers=[container], priority=priority, **spec)


def node(name):
    return a_node(name, {"kubernetes.io/hostname": name}, allocatable={"cpu": "4", "pods": 10})


SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
          "labelSelector": {"matchLabels": {"app": "x"}}}  # fmt: skip


@pytest.mark.parametrize("seed", range(100 if os.environ.get("MOORAGE_LONG_TESTS") else 6))
@pytest.mark.parametrize("immutable", [True, False], ids=["lists that are replaced", "one mapping that changes"])
def test_decisions_with_nominated_pods_equal_the_full_path(seed, immutable):
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(8)]
    cluster, profile = a_cluster([node(name) for name in names]), default_profile()
    quick, long, plain = Cycle(seed=1), Cycle(seed=1, by_class=False), Cycle(seed=1, by_class=False)
    lists, shared, placed, waiting = {}, {}, [], []
    shapes = [({}, 1), ({}, 2), ({"topologySpreadConstraints": [SPREAD]}, 1)]
    for number in range(120):
        what = chance.random()
        if what < 0.25:
            spec, cpu = chance.choice(shapes)
            waiting.append(wants(f"w{number}", cpu, chance.choice([0, 5]), **spec))
            name = chance.choice(names)
            lists = {**lists, name: (*lists.get(name, ()), waiting[-1])}
        elif what < 0.35 and lists:
            lists = {name: pods for name, pods in lists.items() if name != chance.choice([*lists])}
        elif what < 0.5 and placed:
            cluster.remove_pod(placed.pop(chance.randrange(len(placed))).uid)
        spec, cpu = chance.choice(shapes)
        pod = wants(f"p{number}", cpu, chance.choice([0, 0, 5]), **spec)
        if what > 0.9 and waiting:  # a nominated pod is no rival of itself
            pod = chance.choice([one for pods in lists.values() for one in pods] or [pod])
        if immutable:
            nominated = MappingProxyType(lists)
        else:
            shared.clear()
            shared.update(lists)
            nominated = shared
        # The mapping of the plain cycle may change, so each of its attempts visits every row.
        ways = ((quick, nominated), (long, nominated), (plain, dict(lists)))
        one, *others = (cycle.decide(profile, pod, cluster.snapshot, given) for cycle, given in ways)
        for two in others:
            assert (one.node, one.feasible, one.message) == (two.node, two.feasible, two.message)
            assert one.post_filter == two.post_filter
        if one.node is not None and cluster.node_of(pod.uid) is None:
            cluster.place(pod, one.node)
            placed.append(pod)
            lists = {name: rest for name, pods in lists.items() if (rest := tuple(w for w in pods if w.uid != pod.uid))}
