"""Test the events that wake a pod which spread constraints rejected: every event that may let it fit, and few others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moorage.api.core import Service, ServiceSpec, TopologySpreadConstraint
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import ObjectMeta
from moorage.framework.events import Action, Resource
from moorage.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals, wakes

WEB = {"matchLabels": {"app": "web"}}


def constraint(key="zone", skew=1, selector=WEB, **more):
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}


def web(name="web", *constraints, labels=None, **more):
    return a_pod(name, {"app": "web"} if labels is None else labels, topologySpreadConstraints=list(constraints), **more)


def node(name, zone=None, **more):
    labels = {"host": name, **({"zone": zone} if zone is not None else {}), **more.pop("labels", {})}
    return a_node(name, labels, **more)


def attached(snapshot=None, args=None):
    plugin = PodTopologySpread(args)
    plugin.attach(SimpleNamespace(gates=FeatureGates(), snapshot=snapshot))
    return plugin


PENDING = web("pending", constraint(), constraint("host"))
PLACED = web("placed", nodeName="a1")
UNRELATED = web("unrelated", labels={"app": "db"}, nodeName="a1")
A1, A2 = node("a1", "a"), node("a1", "b")

WAKES = {  # resource, action, old, new, wakes?
    "a counted pod is added": (Resource.ASSIGNED_POD, Action.ADD, None, PLACED, True),
    "another pod is added": (Resource.ASSIGNED_POD, Action.ADD, None, UNRELATED, False),
    "a pod without a node is added": (Resource.UNSCHEDULED_POD, Action.ADD, None, web("unplaced"), False),
    "a nominated pod is added": (
        Resource.UNSCHEDULED_POD, Action.ADD, None, web("nominated", status={"nominatedNodeName": "a1"}), True,
    ),
    "a pod of another namespace is added": (
        Resource.ASSIGNED_POD, Action.ADD, None, web("other", namespace="other", nodeName="a1"), False,
    ),
    "a counted pod is deleted": (Resource.ASSIGNED_POD, Action.DELETE, PLACED, None, True),
    "another pod is deleted": (Resource.ASSIGNED_POD, Action.DELETE, UNRELATED, None, False),
    "a pod starts to count": (
        Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, UNRELATED, web("unrelated", nodeName="a1"), True,
    ),
    "a pod's other label changes": (
        Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, PLACED,
        web("placed", labels={"app": "web", "x": "y"}, nodeName="a1"), False,
    ),
    "tolerations of an uncounted pod change": (
        Resource.UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION, PENDING,
        web("pending", constraint(), constraint("host"), tolerations=[{"operator": "Exists"}]), False,
    ),
    "a node with the labels is added": (Resource.NODE, Action.ADD, None, A1, True),
    "a node without a label is added": (Resource.NODE, Action.ADD, None, node("x"), False),
    "a node with the labels is deleted": (Resource.NODE, Action.DELETE, A1, None, True),
    "a node without a label is deleted": (Resource.NODE, Action.DELETE, node("x"), None, False),
    "a node gets its label": (Resource.NODE, Action.UPDATE_NODE_LABEL, node("a1"), A1, True),
    "a node loses its label": (Resource.NODE, Action.UPDATE_NODE_LABEL, A1, node("a1"), True),
    "a node changes zones": (Resource.NODE, Action.UPDATE_NODE_LABEL, A1, A2, True),
    "a node's other label changes": (
        Resource.NODE, Action.UPDATE_NODE_LABEL, A1, node("a1", "a", labels={"disk": "ssd"}), False,
    ),
    "a node's taints change": (
        Resource.NODE, Action.UPDATE_NODE_TAINT, A1, node("a1", "a", taints=[{"key": "x", "effect": "NoSchedule"}]), True,
    ),
    "a node's allocatable changes": (Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE, A1, A2, False),
}  # fmt: skip


@pytest.mark.parametrize(("resource", "action", "old", "new", "woken"), WAKES.values(), ids=WAKES)
def test_wakes(resource, action, old, new, woken):
    assert wakes(attached(), PENDING, resource, action, old, new) is woken


def test_wakes_on_its_own_tolerations_when_taints_are_honored():
    careful = constraint(nodeTaintsPolicy="Honor")
    old, new = web("w", careful), web("w", careful, tolerations=[{"operator": "Exists"}])
    assert wakes(attached(), old, Resource.UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION, old, new)


def test_hints_about_default_constraints_read_the_pods_owner():
    listed = TopologySpreadConstraint(topology_key="zone", max_skew=1, when_unsatisfiable="DoNotSchedule")
    args = PodTopologySpreadArgs(defaulting_type="List", default_constraints=(listed,))
    cluster = a_cluster([A1])
    pod, event = web("plain"), (Resource.ASSIGNED_POD, Action.ADD, None, PLACED)
    assert wakes(PodTopologySpread(args), pod, *event), "without a snapshot the hint wakes"
    assert not wakes(attached(cluster.snapshot, args), pod, *event)
    cluster.set_object(Service(metadata=ObjectMeta(name="s", namespace="default"), spec=ServiceSpec(selector={"app": "web"})))
    assert wakes(attached(cluster.snapshot, args), pod, *event)


@pytest.mark.parametrize(("policy", "woken"), [("Honor", True), ("Ignore", False)])
def test_wakes_when_a_node_stops_counting_for_the_pods_selector(policy, woken):
    pod = web("w", constraint(nodeAffinityPolicy=policy), nodeSelector={"disk": "ssd"})
    old, new = node("a1", "a", labels={"disk": "ssd"}), node("a1", "a")
    assert wakes(attached(), pod, Resource.NODE, Action.UPDATE_NODE_LABEL, old, new) is woken


def test_wakes_when_its_own_label_changes_the_counted_pods():
    old, new = (web("w", constraint(matchLabelKeys=["rev"]), labels={"app": "web", "rev": rev}) for rev in "12")
    assert wakes(attached(), old, Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL, old, new)


LABELS = [{}, {"app": "web"}, {"app": "db"}, {"app": "web", "rev": "1"}, {"app": "web", "rev": "2"}]
SELECTORS = [WEB, WEB, {}, {"matchExpressions": [{"key": "rev", "operator": "DoesNotExist"}]}]
node_labels = st.builds(
    lambda zone, disk: {k: v for k, v in (("zone", zone), ("disk", disk)) if v is not None},
    st.sampled_from([None, "a", "b", "c"]), st.sampled_from([None, "ssd"]),
)  # fmt: skip
taints = st.sampled_from([[], [{"key": "gpu", "effect": "NoSchedule"}]])
node_lists = st.lists(st.tuples(node_labels, taints), min_size=1, max_size=4).map(
    lambda all_: [a_node(f"n{i}", {"host": f"n{i}", **labels}, taints=taints) for i, (labels, taints) in enumerate(all_)]
)
policies = st.sampled_from(["Honor", "Ignore"])
waiting_pods = st.builds(
    lambda hard, labels, selector: a_pod("new", labels, topologySpreadConstraints=hard, nodeSelector=selector),
    st.lists(
        st.builds(
            lambda key, selector, least, affinity, taints, keys: constraint(
                key, 1, selector, minDomains=least, nodeAffinityPolicy=affinity, nodeTaintsPolicy=taints, matchLabelKeys=keys
            ),
            st.sampled_from(["zone", "zone", "host"]), st.sampled_from(SELECTORS), st.sampled_from([1, 1, 3]),
            policies, policies, st.sampled_from([[], ["rev"]]),
        ),
        min_size=1, max_size=2,
    ),
    st.sampled_from(LABELS), st.sampled_from([{}, {"disk": "ssd"}]),
)  # fmt: skip
placed_pods = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(LABELS), st.sampled_from(["default", "default", "other"]), st.booleans()),
    max_size=8,
)


def settle(nodes, where):
    """Build pods on nodes, by node name, from generated data."""
    placed = {}
    for i, (number, labels, namespace, leaving) in enumerate(where):
        metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}
        name = nodes[number % len(nodes)].name
        pod = a_pod(f"p{i}", labels, namespace=namespace, metadata=metadata, nodeName=name)
        placed.setdefault(name, []).append(pod)
    return placed


@st.composite
def events(draw, nodes, placed):
    """Generate (resource, action, old, new) for an existing object of the cluster or a new one."""
    pods = [pod for on_node in placed.values() for pod in on_node]
    kind = draw(st.sampled_from(["pod comes", "pod goes", "pod changes", "node comes", "node goes", "relabelled", "tainted"]))
    if kind == "pod comes":
        pod = a_pod("comer", draw(st.sampled_from(LABELS)), nodeName=draw(st.sampled_from(nodes)).name)
        return Resource.ASSIGNED_POD, Action.ADD, None, pod
    if kind == "node comes":
        labels = draw(node_labels)
        return Resource.NODE, Action.ADD, None, a_node("comer", {"host": "comer", **labels}, taints=draw(taints))
    if kind.startswith("pod"):
        assume(pods)
        old = draw(st.sampled_from(pods))
        if kind == "pod goes":
            return Resource.ASSIGNED_POD, Action.DELETE, old, None
        metadata = {"deletionTimestamp": old.metadata.deletion_timestamp} if old.terminating else {}
        labels = draw(st.sampled_from(LABELS))
        new = a_pod(old.name, labels, namespace=old.namespace, metadata=metadata, nodeName=old.spec.node_name)
        return Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, old, new
    old = draw(st.sampled_from(nodes))
    if kind == "node goes":
        return Resource.NODE, Action.DELETE, old, None
    if kind == "tainted":
        return Resource.NODE, Action.UPDATE_NODE_TAINT, old, a_node(old.name, old.labels, taints=draw(taints))
    changed = a_node(
        old.name, {"host": old.name, **draw(node_labels)}, taints=[{"key": t.key, "effect": t.effect} for t in old.spec.taints]
    )
    return Resource.NODE, Action.UPDATE_NODE_LABEL, old, changed


def happen(cluster, event):
    resource, _, old, new = event
    match resource, new:
        case Resource.NODE, None:
            cluster.remove_node(old.name)
        case Resource.NODE, _:
            cluster.set_node(new)
        case _, None:
            cluster.remove_pod(old.uid)
        case _:
            cluster.place(new, new.spec.node_name)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(node_lists, placed_pods, waiting_pods, st.data())
def test_every_change_that_lets_the_pod_fit_wakes_it(nodes, where, pod, data):
    placed = settle(nodes, where)
    cluster = a_cluster(nodes, placed)
    plugin = attached(cluster.snapshot)
    before = set(refusals(plugin, pod, cluster.snapshot))
    assume(before)
    event = data.draw(events(nodes, placed))
    open_before = set(cluster.table.row_of) - before
    happen(cluster, event)
    opened = set(cluster.table.row_of) - set(refusals(plugin, pod, cluster.snapshot)) - open_before
    if opened:
        assert wakes(plugin, pod, *event)
