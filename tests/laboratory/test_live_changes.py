"""The changes that ``/debug/explain`` finds in a copy of a live cluster are those of ``moorage explain``."""

from __future__ import annotations

import random
from itertools import count

import pytest

import moorage
from moorage.laboratory.live_changes import with_live_changes
from tests.laboratory.random_world import World


def found_in(cluster, pod, is_late=lambda: False, assumed=None):
    without = cluster.explain(pod, probes=0)
    return with_live_changes(without, cluster.objects(), assumed or {}, cluster.loaded, 0, is_late)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_changes_are_those_of_explain(seed):
    cluster = World(seed).cluster()
    names = [f"default/{row['name']}" for row in cluster.pods if row["state"] == "Pending"]
    for name in random.Random(seed).sample(names, 3):
        # no time has passed in the copy either
        told = moorage.Cluster.from_objects(*cluster.objects()).explain(name)
        assert found_in(cluster, name).changes == told.changes


NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": 2, "memory": "4Gi", "pods": 9}},
}  # fmt: skip


def pod(name, cpu):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}


def test_a_search_that_ran_out_of_time_says_so():
    cluster = moorage.Cluster.from_objects(NODE, pod("big", 3))
    calls = count()
    found = found_in(cluster, "big", is_late=lambda: next(calls) > 1)
    assert found.proof.kind == "bounded"
    assert any("time limit" in note for note in found.request.notes)
    assert not found_in(cluster, "big").request.notes


def test_pods_that_are_assumed_take_room():
    cluster = moorage.Cluster.from_objects(NODE, pod("first", 1), pod("big", 3))
    (free, *_), (taken, *_) = (found_in(cluster, "big", assumed=assumed).changes for assumed in ({}, {"first": "n"}))
    assert [free.atoms[0].new, taken.atoms[0].new] == [2000, 1000]
