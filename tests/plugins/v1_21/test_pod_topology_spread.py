"""Test spread constraints in 1.21: only nodes that match the pod's affinity define domains; every pod is scored."""

from __future__ import annotations

from math import log

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Service
from moorage.api.feature_gates import FeatureGates
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.pod_topology_spread import PodTopologySpreadArgsV121, PodTopologySpreadV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals
from moorage.testing.storage import with_objects

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SKEWED = Status(Code.UNSCHEDULABLE, "PodTopologySpread", ("node(s) didn't match pod topology spread constraints",))
UNLABELLED = Status(
    Code.UNRESOLVABLE,
    "PodTopologySpread",
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
)
WEB = {"matchLabels": {"app": "web"}}


def hard(key=ZONE, skew=1, selector=WEB, **more):
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}


def soft(key=ZONE, skew=1, selector=WEB):
    return hard(key, skew, selector, whenUnsatisfiable="ScheduleAnyway")


def web(name="web", *constraints, labels=None, **more):
    return a_pod(name, {"app": "web"} if labels is None else labels, topologySpreadConstraints=list(constraints), **more)


def node(name, zone=None, **labels):
    return a_node(name, {HOST: name, **({ZONE: zone} if zone is not None else {}), **labels})


def holding(counts, *nodes):
    """Return a cluster of these nodes with this many web pods on each, by name."""
    return a_cluster(nodes, {name: [web(f"{name}-{at}") for at in range(count)] for name, count in counts.items()})


