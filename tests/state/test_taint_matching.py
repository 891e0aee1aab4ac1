"""Taint sets judged over columns must say what tolerations say of each node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.state.taint_matching import DO_NOT_SCHEDULE, count_untolerated, rows_tolerated
from moorage.testing.builders import a_cluster, a_node, a_pod

NODES = {
    "free": [],
    "gpu": ["gpu=yes:NoSchedule"],
    "soft": ["old:PreferNoSchedule", "slow:PreferNoSchedule"],
    "leaving": ["gone:NoExecute", "gpu=yes:NoSchedule"],
    "ranked": ["rank=7:NoSchedule"],
}

# tolerations; effects looked at; are Lt and Gt read?; the nodes that are tolerated
CASES = {
    "no tolerations": ([], DO_NOT_SCHEDULE, False, "free soft"),
    "no tolerations, any effect": ([], None, False, "free"),
    "by value": (["gpu=yes:NoSchedule"], DO_NOT_SCHEDULE, False, "free gpu soft"),
    "another value": (["gpu=no:NoSchedule"], DO_NOT_SCHEDULE, False, "free soft"),
    "another effect": (["gpu=yes:NoExecute"], DO_NOT_SCHEDULE, False, "free soft"),
    "any effect": (["gpu=yes:", "gone Exists:"], DO_NOT_SCHEDULE, False, "free gpu soft leaving"),
    "everything": ([" Exists:"], None, False, "free gpu soft leaving ranked"),
    "a number above, not read": (["rank Gt5:"], DO_NOT_SCHEDULE, False, "free soft"),
    "a number above": (["rank Gt5:"], DO_NOT_SCHEDULE, True, "free soft ranked"),
    "a number below": (["rank Lt5:"], DO_NOT_SCHEDULE, True, "free soft"),
}


def taint(text):
    mark, effect = text.split(":")
    key, _, value = mark.partition("=")
    return {"key": key, "value": value, "effect": effect}


def toleration(text):
    """``key=value:effect`` or ``key OPvalue:effect``."""
    mark, effect = text.split(":")
    if " " not in mark:
        return taint(text)
    key, rest = mark.split(" ")
    operator = next(o for o in ("Exists", "Gt", "Lt") if rest.startswith(o))
    return {"key": key, "operator": operator, "value": rest.removeprefix(operator), "effect": effect}


def view_of(taints_of):
    return a_cluster([a_node(name, taints=[taint(t) for t in taints]) for name, taints in taints_of.items()]).snapshot.nodes


@pytest.mark.parametrize(("tolerations", "effects", "numeric", "expected"), CASES.values(), ids=CASES)
def test_tolerated(tolerations, effects, numeric, expected):
    nodes = view_of(NODES)
    mask = rows_tolerated(a_pod(tolerations=[toleration(t) for t in tolerations]), nodes, effects, numeric)
    assert [name for name, hit in zip(nodes.names(), mask, strict=True) if hit] == expected.split()


def test_untolerated_taints_are_counted():
    nodes = view_of(NODES)
    assert count_untolerated((), nodes, "PreferNoSchedule", False).tolist() == [0, 0, 2, 0, 0]
    old = a_pod(tolerations=[toleration("old Exists:")]).spec.tolerations
    assert count_untolerated(old, nodes, "PreferNoSchedule", False).tolist() == [0, 0, 1, 0, 0]


effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.builds("{}={}:{}".format, st.sampled_from("ab"), st.sampled_from(["", "1"]), effects)
tolerations = st.builds("{}={}:{}".format, st.sampled_from("ab"), st.sampled_from(["", "1"]), st.one_of(st.just(""), effects))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.lists(taints, max_size=3, unique=True), max_size=6), st.lists(tolerations, max_size=3), st.data())
def test_columns_agree_with_matching_each_node(taint_lists, tolerated, data):
    def covered(text):
        mark, effect = text.split(":")
        return any(t in (f"{mark}:", f"{mark}:{effect}") for t in tolerated)

    nodes = view_of({f"n{i}": held for i, held in enumerate(taint_lists)})
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes))), dtype=bool)
    pod = a_pod(tolerations=[toleration(t) for t in tolerated])
    expected = [all(covered(t) for t in held if not t.endswith(":PreferNoSchedule")) for held in taint_lists]
    counts = [sum(not covered(t) for t in held if t.endswith(":PreferNoSchedule")) for held in taint_lists]
    assert rows_tolerated(pod, nodes, DO_NOT_SCHEDULE, False).tolist() == expected
    some = nodes.only(keep)
    assert rows_tolerated(pod, some, DO_NOT_SCHEDULE, False).tolist() == np.array(expected, dtype=bool)[keep].tolist()
    assert count_untolerated(pod.spec.tolerations, some, "PreferNoSchedule", False).tolist() == (
        np.array(counts, dtype=np.int64)[keep].tolist()
    )
