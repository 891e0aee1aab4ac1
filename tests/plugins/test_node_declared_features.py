"""Test which kubelet features a pod's spec requires, and which nodes declare them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import SKIP, Code, Status
from moorage.plugins.node_declared_features import NodeDeclaredFeatures, needed_features
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals, wakes

NO = Status(Code.UNRESOLVABLE, "NodeDeclaredFeatures", ("node(s) didn't match Pod's required features",))
RESTART = "RestartAllContainersOnContainerExits"
USERNS = "UserNamespacesHostNetworkSupport"
RESTARTS_ALL = [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]

# spec → features needed
NEEDS = {
    "no feature needed": ({}, set()),
    "a container with RestartAllContainers": ({"containers": RESTARTS_ALL}, {RESTART}),
    "an init container with RestartAllContainers": ({"initContainers": RESTARTS_ALL}, {RESTART}),
    "another restart action": ({"containers": [{"restartPolicyRules": [{"action": "Restart"}]}]}, set()),
    "a user namespace on the host's network": ({"hostNetwork": True, "hostUsers": False}, {USERNS}),
    "the host's network and users": ({"hostNetwork": True, "hostUsers": True}, set()),
    "the host's network, hostUsers unset": ({"hostNetwork": True}, set()),
    "a user namespace alone": ({"hostUsers": False}, set()),
    "both": ({"containers": RESTARTS_ALL, "hostNetwork": True, "hostUsers": False}, {RESTART, USERNS}),
}
SPECS = [spec for spec, _ in NEEDS.values()]


@pytest.mark.parametrize(("spec", "features"), NEEDS.values(), ids=NEEDS)
def test_required_features(spec, features):
    assert needed_features(a_pod(**spec).spec) == features


def test_rejects_nodes_that_lack_a_feature():
    nodes = [
        a_node("none"),
        a_node("other", declared_features=["GuaranteedQoSPodCPUResize"]),
        a_node("one", declared_features=[RESTART]),
        a_node("both", declared_features=[RESTART, USERNS]),
    ]
    snapshot = a_cluster(nodes).snapshot
    needs_both = a_pod(containers=RESTARTS_ALL, hostNetwork=True, hostUsers=False)
    assert refusals(NodeDeclaredFeatures(), needs_both, snapshot) == {"none": NO, "other": NO, "one": NO}
    assert refusals(NodeDeclaredFeatures(), a_pod(containers=RESTARTS_ALL), snapshot) == {"none": NO, "other": NO}
    assert NodeDeclaredFeatures().pre_filter(a_pod(), snapshot) is SKIP


def test_passes_every_node_when_the_gate_is_off():
    plugin = NodeDeclaredFeatures()
    plugin.attach(SimpleNamespace(gates=FeatureGates({"NodeDeclaredFeatures": False})))
    pod = a_pod(containers=RESTARTS_ALL)
    assert plugin.pre_filter(pod, a_cluster([a_node("n")]).snapshot) is SKIP
    assert list(plugin.wakes_on()) == []


feature_lists = st.lists(st.sampled_from([RESTART, USERNS, "Unheard"]), unique=True).map(sorted)


@pytest.mark.slow
@given(st.sampled_from(SPECS), st.lists(feature_lists, max_size=5), st.data())
def test_agrees_with_a_reference_implementation(spec, declared, data):
    names = [f"n{i}" for i in range(len(declared))]
    nodes = a_cluster(a_node(n, declared_features=d) for n, d in zip(names, declared, strict=True)).snapshot.nodes
    part = {name for name in names if data.draw(st.booleans())}
    needed = next(features for known, features in NEEDS.values() if known is spec)
    expected = {n: NO for n, d in zip(names, declared, strict=True) if n in part and not needed <= set(d)}
    assert refusals(NodeDeclaredFeatures(), a_pod(**spec), nodes.only(nodes.named(part))) == expected


@given(st.sampled_from(SPECS), feature_lists, feature_lists)
def test_every_change_that_makes_a_node_fit_wakes(spec, before, after):
    pod, plugin = a_pod(**spec), NodeDeclaredFeatures()
    old, new = a_node("n", declared_features=before), a_node("n", declared_features=after)
    fits_now = not refusals(plugin, pod, a_cluster([new]).snapshot)
    if fits_now and refusals(plugin, pod, a_cluster([old]).snapshot):
        assert wakes(plugin, pod, Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE, old, new)
    assert wakes(plugin, pod, Resource.NODE, Action.ADD, None, new)
    assert not wakes(plugin, pod, Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE, old, old)


def test_wakes_when_the_pods_own_requirements_change():
    needy, plain, other = a_pod(containers=RESTARTS_ALL), a_pod(), a_pod("other")
    change = (Resource.POD, Action.UPDATE_POD_SCALE_DOWN)
    assert wakes(NodeDeclaredFeatures(), needy, *change, needy, plain)
    assert not wakes(NodeDeclaredFeatures(), needy, *change, needy, needy)
    assert not wakes(NodeDeclaredFeatures(), needy, *change, a_pod("other", containers=RESTARTS_ALL), other)
