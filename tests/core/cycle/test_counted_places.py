"""Pods that are spread by default, decided by cells: held against the full path over random histories."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from unittest.mock import patch

import pytest

from moorage.core.cycle.summed_places import CountedPlaces
from moorage.testing.builders import a_node
from tests.core.cycle.test_pod_classes import History

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APART = {"podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "y"}}}, "weight": 5}
TEMPLATES = [
    ({}, "x"),
    ({}, "y"),
    ({"containers": [{"name": "c", "resources": {"requests": {"cpu": "700m"}}}]}, "x"),
    ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART["podAffinityTerm"]]}}}, "x"),
]
OFFER = {"cpu": 4, "memory": "8Gi", "pods": 9}
CASES = {
    "as they are": {},
    "one matcher is kept": {"ring_totals._COUNTED_KEPT": 1},
    "too many cells": {"summed_places._MOST_COUNTED_CELLS": 8},
    "rows one by one": {"column.FEW": 99, "sheet.FEW": 99, "summed_places._FEW": 99},
    "rows together": {"column.FEW": 0, "sheet.FEW": 0, "summed_places._FEW": 0},
}


def machine(random, at):
    labels = {HOST: f"n{at}", **({ZONE: random.choice("abc")} if random.random() < 0.9 else {})}
    offer = {"cpu": random.choice([2, 3]), "memory": "8Gi", "pods": 9}
    return a_node(f"n{at}", labels, allocatable=offer, unschedulable=random.random() < 0.1)


def play(seed):
    random = Random(seed)
    history = History([machine(random, at) for at in range(12)], TEMPLATES)
    history.service("x")
    for number in range(60):
        kind = random.choice(["pod"] * 9 + ["remove", "forget", "relabel", "change", "drop", "service"])
        if kind == "pod":
            history.pod(number % 2 if random.random() < 0.8 else random.randrange(4))
        elif kind == "change":
            history.node(machine(random, random.randrange(14)))
        elif kind == "drop":
            history.drop(random.randrange(12) if random.random() < 0.3 else 99)
        elif kind == "service":
            history.service("y")
        else:
            getattr(history, kind)(random.randrange(50))


class Uses:
    """Counts how often cells follow the changes between two pods."""

    def __init__(self):
        self.times = 0

    def __enter__(self):
        follow = CountedPlaces.follow

        def counting(places):
            self.times += 1
            return follow(places)

        self._patch = patch.object(CountedPlaces, "follow", counting)
        self._patch.start()
        return self

    def __exit__(self, *exc):
        self._patch.stop()


@pytest.mark.parametrize("limits", CASES.values(), ids=CASES)
def test_pods_spread_by_default_are_decided_as_on_the_full_path(limits):
    with ExitStack() as patches:
        uses = patches.enter_context(Uses())
        for name, limit in limits.items():
            patches.enter_context(patch(f"moorage.core.cycle.{name}", limit))
        for seed in range(3):
            play(seed)
    assert uses.times > 20


SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
OF_ZONES = {
    "by default": {},
    "required": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
    "preferred": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
}


@pytest.mark.parametrize("spec", OF_ZONES.values(), ids=OF_ZONES)
def test_a_node_may_leave_its_zone_and_return(spec):
    """The label then has one more value, though no node differs from before."""
    nodes = [a_node(f"n{at}", {HOST: f"n{at}", ZONE: "ab"[at % 2]}, allocatable=OFFER) for at in range(6)]
    history = History(nodes, [(spec, "x")] * 4)
    history.service("x")
    for zone in ("c", "d"):
        for _ in range(3):
            history.pod(0)
        history.node(a_node("n0", {HOST: "n0", ZONE: zone}, allocatable=OFFER))
        history.node(nodes[0])
    for _ in range(3):
        history.pod(0)
