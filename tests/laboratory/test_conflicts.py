"""Conflicts and correction sets, held against brute force over all families."""

from __future__ import annotations

import os
import random
from itertools import chain, combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import moorage
from moorage.laboratory.explain.refusals import all_conflicts, conflicts, correction_sets
from moorage.laboratory.explain.verdicts import Constraint, verdicts_of_all
from moorage.state.pod_info import PodInfo
from tests.laboratory.brute_force import NEW, random_cluster

names = st.sampled_from([Constraint("P", str(at)) for at in range(6)])
families = st.lists(st.frozensets(names, max_size=5), min_size=1, max_size=8)


def subsets(items):
    return map(frozenset, chain.from_iterable(combinations(sorted(items), n) for n in range(len(items) + 1)))


def minimal(found):
    return {one for one in found if not any(other < one for other in found)}


@given(families)
def test_conflicts_are_the_minimal_families_that_meet_every_set(sets):
    universe = frozenset().union(*sets)
    hitting = {one for one in subsets(universe) if all(one & each for each in sets)}
    expected = minimal(hitting) if all(sets) else set()
    assert set(conflicts(sets, most=1000)) == expected


@given(families)
def test_correction_sets_are_the_minimal_sets(sets):
    assert set(correction_sets(sets)) == minimal(set(sets))


@given(families)
def test_the_smallest_conflicts_come_first_and_few_are_enough(sets):
    found = conflicts(sets, most=3)
    assert len(found) <= 3
    sizes = [len(one) for one in conflicts(sets, most=1000)]
    assert sizes == sorted(sizes)
    assert [len(one) for one in found] == sizes[:3]


# -- the conflicts of random clusters, from what a fresh engine says of each node -------------------------------------------

CLUSTERS = int(os.environ.get("CLUSTERS", "20"))
FIRST = int(os.environ.get("FIRST", "0"))


def brute_force(judged):
    """The minimal families of constraints of which each node is refused by some, by trying every family."""
    rows = range(len(judged.names))
    refusing = {key: {row for row in rows if mask[row]} for key, mask in judged.constraints.items()}
    every = set(rows)
    return minimal({one for one in subsets(refusing) if set().union(*(refusing[key] for key in one)) == every})


def test_conflicts_of_random_clusters_are_those_of_brute_force():
    conflicting = 0
    for seed in range(FIRST, FIRST + CLUSTERS):
        cluster = moorage.Cluster.from_objects(random_cluster(random.Random(seed)))
        pod, profile = PodInfo(cluster.pod(NEW)), cluster.scheduler.profiles["default-scheduler"]
        judged = verdicts_of_all(profile, pod, cluster.snapshot)
        found = all_conflicts(judged)
        assert set(found) == brute_force(judged), seed
        assert bool(found) == (not judged.feasible.any())
        assert cluster.can_schedule(NEW).nodes == [judged.names[row] for row in np.flatnonzero(judged.feasible)]
        conflicting += bool(found)
    assert conflicting > CLUSTERS // 4