ZONES = (node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c"))
DISKS = (node("a1", "a", disk="ssd"), node("a2", "a"), node("b1", "b"), node("c1", "c", disk="ssd"))
SSD = {"nodeSelector": {"disk": "ssd"}}
# constraints; nodes; web pods on them; other fields of the pod; nodes rejected for skew; nodes rejected for a label
CASES = {
    "a balanced cluster": ([hard()], ZONES, {}, {}, "", ""),
    "skew 2": ([hard()], ZONES, {"a1": 1}, {}, "a1 a2", ""),
    "skew 2, maxSkew 2": ([hard(skew=2)], ZONES, {"a1": 1}, {}, "", ""),
    "the least loaded domain counts": ([hard()], ZONES, {"a1": 2, "b1": 1, "c1": 1}, {}, "a1 a2", ""),
    "hosts": ([hard(HOST)], ZONES, {"a1": 1, "b1": 1}, {}, "a1 b1", ""),
    "two constraints: either rejects": ([hard(ZONE, 2), hard(HOST)], ZONES, {"a1": 2, "a2": 1}, {}, "a1 a2", ""),
    "one node without the label": ([hard()], (node("a1", "a"), node("x")), {}, {}, "", "x"),
    "no node with the label": ([hard("rack")], ZONES, {}, {}, "", "a1 a2 b1 c1"),
    "skew is reported before a missing label of a later constraint": (
        [hard(HOST), hard()], (node("a1", "a"), node("b1", "b"), node("x")), {"a1": 1}, {}, "a1", "x",
    ),
    "a pod that does not match its own selector": ([hard()], ZONES, {"a1": 1}, {"labels": {"app": "db"}}, "", ""),
    "no selector matches nothing": ([hard(selector=None)], ZONES, {"a1": 5}, {}, "", ""),
    "an empty selector counts every pod": ([hard(selector={})], ZONES, {"a1": 5}, {}, "a1 a2", ""),
    "soft constraints reject no node": ([soft()], ZONES, {"a1": 5}, {}, "", ""),
    "zones outside the pod's node selector do not count": ([hard()], DISKS, {"a1": 1, "c1": 1}, SSD, "", ""),
    "pods elsewhere in a matching zone count": ([hard()], DISKS, {"a2": 1}, SSD, "a1 a2", ""),
    "inclusion policies are ignored": (
        [hard(nodeAffinityPolicy="Ignore")], DISKS, {"a1": 1, "c1": 1}, SSD, "", "",
    ),
    "minDomains is ignored": ([hard(minDomains=9)], ZONES, {"a1": 1, "b1": 1, "c1": 1}, {}, "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("constraints", "nodes", "counts", "spec", "skewed", "unlabelled"), CASES.values(), ids=CASES)
def test_rejects(constraints, nodes, counts, spec, skewed, unlabelled):
    wanted = dict.fromkeys(skewed.split(), SKEWED) | dict.fromkeys(unlabelled.split(), UNLABELLED)
    assert refusals(PodTopologySpreadV121(), web("new", *constraints, **spec), holding(counts, *nodes).snapshot) == wanted


def test_which_pods_are_counted():
    leaving = web("leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    for other in (leaving, web("elsewhere", namespace="other"), web("db", labels={"app": "db"})):
        assert refusals(PodTopologySpreadV121(), web("new", hard()), a_cluster(ZONES, {"a1": [other]}).snapshot) == {}


# -- scores -------------------------------------------------------------------------------------------------------------

SCORED = {  # constraints, web pods on a1, a2, b1, c1; scores
    "no constraint, no service selects the pod": ([], [2, 0, 0, 0], [100, 100, 100, 100]),
    "hard constraints do not score": ([hard()], [2, 0, 0, 0], [100, 100, 100, 100]),
    "no pods": ([soft()], [0, 0, 0, 0], [100, 100, 100, 100]),
    "zones: 3, 1 and 0 pods weigh ln 5 each": ([soft()], [2, 1, 1, 0], [0, 0, 75, 100]),  # raw 4, 4, 1, 0
    "hosts weigh ln 6": ([soft(HOST)], [2, 1, 1, 0], [0, 66, 66, 100]),  # raw 3, 1, 1, 0
    "zones and hosts": ([soft(), soft(HOST)], [2, 1, 1, 0], [0, 25, 62, 100]),  # raw 8, 6, 3, 0
    "a larger maxSkew reduces the differences": ([soft(skew=5)], [2, 1, 1, 0], [50, 50, 87, 100]),  # raw 8, 8, 5, 4
}


@pytest.mark.parametrize(("constraints", "counts", "scores"), SCORED.values(), ids=SCORED)
def test_scores(constraints, counts, scores):
    cluster = holding(dict(zip(("a1", "a2", "b1", "c1"), counts, strict=True)), *ZONES)
    assert list(final_scores(PodTopologySpreadV121(), web("new", *constraints), cluster.snapshot).values()) == scores


def test_nodes_without_a_label_score_0():
    cluster = holding({"a1": 1}, node("a1", "a"), node("b1", "b"), node("x"))
    assert final_scores(PodTopologySpreadV121(), web("new", soft()), cluster.snapshot) == {"a1": 0, "b1": 100, "x": 0}


SERVICE = msgspec.convert({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}, Service)


def test_pods_of_a_service_spread_by_default():
    cluster = with_objects(holding({"a1": 2, "b1": 1}, *ZONES), SERVICE)
    # hosts: ln 6, skew 3; zones: ln 5, skew 5: raw 2 ln 6 + 2 + 2 ln 5 + 4 = 12, 2 + 2 ln 5 + 4 = 9, ln 6 + 2 + ln 5 + 4 = 9, 6
    assert final_scores(PodTopologySpreadV121(), web("new"), cluster.snapshot) == {"a1": 50, "a2": 75, "b1": 75, "c1": 100}
    without = final_scores(
        PodTopologySpreadV121(PodTopologySpreadArgsV121(defaulting_type="List")), web("new"), cluster.snapshot
    )
    assert set(without.values()) == {100}
    assert set(final_scores(PodTopologySpreadV121(), a_pod("new", {"app": "db"}), cluster.snapshot).values()) == {100}


DEFAULTING = {  # arguments, gates; the defaulting type
    "no arguments": ({}, {}, "System"),
    "no arguments, the gate off": ({}, {"DefaultPodTopologySpread": False}, "List"),
    "a list of constraints": (
        {"defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}]}, {}, "List",
    ),
    "said": ({"defaultingType": "List"}, {}, "List"),
}  # fmt: skip


@pytest.mark.parametrize(("args", "gates", "kind"), DEFAULTING.values(), ids=DEFAULTING)
def test_defaulting_type(args, gates, kind):
    completed = msgspec.convert(args, PodTopologySpreadArgsV121).completed(FeatureGates(gates, "1.21"))
    assert completed.defaulting_type == kind


# -- properties ---------------------------------------------------------------------------------------------------------

NODE = st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans(), st.integers(0, 3))


def cluster_of(nodes):
    made = [node(f"n{at}", zone, **({"disk": "ssd"} if ssd else {})) for at, (zone, ssd, _) in enumerate(nodes)]
    return holding({f"n{at}": count for at, (_, _, count) in enumerate(nodes)}, *made)


@settings(max_examples=40, deadline=None)
@given(st.lists(NODE, min_size=1, max_size=6), st.integers(1, 3), st.booleans())
def test_a_zone_may_exceed_the_least_by_max_skew(nodes, skew, picky):
    pod = web("new", hard(skew=skew), **(SSD if picky else {}))
    found = refusals(PodTopologySpreadV121(), pod, cluster_of(nodes).snapshot)
    zones = {zone for zone, ssd, _ in nodes if zone and (ssd or not picky)}
    pods = {zone: sum(count for other, _, count in nodes if other == zone) for zone in zones}
    expected = {}
    for at, (zone, _, _) in enumerate(nodes):
        if zone is None:
            expected[f"n{at}"] = UNLABELLED
        elif pods and pods.get(zone, 0) + 1 - min(pods.values()) > skew:
            expected[f"n{at}"] = SKEWED
    assert found == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(NODE, min_size=1, max_size=6), st.integers(1, 3), st.booleans())
def test_fewer_pods_in_the_zone_score_higher(nodes, skew, picky):
    pod = web("new", soft(skew=skew), **(SSD if picky else {}))
    found = list(final_scores(PodTopologySpreadV121(), pod, cluster_of(nodes).snapshot).values())
    zones = {zone for zone, _, _ in nodes if zone}
    weight = log(len(zones) + 2)
    pods = {zone: sum(n for other, ssd, n in nodes if other == zone and (ssd or not picky)) for zone in zones}
    raw = [int(float(pods[zone]) * weight + float(skew - 1)) if zone else None for zone, _, _ in nodes]
    known = [one for one in raw if one is not None]
    most, least = max(known, default=0), min(known, default=0)
    expected = [0 if one is None else 100 * (most + least - one) // most if most else 100 for one in raw]
    assert found == expected


@pytest.mark.parametrize("constraints", [(), (hard(),), (soft(), hard(HOST))])
def test_satisfies_the_plugin_contract(constraints):
    pods = [web("one", *constraints), web("picky", *constraints, **SSD), a_pod("plain")]
    check_plugin(PodTopologySpreadV121(), pods=pods, cluster=holding({"a1": 2, "b1": 1}, *DISKS))
