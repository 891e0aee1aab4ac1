"""Node selectors over columns must say what one-node matching says, for any view of the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from moorage.api.selectors import compile_node_selector, compile_node_term
from moorage.state.node_matching import (
    required_node_affinity,
    required_node_affinity_rows,
    rows_labelled,
    rows_matching,
    rows_matching_term,
)
from moorage.testing.builders import a_cluster, a_node, a_pod

NODES = [
    a_node("a", {"disk": "ssd", "cores": "8"}),
    a_node("b", {"disk": "hdd", "cores": "16"}),
    a_node("c", {"cores": "many"}),
    a_node("d"),
]

# key, operator, values → the nodes it takes
EXPRESSIONS = {
    "one value": (("disk", "In", ["ssd"]), "a"),
    "several values": (("disk", "In", ["hdd", "ssd", "tape"]), "ab"),
    "a value no node has": (("disk", "In", ["tape"]), ""),
    "a key no node has": (("rack", "In", ["r1"]), ""),
    "absent is not in": (("disk", "NotIn", ["ssd"]), "bcd"),
    "not in a value no node has": (("rack", "NotIn", ["r1"]), "abcd"),
    "exists": (("disk", "Exists", []), "ab"),
    "does not exist": (("disk", "DoesNotExist", []), "cd"),
    "greater": (("cores", "Gt", ["8"]), "b"),
    "less": (("cores", "Lt", ["16"]), "a"),
}
FIELDS = {
    "by name": (("metadata.name", "In", ["b"]), "b"),
    "not by name": (("metadata.name", "NotIn", ["b"]), "acd"),
    "a name no node has": (("metadata.name", "In", ["z"]), ""),
    "an unknown field is empty": (("spec.unschedulable", "In", ["true"]), ""),
    "an unknown field is not in": (("spec.unschedulable", "NotIn", ["true"]), "abcd"),
}
BROKEN = {
    "unknown operator": ("disk", "Near", ["ssd"]),
    "no values": ("disk", "In", []),
    "not a number": ("cores", "Gt", ["many"]),
    "not a label's value": ("cores", "Gt", ["-1"]),
    "not a key": ("-disk", "Exists", []),
}


FIELD_TERM = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["b"]}]}


def asked(key, operator, values):
    return NodeSelectorRequirement(key=key, operator=operator, values=tuple(values))


def taken(mask):
    return "".join(node.name for node, hit in zip(NODES, mask, strict=True) if hit)


def view():
    return a_cluster(NODES).snapshot.nodes


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_a_match_expression_selects(expression, expected):
    term = compile_node_term(NodeSelectorTerm(match_expressions=(asked(*expression),)))
    assert taken(rows_matching_term(term, view())) == expected


@pytest.mark.parametrize(("field", "expected"), FIELDS.values(), ids=FIELDS)
def test_a_match_field_selects(field, expected):
    term = compile_node_term(NodeSelectorTerm(match_fields=(asked(*field),)))
    assert taken(rows_matching_term(term, view())) == expected


@pytest.mark.parametrize("expression", BROKEN.values(), ids=BROKEN)
def test_an_unparsable_term_selects_nothing_and_affects_no_other(expression):
    broken = NodeSelectorTerm(match_expressions=(asked(*expression),))
    sound = NodeSelectorTerm(match_expressions=(asked("disk", "In", ["ssd"]),))
    assert taken(rows_matching(compile_node_selector(NodeSelector(node_selector_terms=(broken,))), view())) == ""
    assert taken(rows_matching(compile_node_selector(NodeSelector(node_selector_terms=(broken, sound))), view())) == "a"


def test_no_terms_select_nothing_and_no_labels_select_everything():
    assert taken(rows_matching(compile_node_selector(NodeSelector()), view())) == ""
    assert taken(rows_labelled({}, view())) == "abcd"


def test_all_labels_must_match():
    assert taken(rows_labelled({"disk": "ssd", "cores": "8"}, view())) == "a"
    assert taken(rows_labelled({"disk": "ssd", "cores": "16"}, view())) == ""


def test_values_no_longer_in_the_cluster_select_nothing():
    cluster = a_cluster(NODES)
    cluster.snapshot.nodes.label("disk")
    cluster.set_node(a_node("a", {"disk": "nvme"}))
    assert taken(rows_labelled({"disk": "ssd"}, cluster.snapshot.nodes)) == ""
    assert taken(rows_labelled({"disk": "nvme"}, cluster.snapshot.nodes)) == "a"


def test_required_affinity_needs_the_node_selector_too():
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [FIELD_TERM]}}
    pod = a_pod(nodeSelector={"disk": "ssd"}, affinity={"nodeAffinity": affinity})
    assert taken(required_node_affinity_rows(pod, view())) == "a"
    assert taken(required_node_affinity_rows(a_pod(), view())) == "abcd"


def test_a_parse_error_is_reported_only_if_no_term_matches():
    broken = {"matchExpressions": [{"key": "disk", "operator": "Near"}]}
    only_b = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [broken, only_b]}}
    required = required_node_affinity(a_pod(affinity={"nodeAffinity": affinity}))
    assert required.error(NODES[1]) is None
    assert required.error(NODES[0]) == (
        'nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near": supported values: '
        '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    )
    assert required_node_affinity(a_pod(nodeSelector={"disk": "tape"})).error(NODES[0]) is None


keys = st.sampled_from(["k0", "k1", "k2"])
values = st.sampled_from(["1", "2", "3", "x"])
expressions = st.builds(
    asked,
    keys,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
    st.lists(values, max_size=2),
)
fields = st.builds(asked, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), st.lists(values, min_size=1, max_size=1))
terms = st.builds(
    lambda e, f: NodeSelectorTerm(match_expressions=tuple(e), match_fields=tuple(f)),
    st.lists(expressions, max_size=3),
    st.lists(fields, max_size=1),
)
selectors = st.lists(terms, max_size=3).map(lambda t: NodeSelector(node_selector_terms=tuple(t)))
node_lists = st.dictionaries(values, st.dictionaries(keys, values), max_size=4)


def plainly(selector: NodeSelector, node: Node) -> bool:
    """Judge as the API reference words it: ORed terms of ANDed requirements, empty and malformed terms take nothing."""
    return any(term_holds(term, node) for term in selector.node_selector_terms)


def term_holds(term, node):
    every = [*term.match_expressions, *term.match_fields]
    counts = {"In": lambda n: n > 0, "NotIn": lambda n: n > 0, "Gt": lambda n: n == 1, "Lt": lambda n: n == 1}
    for one in every:
        if one.operator == "Near" or not counts.get(one.operator, lambda n: n == 0)(len(one.values)):
            return False
        if one.operator in {"Gt", "Lt"} and one.values[0] == "x":
            return False
    return bool(every) and all(holds(e, {**node.labels, "metadata.name": node.name}) for e in every)


def holds(one, facts):
    value = facts.get(one.key)
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or value == "x":
        return False
    return int(value) > int(one.values[0]) if one.operator == "Gt" else int(value) < int(one.values[0])


@pytest.mark.slow
@settings(max_examples=75)
@given(selectors, node_lists, st.data())
def test_columns_agree_with_matching_each_node(selector, labels_of, data):
    nodes = [a_node(name, labels) for name, labels in labels_of.items()]
    whole = a_cluster(nodes).snapshot.nodes
    matcher = compile_node_selector(selector)
    expected = np.array([plainly(selector, node) for node in nodes], dtype=bool)
    assert rows_matching(matcher, whole).tolist() == expected.tolist()
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes))), dtype=bool)
    assert rows_matching(matcher, whole.only(keep)).tolist() == expected[keep].tolist()
