"""Test that a rejection in 1.21 names the node's first untolerated taint."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.taint_toleration import TaintTolerationV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals


def taint(text):
    """``key=value:effect``"""
    mark, _, effect = text.partition(":")
    key, _, value = mark.partition("=")
    return {"key": key, "value": value, "effect": effect}


def no(key, value=""):
    return Status(
        Code.UNRESOLVABLE, "TaintToleration", (f"node(s) had taint {{{key}: {value}}}, that the pod didn't tolerate",)
    )


def tainted(*taints, name="n"):
    return a_node(name, taints=[taint(text) for text in taints])


CASES = {  # taints, tolerations, the taint that the message names
    "no taint": ([], [], None),
    "a value": (["gpu=a100:NoSchedule"], [], ("gpu", "a100")),
    "no value": (["drain:NoExecute"], [], ("drain", "")),
    "the first": (["gpu=a100:NoSchedule", "drain:NoExecute"], [], ("gpu", "a100")),
    "the first untolerated": (
        ["gpu=a100:NoSchedule", "drain:NoExecute"], [{"key": "gpu", "operator": "Exists"}], ("drain", ""),
    ),
    "tolerated by value": (["gpu=a100:NoSchedule"], [{"key": "gpu", "value": "a100"}], None),
    "another value": (["gpu=a100:NoSchedule"], [{"key": "gpu", "value": "h100"}], ("gpu", "a100")),
    "another effect": (["gpu:NoExecute"], [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], ("gpu", "")),
    "every taint is tolerated": (["gpu=a100:NoSchedule", "drain:NoExecute"], [{"operator": "Exists"}], None),
    "a soft taint rejects no pod": (["spot:PreferNoSchedule"], [], None),
    "a soft taint before a hard one": (["spot:PreferNoSchedule", "gpu:NoSchedule"], [], ("gpu", "")),
}  # fmt: skip


@pytest.mark.parametrize(("taints", "tolerations", "named"), CASES.values(), ids=CASES)
def test_rejects_with_the_taint(taints, tolerations, named):
    found = refusals(TaintTolerationV121(), a_pod(tolerations=tolerations), a_cluster([tainted(*taints)]).snapshot)
    assert found == ({"n": no(*named)} if named else {})
    snapshot = a_cluster([tainted(*taints)]).snapshot
    held = TaintTolerationV121().filter_node(a_pod(tolerations=tolerations), snapshot.nodes.first)
    assert (None if held is None else held.reasons) == (no(*named).reasons if named else None)


def test_every_node_has_its_own_reason():
    nodes = [tainted("a=1:NoSchedule", name="x"), tainted("a=2:NoSchedule", name="y"), tainted("a=1:NoSchedule", name="z")]
    found = refusals(TaintTolerationV121(), a_pod(), a_cluster(nodes).snapshot)
    assert found == {"x": no("a", "1"), "y": no("a", "2"), "z": no("a", "1")}


SCORES = {  # soft taints of three nodes, tolerations, scores
    "fewer taints score higher": ([0, 1, 2], [], [100, 50, 0]),
    "cut": ([1, 2, 3], [], [67, 34, 0]),
    "equal numbers": ([1, 1, 1], [], [0, 0, 0]),
    "none": ([0, 0, 0], [], [100, 100, 100]),
    "tolerated": ([0, 1, 2], [{"operator": "Exists", "effect": "PreferNoSchedule"}], [100, 100, 100]),
    "tolerated without effect": ([0, 1, 2], [{"operator": "Exists"}], [100, 100, 100]),
}


@pytest.mark.parametrize(("counts", "tolerations", "scores"), SCORES.values(), ids=SCORES)
def test_scores(counts, tolerations, scores):
    nodes = [tainted(*(f"t{i}:PreferNoSchedule" for i in range(count)), name=f"n{at}") for at, count in enumerate(counts)]
    found = final_scores(TaintTolerationV121(), a_pod(tolerations=tolerations), a_cluster(nodes).snapshot)
    assert list(found.values()) == scores


TAINTS = st.lists(st.sampled_from(["a=1:NoSchedule", "a=2:NoExecute", "b:NoSchedule", "c:PreferNoSchedule"]), max_size=4)


@settings(max_examples=30, deadline=None)
@given(st.lists(TAINTS, min_size=1, max_size=5), st.sets(st.sampled_from("abc")))
def test_agrees_with_a_reference_implementation(nodes, tolerated):
    cluster = a_cluster([tainted(*taints, name=f"n{at}") for at, taints in enumerate(nodes)])
    pod = a_pod(tolerations=[{"key": key, "operator": "Exists"} for key in sorted(tolerated)])
    hard = [[taint(t) for t in taints if "Prefer" not in t and t[0] not in tolerated] for taints in nodes]
    expected = {f"n{at}": no(left[0]["key"], left[0]["value"]) for at, left in enumerate(hard) if left}
    assert refusals(TaintTolerationV121(), pod, cluster.snapshot) == expected
    soft = [sum("Prefer" in t and t[0] not in tolerated for t in taints) for taints in nodes]
    scores = [100 - 100 * count // max(soft) if max(soft) else 100 for count in soft]
    assert list(final_scores(TaintTolerationV121(), pod, cluster.snapshot).values()) == scores


def test_satisfies_the_plugin_contract():
    check_plugin(TaintTolerationV121())
