"""The search for the least change against brute force, and against changed descriptions of one cluster.

``make least-change CLUSTERS=2000`` compares more random clusters than the suite does.
"""

from __future__ import annotations

import os
import random

import pytest
from msgspec.structs import replace

import moorage
from moorage.api.core import Node, Pod
from moorage.framework.changes import RemedyingPlugin
from moorage.laboratory.change.change_sets import combined
from moorage.laboratory.change.least_change import ChangeLimits, ChangeSearch, find_least_change
from moorage.laboratory.change.offers import refusals_of
from moorage.laboratory.edit.changes import apply_all
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node
from tests.laboratory.brute_force import NEW, compare, random_cluster
from tests.laboratory.fresh_trials import FreshTrials

CLUSTERS = int(os.environ.get("CLUSTERS", "9"))
FIRST = int(os.environ.get("FIRST", "0"))


@pytest.mark.slow
def test_no_cheaper_set_of_changes_exists():
    results = [(seed, compare(seed)) for seed in range(FIRST, FIRST + CLUSTERS)]
    used = [(seed, result) for seed, result in results if result is not None]
    assert len(used) >= CLUSTERS // 3
    assert [one for one in used if one[1]] == []


@pytest.mark.slow
def test_a_number_is_as_small_as_an_eviction_lets_it_be():
    """In this cluster a pod must be evicted for another reason, after which less allocatable is enough."""
    assert compare(7302) == ""


# -- every offer lifts the refusal that it was made for -------------------------------------------------------------------


def refused(objects):
    """The scheduler, the pod and what refuses it, for objects as they are."""
    cluster = moorage.Cluster.from_objects(objects)
    pod = PodInfo(cluster.pod(NEW))
    profile = cluster.scheduler.profiles["default-scheduler"]
    return cluster, pod, refusals_of(profile, pod, cluster.snapshot)


def offers_by_term(refusal, pod, snapshot, row):
    by_term = {}
    for offer in refusal.instance.remedies(refusal.state, pod, snapshot.nodes.at(row)):
        changes = offer if isinstance(offer, tuple) else (offer,)
        by_term.setdefault(changes[0].term, []).append(changes)
    return by_term


def lifts(objects, plugin, node, changes):
    """Say whether the plugin lets the pod onto the node once these changes are made."""
    cluster, _, refusals = refused(apply_all(objects, changes))
    row = cluster.snapshot.table.row_of[node]
    return not any(one.plugin == plugin and one.rows[row] for one in refusals)


def offers_that_hold(seed):
    """How many offers there were for one random cluster, and those that did not hold."""
    objects = moorage.Cluster.from_objects(random_cluster(random.Random(seed))).objects()
    cluster, pod, refusals = refused(objects)
    made, broken = 0, []
    for refusal in refusals:
        assert isinstance(refusal.instance, RemedyingPlugin)
        for row, node in enumerate(cluster.snapshot.table.nodes):
            by_term = offers_by_term(refusal, pod, cluster.snapshot, row) if refusal.rows[row] else {}
            for term, offers in by_term.items():
                others = [rest[0] for name, rest in by_term.items() if name != term]
                for offer in offers:
                    made += 1
                    changes = combined(offer, *others)
                    if changes is None or not lifts(objects, refusal.plugin, node.name, changes):
                        broken.append((refusal.plugin, node.name, offer))
    return made, broken


