"""Test that cordoned nodes fit only pods that tolerate it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.node_unschedulable import NodeUnschedulable
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals, wakes

NO = Status(Code.UNRESOLVABLE, "NodeUnschedulable", ("node(s) were unschedulable",))
KEY = "node.kubernetes.io/unschedulable"

# the pod's one toleration → does it fit cordoned nodes?
TOLERATIONS = {
    "exactly": ({"key": KEY, "operator": "Exists", "effect": "NoSchedule"}, True),
    "any effect": ({"key": KEY, "operator": "Exists"}, True),
    "any taint": ({"operator": "Exists"}, True),
    "the empty value": ({"key": KEY, "effect": "NoSchedule"}, True),
    "another value": ({"key": KEY, "value": "true", "effect": "NoSchedule"}, False),
    "another effect": ({"key": KEY, "operator": "Exists", "effect": "NoExecute"}, False),
    "another taint": ({"key": "gpu", "operator": "Exists"}, False),
}


@pytest.mark.parametrize(("toleration", "opens"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_cordoned_nodes_are_rejected(toleration, opens):
    nodes = a_cluster([a_node("open"), a_node("cordoned", unschedulable=True)]).snapshot
    pod = a_pod(tolerations=[toleration])
    assert refusals(NodeUnschedulable(), pod, nodes) == ({} if opens else {"cordoned": NO})
    assert wakes(NodeUnschedulable(), a_pod(), Resource.POD, Action.UPDATE_POD_TOLERATION, a_pod(), pod) is opens


def test_a_numeric_toleration_never_matches_the_valueless_taint():
    plugin = NodeUnschedulable()
    plugin.attach(SimpleNamespace(gates=FeatureGates({"TaintTolerationComparisonOperators": True})))
    pod = a_pod(tolerations=[{"key": KEY, "operator": "Lt", "value": "5"}])
    assert refusals(plugin, pod, a_cluster([a_node("n", unschedulable=True)]).snapshot) == {"n": NO}


@given(st.lists(st.booleans(), max_size=6), st.booleans(), st.data())
def test_agrees_with_a_reference_implementation(cordoned, tolerates, data):
    pod = a_pod(tolerations=[{"operator": "Exists"}] if tolerates else [])
    nodes = a_cluster([a_node(f"n{i}", unschedulable=shut) for i, shut in enumerate(cordoned)]).snapshot.nodes
    part = {f"n{i}" for i in range(len(cordoned)) if data.draw(st.booleans())}
    expected = {f"n{i}": NO for i, shut in enumerate(cordoned) if shut and not tolerates and f"n{i}" in part}
    assert refusals(NodeUnschedulable(), pod, nodes.only(nodes.named(part))) == expected


@given(st.booleans(), st.booleans())
def test_wakes_exactly_when_a_node_is_uncordoned_or_tolerated(was_shut, is_shut):
    old, new = a_node("n", unschedulable=was_shut), a_node("n", unschedulable=is_shut)
    plugin = NodeUnschedulable()
    assert wakes(plugin, a_pod(), Resource.NODE, Action.UPDATE_NODE_TAINT, old, new) == (was_shut and not is_shut)
    assert wakes(plugin, a_pod(), Resource.NODE, Action.ADD, None, new) == (not is_shut)


def test_another_pods_tolerations_wake_no_pod():
    tolerant = a_pod("other", tolerations=[{"operator": "Exists"}])
    assert not wakes(NodeUnschedulable(), a_pod(), Resource.POD, Action.UPDATE_POD_TOLERATION, a_pod("other"), tolerant)
