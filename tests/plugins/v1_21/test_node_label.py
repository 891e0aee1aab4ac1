"""Test NodeLabel: labels that nodes must have, must not have, should have, and should not have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.verdicts import Code, Status
from moorage.plugins.v1_21.node_label import NodeLabel, NodeLabelArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals

NO = Status(Code.UNRESOLVABLE, "NodeLabel", ("node(s) didn't have the requested labels",))
KEYS = st.lists(st.sampled_from("abcd"), unique=True).map(tuple)


def labelled(*sets):
    return a_cluster([a_node(f"n{at}", dict.fromkeys(keys, "v")) for at, keys in enumerate(sets)]).snapshot


SCORES = {  # present, absent, the node's labels, score
    "three of four": ("abc", "d", "ab", 75),
    "all": ("ab", "d", "ab", 100),
    "none": ("ab", "d", "d", 0),
    "one of three, truncated": ("abc", "", "a", 33),
    "two of three, truncated": ("abc", "", "ab", 66),
    "no preference": ("", "", "a", 0),
}


@pytest.mark.parametrize(("present", "absent", "labels", "score"), SCORES.values(), ids=SCORES)
def test_scores(present, absent, labels, score):
    rule = NodeLabel(NodeLabelArgs(present_labels_preference=tuple(present), absent_labels_preference=tuple(absent)))
    assert final_scores(rule, a_pod(), labelled(labels)) == {"n0": score}
    assert refusals(rule, a_pod(), labelled(labels)) == {}


@settings(max_examples=30, deadline=None)
@given(KEYS, KEYS, KEYS, KEYS, st.lists(KEYS, min_size=1, max_size=5))
def test_agrees_with_a_reference_implementation(present, absent, wished, unwished, nodes):
    rule = NodeLabel(NodeLabelArgs(present, absent, wished, unwished))
    expected = {f"n{at}": NO for at, keys in enumerate(nodes) if not set(present) <= set(keys) or set(absent) & set(keys)}
    assert refusals(rule, a_pod(), labelled(*nodes)) == expected
    wishes = len(wished) + len(unwished)
    met = [sum(key in keys for key in wished) + sum(key not in keys for key in unwished) for keys in nodes]
    scores = {f"n{at}": 100 * count // wishes if wishes else 0 for at, count in enumerate(met)}
    assert final_scores(rule, a_pod(), labelled(*nodes)) == scores


def test_a_label_cannot_be_both_present_and_absent():
    faults = NodeLabelArgs(("a", "b"), ("b",), ("c",), ("d", "c")).faults("args", FeatureGates(release="1.21"))
    assert [(fault.field, fault.value) for fault in faults] == [
        ("args.presentLabels[1]", "b"),
        ("args.presentLabelsPreference[0]", "c"),
    ]


def test_satisfies_the_plugin_contract():
    check_plugin(NodeLabel(NodeLabelArgs(("disk",), (), ("disk",), ("gpu",))))
