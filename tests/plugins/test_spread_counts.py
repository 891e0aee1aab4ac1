"""Test soft spread constraints: nodes whose domains hold fewer matching pods score higher."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import ReplicationController, ReplicationControllerSpec, Service, ServiceSpec, TopologySpreadConstraint
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from moorage.api.workloads import ReplicaSet, ReplicaSetSpec, StatefulSet, StatefulSetSpec
from moorage.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from moorage.plugins.spread.spread_counts import default_selector
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores

WEB = {"matchLabels": {"app": "web"}}
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def soft(key=ZONE, skew=1, selector=WEB, **more):
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector, **more}


def web(name="web", *constraints, labels=None, **more):
    return a_pod(name, {"app": "web"} if labels is None else labels, topologySpreadConstraints=list(constraints), **more)


def node(name, zone=None, **more):
    labels = {HOST: name, **({ZONE: zone} if zone is not None else {}), **more.pop("labels", {})}
    return a_node(name, labels, **more)


def holding(counts, *nodes):
    """Return a cluster of these nodes with this many web pods on each, by name."""
    return a_cluster(nodes, {n: [web(f"{n}-{i}") for i in range(count)] for n, count in counts.items()})


NODES = (node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c"))
TAINTED = (node("a1", "a"), node("b1", "b", taints=[{"key": "gpu", "effect": "NoSchedule"}]))

# constraints; nodes; web pods on them; other fields of the pod's spec; scores
CASES = {
    "an empty cluster: equal scores": ([soft()], NODES, {}, {}, {"a1": 100, "a2": 100, "b1": 100, "c1": 100}),
    # ln(3+2) = 1.609 a pod: 4.8, 1.6 and 0 round to 5, 2 and 0; the best gets 100, the others 100 * (5 - raw) // 5
    "three zones": ([soft()], NODES, {"a1": 2, "a2": 1, "b1": 1}, {}, {"a1": 0, "a2": 0, "b1": 60, "c1": 100}),
    # ln(4+2) = 1.792 a pod: 3.6, 1.8, 1.8 and 0 round to 4, 2, 2 and 0
    "hosts are counted per node": (
        [soft(HOST)], NODES, {"a1": 2, "a2": 1, "b1": 1}, {}, {"a1": 0, "a2": 50, "b1": 50, "c1": 100},
    ),
    # zones weigh 4.8, 1.6, 0 and hosts 3.6, 1.8, 0: sums of 8.4, 6.6, 3.4 and 0 round to 8, 7, 3 and 0
    "zones and hosts": (
        [soft(), soft(HOST)], NODES, {"a1": 2, "a2": 1, "b1": 1}, {}, {"a1": 0, "a2": 12, "b1": 62, "c1": 100},
    ),
    # maxSkew - 1 is added to each: 8.8, 5.6 and 4 round to 9, 6 and 4
    "a larger maxSkew reduces the differences": (
        [soft(skew=5)], NODES, {"a1": 2, "a2": 1, "b1": 1}, {}, {"a1": 44, "a2": 44, "b1": 77, "c1": 100},
    ),
    "nodes that lack a label score 0": ([soft()], (*NODES[2:], node("x")), {"b1": 1}, {}, {"b1": 0, "c1": 100, "x": 0}),
    "even if all other nodes are empty": ([soft()], (NODES[3], node("x")), {}, {}, {"c1": 100, "x": 0}),
    "no node has the label": ([soft("rack")], NODES, {"a1": 1}, {}, {"a1": 0, "a2": 0, "b1": 0, "c1": 0}),
    "an empty selector counts no pod": ([soft(selector={})], NODES[1:3], {"a2": 3}, {}, {"a2": 100, "b1": 100}),
    "nodes outside the pod's node selector do not count": (
        [soft()], (node("a1", "a", labels={"disk": "ssd"}), node("a2", "a"), node("b1", "b", labels={"disk": "ssd"})),
        {"a2": 3, "b1": 1}, {"nodeSelector": {"disk": "ssd"}}, {"a1": 100, "a2": 100, "b1": 0},
    ),
    "tainted nodes count": ([soft()], TAINTED, {"b1": 1}, {}, {"a1": 100, "b1": 0}),
    "nodeTaintsPolicy Honor: they do not count": (
        [soft(nodeTaintsPolicy="Honor")], TAINTED, {"b1": 1}, {}, {"a1": 100, "b1": 100},
    ),
    "hosts are counted under any policy": (
        [soft(HOST, nodeTaintsPolicy="Honor")], TAINTED, {"b1": 1}, {}, {"a1": 100, "b1": 0},
    ),
    "hard constraints do not score": ([soft(whenUnsatisfiable="DoNotSchedule")], NODES, {"a1": 1}, {}, None),
}  # fmt: skip


@pytest.mark.parametrize(("constraints", "nodes", "counts", "spec", "scores"), CASES.values(), ids=CASES)
def test_scores(constraints, nodes, counts, spec, scores):
    assert final_scores(PodTopologySpread(), web("new", *constraints, **spec), holding(counts, *nodes).snapshot) == scores


def test_feasible_nodes_define_domains_and_all_nodes_are_counted():
    snapshot = holding({"a1": 2, "a2": 1, "b1": 1}, *NODES).snapshot
    part = snapshot.nodes.only(snapshot.nodes.named(["a2", "b1"]))
    # ln(2+2) = 1.386 a pod: 4.2 and 1.4 round to 4 and 1
    assert final_scores(PodTopologySpread(), web("new", soft()), part) == {"a2": 25, "b1": 100}


# -- default constraints --------------------------------------------------------------------------------------------------


def a_service(**selector):
    return Service(metadata=ObjectMeta(name="s", namespace="default"), spec=ServiceSpec(selector=selector))


def listed(*constraints):
    made = tuple(
        TopologySpreadConstraint(topology_key=k, max_skew=n, when_unsatisfiable="ScheduleAnyway") for k, n in constraints
    )
    return PodTopologySpread(PodTopologySpreadArgs(defaulting_type="List", default_constraints=made))


def test_system_defaults_spread_over_hosts_and_zones():
    cluster = holding({"a1": 2, "a2": 1, "b1": 1}, *NODES)
    assert final_scores(PodTopologySpread(), web(), cluster.snapshot) is None, "nothing owns the pod"
    cluster.set_object(a_service(app="web"))
    # hosts 3.6, 1.8, 1.8, 0 and 2; zones 4.8, 4.8, 1.6, 0 and 4: sums of 14.4, 12.6, 9.4 and 6 round to 14, 13, 9 and 6
    assert final_scores(PodTopologySpread(), web(), cluster.snapshot) == {"a1": 42, "a2": 50, "b1": 78, "c1": 100}
    assert final_scores(PodTopologySpread(), web("own", soft(whenUnsatisfiable="DoNotSchedule")), cluster.snapshot) is None


def test_system_defaults_score_nodes_without_a_zone_and_list_defaults_do_not():
    cluster = holding({"x": 1}, NODES[3], node("x"))
    cluster.set_object(a_service(app="web"))
    # a missing zone counts as a domain, but adds no score: hosts 0 + 2 and 1.4 + 2, zones 0 + 4 and 0
    assert final_scores(PodTopologySpread(), web(), cluster.snapshot) == {"c1": 50, "x": 100}
    assert final_scores(listed((HOST, 3), (ZONE, 5)), web(), cluster.snapshot) == {"c1": 100, "x": 0}


def test_an_empty_zone_and_a_missing_zone_are_one_domain_of_the_system_defaults():
    cluster = holding({"x": 4}, node("e", ""), node("x"), NODES[3])
    cluster.set_object(a_service(app="web"))
    # hosts weigh ln 5, zones (two of them) ln 4: e 2 + 4 * 1.386 + 4 = 11.5, x 4 * 1.609 + 2 = 8.4, c1 2 + 4 = 6
    assert final_scores(PodTopologySpread(), web(), cluster.snapshot) == {"e": 50, "x": 83, "c1": 100}


def test_an_empty_list_disables_defaults():
    cluster = holding({"a1": 1}, *NODES)
    cluster.set_object(a_service(app="web"))
    assert final_scores(listed(), web(), cluster.snapshot) is None


def owned_by(kind, api_version="apps/v1", controller=True, **labels):
    owner = {"apiVersion": api_version, "kind": kind, "name": "owner", "controller": controller}
    return a_pod("pod", labels or {"app": "web"}, metadata={"ownerReferences": [owner]})


REV = LabelSelector(match_expressions=(LabelSelectorRequirement(key="rev", operator="Exists"),))
BROKEN = LabelSelector(match_expressions=(LabelSelectorRequirement(key="rev", operator="Like"),))
OWNERS = {  # the pod, its owner, the selector of its siblings
    "nothing": (a_pod(labels={"app": "web"}), [], ""),
    "a service": (a_pod(labels={"app": "web"}), [("Service", {"app": "web"})], "app=web"),
    "a service that selects other pods": (a_pod(labels={"app": "db"}), [("Service", {"app": "web"})], ""),
    "a service without a selector": (a_pod(labels={"app": "web"}), [("Service", {})], ""),
    "a replica set": (owned_by("ReplicaSet"), [("ReplicaSet", REV)], "rev"),
    "a stateful set": (owned_by("StatefulSet"), [("StatefulSet", REV)], "rev"),
    "a replication controller": (owned_by("ReplicationController", "v1"), [("ReplicationController", {"a": "b"})], "a=b"),
    "both": (owned_by("ReplicaSet"), [("ReplicaSet", REV), ("Service", {"app": "web"})], "app=web,rev"),
    "a service and a replication controller": (
        owned_by("ReplicationController", "v1"), [("ReplicationController", {"a": "b"}), ("Service", {"app": "web"})],
        "a=b,app=web",
    ),
    "a replica set that was deleted": (owned_by("ReplicaSet"), [("Service", {"app": "web"})], "app=web"),
    "a replica set with an invalid selector": (owned_by("ReplicaSet"), [("ReplicaSet", BROKEN)], ""),
    "a replica set without a selector": (owned_by("ReplicaSet"), [("ReplicaSet", None)], ""),
    "another API version of the kind": (owned_by("ReplicaSet", "extensions/v1beta1"), [("ReplicaSet", REV)], ""),
    "an owner that is not its controller": (owned_by("ReplicaSet", controller=False), [("ReplicaSet", REV)], ""),
    "another kind": (owned_by("Job", "batch/v1"), [("ReplicaSet", REV)], ""),
}  # fmt: skip


def an_owner(kind, selector):
    metadata = ObjectMeta(name="owner", namespace="default")
    match kind:
        case "Service":
            return Service(metadata=metadata, spec=ServiceSpec(selector=selector))
        case "ReplicationController":
            return ReplicationController(metadata=metadata, spec=ReplicationControllerSpec(selector=selector))
        case "ReplicaSet":
            return ReplicaSet(metadata=metadata, spec=ReplicaSetSpec(selector=selector))
        case "StatefulSet":
            return StatefulSet(metadata=metadata, spec=StatefulSetSpec(selector=selector))


@pytest.mark.parametrize(("pod", "owners", "selector"), OWNERS.values(), ids=OWNERS)
def test_the_selector_of_siblings(pod, owners, selector):
    cluster = a_cluster([])
    for kind, asked in owners:
        cluster.set_object(an_owner(kind, asked))
    found = default_selector(pod, cluster.snapshot)
    assert str(found) == selector
    assert not found.matches_nothing


# -- a reference implementation -------------------------------------------------------------------------------------------


def reference_scores(pod, constraints, nodes, feasible, placed):
    """Return scores by name, one node and one pod at a time."""
    keys = [c["topologyKey"] for c in constraints]
    kept = [n for n in nodes if n.name in feasible and all(key in n.labels for key in keys)]
    raw = {}
    for n in kept:
        total = 0.0
        for c in constraints:
            key = c["topologyKey"]
            where = [n] if key == HOST else [
                m for m in nodes
                if m.labels.get(key) == n.labels[key] and all(k in m.labels for k in keys) and included(m, pod, c)
            ]  # fmt: skip
            found = sum(counts(c, pod, p) for m in where for p in placed.get(m.name, []))
            domains = len(kept) if key == HOST else len({m.labels[key] for m in kept})
            total += found * math.log(domains + 2) + (c["maxSkew"] - 1)
        raw[n.name] = math.floor(total + 0.5)
    worst, best = max(raw.values(), default=0), min(raw.values(), default=0)
    return {
        name: 0 if name not in raw else 100 if worst == 0 else 100 * (worst + best - raw[name]) // worst for name in feasible
    }


def counts(constraint, pod, other):
    wanted = constraint["labelSelector"]["matchLabels"]
    return not other.terminating and other.namespace == pod.namespace and wanted.items() <= other.labels.items()


def included(n, pod, c):
    if c.get("nodeAffinityPolicy", "Honor") == "Honor" and any(n.labels.get(k) != v for k, v in pod.spec.node_selector.items()):
        return False
    return not (c.get("nodeTaintsPolicy") == "Honor" and n.spec.taints and not pod.spec.tolerations)


constraints = st.builds(
    lambda key, skew, rev, affinity, taints: soft(
        key, skew, {"matchLabels": {"app": "web", **rev}}, nodeAffinityPolicy=affinity, nodeTaintsPolicy=taints
    ),
    st.sampled_from([ZONE, HOST, "rack"]), st.integers(1, 5), st.sampled_from([{}, {"rev": "1"}]),
    st.sampled_from(["Honor", "Ignore"]), st.sampled_from(["Honor", "Ignore"]),
)  # fmt: skip
node_lists = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "b", "c"]), st.sampled_from([None, "r", "s"]), st.sampled_from([None, "ssd"]),
        st.booleans(),
    ),
    min_size=1, max_size=6,
).map(
    lambda all_: [
        node(
            f"n{i}", zone, labels={k: v for k, v in (("rack", rack), ("disk", disk)) if v is not None},
            taints=[{"key": "gpu", "effect": "NoSchedule"}] if tainted else [],
        )
        for i, (zone, rack, disk, tainted) in enumerate(all_)
    ]
)  # fmt: skip
pods = st.lists(
    st.tuples(
        st.integers(0, 5), st.sampled_from([{"app": "web"}, {"app": "web", "rev": "1"}, {}]),
        st.sampled_from(["default", "default", "other"]), st.booleans(),
    ),
    max_size=15,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(constraints, min_size=1, max_size=3), node_lists, pods, st.sampled_from([{}, {"disk": "ssd"}]), st.data())
def test_agrees_with_a_reference_implementation(soft_constraints, nodes, where, selector, data):
    placed = {}
    for i, (number, labels, namespace, leaving) in enumerate(where):
        metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}
        other = a_pod(f"p{i}", labels, namespace=namespace, metadata=metadata)
        placed.setdefault(nodes[number % len(nodes)].name, []).append(other)
    pod = web("new", *soft_constraints, nodeSelector=selector)
    snapshot = a_cluster(nodes, placed).snapshot
    feasible = [n.name for n in nodes if data.draw(st.booleans())] or [n.name for n in nodes]
    view = snapshot.nodes.only(snapshot.nodes.named(feasible))
    said = reference_scores(pod, soft_constraints, nodes, feasible, placed)
    assert final_scores(PodTopologySpread(), pod, view) == said


def test_a_numeric_toleration_counts_when_its_gate_is_on():
    taint = [{"key": "sla", "value": "990", "effect": "NoSchedule"}]
    cluster = holding({"b1": 1}, node("a1", "a"), node("b1", "b", taints=taint))
    pod = web("new", soft(nodeTaintsPolicy="Honor"), tolerations=[{"key": "sla", "operator": "Gt", "value": "950"}])
    for gate, scores in ((False, {"a1": 100, "b1": 100}), (True, {"a1": 100, "b1": 0})):
        plugin = PodTopologySpread()
        gates = FeatureGates({"TaintTolerationComparisonOperators": gate})
        plugin.attach(SimpleNamespace(gates=gates, snapshot=cluster.snapshot))
        assert final_scores(plugin, pod, cluster.snapshot) == scores
