"""Test that hard taints reject pods and that soft taints lower a node's score."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.taint_toleration import TaintToleration
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores, refusals, wakes

NO = Status(Code.UNRESOLVABLE, "TaintToleration", ("node(s) had untolerated taint(s)",))


def taint(text):
    """``key=value:effect``"""
    mark, effect = text.split(":")
    key, _, value = mark.partition("=")
    return {"key": key, "value": value, "effect": effect}


def tainted(name, *taints):
    return a_node(name, taints=[taint(text) for text in taints])


def tolerant(*tolerations, name="pod"):
    """Parse ``key=value:effect``, ``key:effect`` with a star for Exists, or a dict."""
    return a_pod(name, tolerations=[toleration(t) for t in tolerations])


def toleration(text):
    if isinstance(text, dict):
        return text
    if "*" in text:
        return {**taint(text.replace("*", "")), "operator": "Exists"}
    return taint(text)


NODES = [
    tainted("free"),
    tainted("gpu", "gpu=a100:NoSchedule"),
    tainted("draining", "drain:NoExecute"),
    tainted("both", "gpu=a100:NoSchedule", "drain:NoExecute"),
    tainted("spot", "spot:PreferNoSchedule"),
    tainted("old", "old=1:PreferNoSchedule", "old=2:PreferNoSchedule", "gpu=a100:NoSchedule"),
]

# tolerations → the nodes rejected
REFUSED = {
    "none": ([], "gpu draining both old"),
    "by value": (["gpu=a100:NoSchedule"], "draining both"),
    "by key": (["gpu*:NoSchedule"], "draining both"),
    "another value": (["gpu=h100:NoSchedule"], "gpu draining both old"),
    "both": (["gpu*:", "drain*:NoExecute"], ""),
    "everything": (["*:"], ""),
    "every taint of one effect": (["*:NoExecute"], "gpu both old"),
}

# tolerations → scores in the order of NODES
SCORES = {
    "none": ([], [100, 100, 100, 100, 50, 0]),
    "a soft taint": (["spot*:PreferNoSchedule"], [100, 100, 100, 100, 100, 0]),
    "one of two": (["old=1:"], [100, 100, 100, 100, 0, 0]),
    "a hard taint of the same key does not count": (["old*:NoSchedule"], [100, 100, 100, 100, 50, 0]),
    "all": (["*:"], [100] * 6),
}


@pytest.mark.parametrize(("tolerations", "refused"), REFUSED.values(), ids=REFUSED)
def test_rejects(tolerations, refused):
    assert refusals(TaintToleration(), tolerant(*tolerations), a_cluster(NODES).snapshot) == dict.fromkeys(refused.split(), NO)


@pytest.mark.parametrize(("tolerations", "scores"), SCORES.values(), ids=SCORES)
def test_scores(tolerations, scores):
    found = final_scores(TaintToleration(), tolerant(*tolerations), a_cluster(NODES).snapshot)
    assert list(found.values()) == scores


@pytest.mark.parametrize(("gate", "refused"), [(False, {"n": NO}), (True, {})], ids=["gate off", "gate on"])
def test_numbers_are_compared_when_the_gate_is_on(gate, refused):
    plugin = TaintToleration()
    plugin.attach(SimpleNamespace(gates=FeatureGates({"TaintTolerationComparisonOperators": gate})))
    pod = tolerant({"key": "sla", "operator": "Gt", "value": "950"})
    assert refusals(plugin, pod, a_cluster([tainted("n", "sla=990:NoSchedule")]).snapshot) == refused
    soft = a_cluster([tainted("n", "sla=990:PreferNoSchedule"), tainted("m", "x:PreferNoSchedule", "y:PreferNoSchedule")])
    assert final_scores(plugin, pod, soft.snapshot) == {"n": 100 if gate else 50, "m": 0}


effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.builds("{}={}:{}".format, st.sampled_from("ab"), st.sampled_from(["", "1"]), effects)
taint_lists = st.lists(taints, max_size=3, unique=True)
tolerations = st.builds("{}={}:{}".format, st.sampled_from("ab"), st.sampled_from(["", "1"]), st.one_of(st.just(""), effects))
toleration_lists = st.lists(tolerations, max_size=3)


def open_taints(held, tolerated):
    """Generate taints that no toleration matches."""
    return [t for t in held if t not in tolerated and t.split(":")[0] + ":" not in tolerated]


def is_rejected(held, tolerated):
    return any(not t.endswith(":PreferNoSchedule") for t in open_taints(held, tolerated))


@settings(max_examples=30)
@given(st.lists(taint_lists, min_size=1, max_size=5), toleration_lists, st.data())
def test_agrees_with_a_reference_implementation(held, tolerated, data):
    names = [f"n{i}" for i in range(len(held))]
    nodes = a_cluster([tainted(name, *h) for name, h in zip(names, held, strict=True)]).snapshot.nodes
    part = [name for name in names if data.draw(st.booleans())] or names
    taints_of = {name: h for name, h in zip(names, held, strict=True) if name in part}
    view = nodes.only(nodes.named(part))
    pod = tolerant(*tolerated)
    assert refusals(TaintToleration(), pod, view) == {n: NO for n, h in taints_of.items() if is_rejected(h, tolerated)}
    soft = {n: sum(t.endswith(":PreferNoSchedule") for t in open_taints(h, tolerated)) for n, h in taints_of.items()}
    most = max(soft.values())
    assert final_scores(TaintToleration(), pod, view) == {
        n: 100 - (100 * count // most if most else 0) for n, count in soft.items()
    }


@settings(max_examples=30)
@given(taint_lists, taint_lists, toleration_lists)
def test_wakes_exactly_when_a_node_becomes_tolerable(before, after, tolerated):
    pod = tolerant(*tolerated)
    old, new = tainted("n", *before), tainted("n", *after)
    opened = not is_rejected(after, tolerated)
    plugin = TaintToleration()
    assert wakes(plugin, pod, Resource.NODE, Action.ADD, None, new) == opened
    assert wakes(plugin, pod, Resource.NODE, Action.UPDATE_NODE_TAINT, old, new) == (opened and is_rejected(before, tolerated))


def test_wakes_on_its_own_tolerations_only():
    pod, other = tolerant(), tolerant(name="other")
    assert wakes(TaintToleration(), pod, Resource.POD, Action.UPDATE_POD_TOLERATION, pod, tolerant("*:"))
    assert not wakes(TaintToleration(), pod, Resource.POD, Action.UPDATE_POD_TOLERATION, other, tolerant("*:", name="other"))
