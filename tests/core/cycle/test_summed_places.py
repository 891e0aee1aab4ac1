"""Pods with preferred affinity by host name, decided by kept sums and cells: held against the full path."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from types import MappingProxyType
from unittest.mock import patch

import pytest

from moorage.core.cycle.ring_totals import RingTotals
from moorage.plugins.affinity import affinity_counts
from moorage.plugins.affinity.affinity_counts import FollowedWeights
from moorage.testing.builders import a_cluster, a_node, a_pod
from tests.core.cycle.test_pod_classes import History

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PREFERRED, REQUIRED = "preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"


def term(app, key=HOST, **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def preferring(kind, *terms):
    return {"affinity": {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": one} for weight, one in terms]}}}


TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
TEMPLATES = [
    (preferring("podAffinity", (1, term("x"))), "x"),
    (preferring("podAntiAffinity", (5, term("x", **TEAM)), (10, term("y"))), "y"),
    ({"affinity": {"podAntiAffinity": {REQUIRED: [term("y")]}, **preferring("podAffinity", (3, term("x")))["affinity"]}}, "x"),
    (preferring("podAffinity", (2, term("x", ZONE)), (7, term("y"))), "y"),
]
CASES = {
    "as they are": {},
    "too many cells": {"core.cycle.summed_places._MOST_CELLS": 8},
    "places together": {"core.cycle.summed_places._FEW": 0, "core.cycle.column.FEW": 0, "core.cycle.sheet.FEW": 0},
    "sums added up": {"state.weight_sums._FEW": 0},
    "one sum is kept": {"state.weight_sums._KEPT": 1},
}


def machine(random, at):
    labels = {HOST: f"n{at % 9}", **({ZONE: random.choice("abc")} if random.random() < 0.9 else {})}
    offer = {"cpu": random.choice([2, 3]), "memory": "8Gi", "pods": 9}
    return a_node(f"n{at}", labels, allocatable=offer, unschedulable=random.random() < 0.1)


def play(seed):
    random = Random(seed)
    history = History([machine(random, at) for at in range(12)], TEMPLATES)
    history.namespace("x")
    for number in range(60):
        kind = random.choice(["pod"] * 12 + ["remove", "forget", "relabel", "change", "drop", "service", "namespace"])
        if kind == "pod":
            history.pod(number % 2 if random.random() < 0.8 else random.randrange(4))
        elif kind == "change":
            history.node(machine(random, random.randrange(14)))
        elif kind == "drop":
            history.drop(random.randrange(12) if random.random() < 0.3 else 99)
        elif kind in {"service", "namespace"}:
            getattr(history, kind)(random.choice("xy"))
        else:
            getattr(history, kind)(random.randrange(50))


@pytest.mark.parametrize("limits", CASES.values(), ids=CASES)
def test_pods_with_preferred_affinity_are_decided_as_on_the_full_path(limits):
    find, found = RingTotals.summed_places, []

    def counting(scores, answer, table):
        found.append(find(scores, answer, table))
        return found[-1]

    with ExitStack() as patches:
        patches.enter_context(patch.object(affinity_counts, "_FEW_DOMAINS", 0))
        patches.enter_context(patch.object(RingTotals, "summed_places", counting))
        for name, limit in limits.items():
            patches.enter_context(patch(f"moorage.{name}", limit))
        for seed in range(4):
            play(seed)
    assert sum(places is not None for places in found) > 5


def test_kept_weights_are_those_that_are_added_up_for_each_pod():
    """Also after placed pods came, went and changed their labels, and after nodes and namespaces changed."""
    kept = 0
    for seed in range(6):
        random = Random(seed)
        cluster = a_cluster([machine(random, at) for at in range(9)])
        for number in range(50):
            spec, app = random.choice(TEMPLATES)
            pod = a_pod(f"p{number}", {"app": app}, **spec)
            with patch.object(affinity_counts, "_FEW_DOMAINS", 99):
                expected = affinity_counts.weigh_affinity(a_pod("p", {"app": app}, **spec), cluster.snapshot, 1) or {}
            with patch.object(affinity_counts, "_FEW_DOMAINS", 0):
                found = affinity_counts.weigh_affinity(pod, cluster.snapshot, 1) or {}
            assert {key: weights.tolist() for key, weights in found.items()} == {
                key: weights.tolist() for key, weights in expected.items()
            }
            kept += isinstance(found, FollowedWeights)
            if random.random() < 0.8:
                cluster.assume(pod, f"n{random.randrange(9)}")
            elif random.random() < 0.5:
                cluster.set_node(machine(random, random.randrange(9)))
            elif number:
                cluster.forget(f"p{random.randrange(number)}")
    assert kept > 50


def test_a_matcher_that_was_dropped_is_counted_again():
    cluster = a_cluster([a_node(f"n{at}", {HOST: f"n{at}"}) for at in range(3)])
    spec = MappingProxyType(preferring("podAffinity", (1, term("x"))))
    counts = cluster.snapshot.table.pod_counts
    with patch.object(affinity_counts, "_FEW_DOMAINS", 0), patch.object(counts, "_capacity", 1):
        for number in range(3):
            cluster.assume(a_pod(f"p{number}", {"app": "x"}), "n1")
            found = affinity_counts.weigh_affinity(a_pod("asks", {"app": "z"}, **spec), cluster.snapshot, 1)
            assert sorted(found[HOST].tolist()) == [0, 0, 0, number + 1]
            affinity_counts.weigh_affinity(
                a_pod("other", {"app": "z"}, **preferring("podAffinity", (1, term("y")))), cluster.snapshot, 1
            )