@pytest.mark.slow
def test_an_offer_lifts_the_refusal_that_it_was_made_for():
    results = [offers_that_hold(seed) for seed in range(500 + FIRST, 500 + FIRST + CLUSTERS // 3)]
    made = sum(count for count, _ in results)
    broken = [one for _, some in results for one in some]
    assert made > CLUSTERS
    assert len(broken) <= 0.1 * made, broken


# -- metamorphic ------------------------------------------------------------------------------------------------------------


def least(objects, owners=("pod", "node"), rename=None):
    """The cost of the least change, and the changes of that cost, with names as given."""
    cluster = moorage.Cluster.from_objects(objects)
    held = cluster.objects()
    search = ChangeSearch.over(FreshTrials(held, NEW, cluster.options), held, probes=3000)
    cost, found = search.cheapest(owners)
    return cost, {
        frozenset((one.verb, (rename or {}).get(one.target, one.target), one.path, str(one.new)) for one in some)
        for some in found
    }


def described(seed):
    given = random_cluster(random.Random(seed))
    return [o for o in given if isinstance(o, Node)], [o for o in given if isinstance(o, Pod)]


def renamed(node, name):
    labels = {**node.labels, "kubernetes.io/hostname": name}
    return replace(node, metadata=replace(node.metadata, name=name, labels=labels))


def doubled(obj):
    if isinstance(obj, Node):
        twice = {k: f"{2 * int(v.removesuffix('m'))}m" if k == "cpu" else v for k, v in obj.status.allocatable.items()}
        return replace(obj, status=replace(obj.status, allocatable=twice))
    (container,) = obj.spec.containers
    cpu = f"{2 * int(container.resources.requests['cpu'].removesuffix('m'))}m"
    held = replace(container, resources=replace(container.resources, requests={"cpu": cpu}))
    return replace(obj, spec=replace(obj.spec, containers=(held,)))


SEEDS = list(range(3000 + 3 * FIRST, 3000 + 3 * (FIRST + CLUSTERS), 6))
#: The least cost of a change that opens the node ``walled``: uncordon it, raise its number of pods, and shrink the request.
WALLED = 9


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_does_not_depend_on_how_the_cluster_is_described(seed):
    nodes, pods = described(seed)
    cost, found = least([*nodes, *pods])
    assert least([*reversed(nodes), *pods]) == (cost, found)
    names = {node.name: f"other-{node.name}" for node in nodes}
    moved = [replace(p, spec=replace(p.spec, node_name=names.get(p.spec.node_name, ""))) for p in pods]
    back = {f"node/{new}": f"node/{old}" for old, new in names.items()}
    assert least([*(renamed(node, names[node.name]) for node in nodes), *moved], rename=back) == (cost, found)
    cordoned = a_node(
        "walled", {"zone": "z", "kubernetes.io/hostname": "walled"}, allocatable={"cpu": "1m", "pods": 0}, unschedulable=True
    )
    if cost < WALLED and not any(pod.spec.topology_spread_constraints for pod in pods):
        assert least([*nodes, cordoned, *pods]) == (cost, found)
    twice, _ = least([doubled(obj) for obj in (*nodes, *pods)])
    assert twice == pytest.approx(cost)


def test_a_group_that_is_split_in_two_has_the_same_answer():
    pod = next(one for one in described(3000)[1] if one.key == NEW)
    pod = replace(pod, spec=replace(pod.spec, node_selector={"disk": "ssd"}, affinity=None, topology_spread_constraints=()))
    group = [a_node(f"n{i}", {"zone": "a"}, allocatable={"cpu": "4", "pods": 10}) for i in range(4)]
    split = [
        replace(node, metadata=replace(node.metadata, labels={"zone": "a", "half": str(i % 2)})) for i, node in enumerate(group)
    ]
    assert least([*group, pod]) == least([*split, pod])


def test_answers_are_the_same_each_time():
    given = random_cluster(random.Random(7))
    cluster = moorage.Cluster.from_objects(given)
    held = cluster.objects()
    one, other = (find_least_change(FreshTrials(held, NEW, cluster.options), held) for _ in range(2))
    assert one == other


# -- trials in the cluster itself -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_trials_in_the_cluster_come_out_as_with_a_fresh_engine():
    for seed in range(5000 + FIRST, 5000 + FIRST + CLUSTERS // 3):
        cluster = moorage.Cluster.from_objects(random_cluster(random.Random(seed)))
        held, before = cluster.objects(), cluster.digest()
        fresh = find_least_change(FreshTrials(held, NEW, cluster.options), held, ChangeLimits(alternatives=1, probes=60))
        assert find_least_change(ClusterTrials(cluster, NEW), held, ChangeLimits(alternatives=1, probes=60)) == fresh
        assert cluster.digest() == before
