from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from moorage.api.requirements import Requirement
from moorage.api.selectors import compile_node_selector, compile_node_term


def requirement(key, operator, *values):
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def labels(*expressions):
    return NodeSelectorTerm(match_expressions=expressions)


def fields(*expressions):
    return NodeSelectorTerm(match_fields=expressions)


def selector(*terms):
    return NodeSelector(node_selector_terms=terms)


LABELS = {"zone": "a", "cores": "16", "empty": ""}
NAME = "n1"

MATCHES = {
    "no terms": ([], False),
    "an empty term": ([NodeSelectorTerm()], False),
    "in": ([labels(requirement("zone", "In", "a", "b"))], True),
    "in, other": ([labels(requirement("zone", "In", "b"))], False),
    "not in, missing": ([labels(requirement("rack", "NotIn", "b"))], True),
    "exists": ([labels(requirement("empty", "Exists"))], True),
    "does not exist": ([labels(requirement("rack", "DoesNotExist"))], True),
    "greater": ([labels(requirement("cores", "Gt", "8"))], True),
    "not greater": ([labels(requirement("cores", "Gt", "16"))], False),
    "less": ([labels(requirement("cores", "Lt", "17"))], True),
    "compare with a string": ([labels(requirement("zone", "Gt", "8"))], False),
    "compare a missing label": ([labels(requirement("rack", "Lt", "8"))], False),
    "all requirements of a term": ([labels(requirement("zone", "In", "a"), requirement("cores", "Lt", "8"))], False),
    "any of the terms": ([labels(requirement("zone", "In", "b")), labels(requirement("cores", "Gt", "8"))], True),
    "an empty term next to another": ([NodeSelectorTerm(), labels(requirement("zone", "In", "a"))], True),
    "name": ([fields(requirement("metadata.name", "In", "n1"))], True),
    "another name": ([fields(requirement("metadata.name", "In", "n2"))], False),
    "not in this name": ([fields(requirement("metadata.name", "NotIn", "n2"))], True),
    "name excluded": ([fields(requirement("metadata.name", "NotIn", "n1"))], False),
    "two names": ([fields(requirement("metadata.name", "In", "n1", "n2"))], False),
    "an unsupported field": ([fields(requirement("metadata.uid", "In", "n1"))], False),
    "not in an unsupported field": ([fields(requirement("metadata.uid", "NotIn", "n1"))], True),
    "empty value of an unsupported field": ([fields(requirement("metadata.uid", "In", ""))], True),
    "labels and name": (
        [
            NodeSelectorTerm(
                match_expressions=(requirement("zone", "In", "a"),), match_fields=(requirement("metadata.name", "In", "n2"),)
            )
        ],
        False,
    ),
    "an invalid term": ([labels(requirement("zone", "Foo", "a"))], False),
    "an invalid term next to another": (
        [labels(requirement("zone", "Foo", "a")), labels(requirement("zone", "In", "a"))],
        True,
    ),
    "one invalid requirement invalidates its term": (
        [labels(requirement("zone", "In", "a"), requirement("zone", "In"))],
        False,
    ),
}


@pytest.mark.parametrize(("terms", "matches"), MATCHES.values(), ids=MATCHES)
def test_terms_match_pods(terms, matches):
    assert compile_node_selector(selector(*terms)).matches(LABELS, NAME) is matches


def test_a_node_without_a_name_has_no_fields():
    compiled = compile_node_selector(selector(fields(requirement("metadata.name", "In", "n1"))))
    assert compiled.matches({}, "")


FAULTS = {
    "unknown operator": (
        labels(requirement("k", "Foo")),
        (
            'nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Foo": '
            'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
        ),
    ),
    "no values": (
        labels(requirement("k", "In")),
        (
            "nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: null: "
            "for 'in', 'notin' operators, values set can't be empty"
        ),
    ),
    "not a number": (
        labels(requirement("k", "Exists"), requirement("k", "Gt", "abc")),
        (
            'nodeSelectorTerms[0].matchExpressions[1].values[0]: Invalid value: "abc": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        ),
    ),
    "field operator": (
        fields(requirement("metadata.name", "Exists")),
        'nodeSelectorTerms[0].matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
    ),
    "field values": (
        fields(requirement("metadata.name", "In", "a", "b")),
        'nodeSelectorTerms[0].matchFields[0].values: Invalid value: ["a","b"]: must have one element',
    ),
}


@pytest.mark.parametrize(("term", "text"), FAULTS.values(), ids=FAULTS)
def test_reports_the_fault(term, text):
    compiled = compile_node_selector(selector(term))
    assert compiled.error == text
    (only,) = compiled.terms
    assert only.error == text
    assert (only.requirements, only.fields) == ((), ())


def test_reports_every_fault_once():
    compiled = compile_node_selector(
        selector(labels(requirement("k", "Foo"), requirement("k", "In")), NodeSelectorTerm(), labels(requirement("k", "In")))
    )
    assert compiled.error is not None
    assert compiled.error.startswith("[nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported")
    assert ", nodeSelectorTerms[2].matchExpressions[0].values: " in compiled.error
    assert compiled.error.endswith("]")


def test_faults_carry_the_path_of_the_selector():
    term = compile_node_term(labels(requirement("k", "In")), "[3]")
    assert term is not None
    assert str(term.error).startswith("[3].matchExpressions[0].values: ")
    compiled = compile_node_selector(selector(labels(requirement("k", "In"))), "spec.nodeAffinity.required")
    assert str(compiled.error).startswith("spec.nodeAffinity.required.nodeSelectorTerms[0].")


def test_can_be_decomposed():
    term = NodeSelectorTerm(
        match_expressions=(requirement("zone", "In", "b", "a"), requirement("cores", "Gt", "8")),
        match_fields=(requirement("metadata.name", "NotIn", "n1"),),
    )
    (compiled,) = compile_node_selector(selector(NodeSelectorTerm(), term)).terms
    assert compiled.requirements == (Requirement("cores", "Gt", ("8",)), Requirement("zone", "In", ("a", "b")))
    assert compiled.fields == (Requirement("metadata.name", "NotIn", ("n1",)),)
    assert compiled.error is None


def test_equal_selectors_are_equal_values():
    one = compile_node_selector(selector(labels(requirement("a", "In", "x", "y"), requirement("b", "Exists"))))
    other = compile_node_selector(selector(labels(requirement("b", "Exists"), requirement("a", "In", "y", "x"))))
    assert one == other
    assert hash(one) == hash(other)


keys = st.sampled_from("ab")
values = st.sampled_from(["", "1", "2", "x"])
expressions = st.one_of(
    st.builds(requirement, keys, st.sampled_from(["In", "NotIn"]), values),
    st.builds(requirement, keys, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(requirement, keys, st.sampled_from(["Gt", "Lt"]), st.sampled_from(["1", "2"])),
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(expressions, max_size=3).map(tuple),
    match_fields=st.lists(
        st.builds(requirement, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), st.sampled_from(["n1", "n2"])),
        max_size=1,
    ).map(tuple),
)


def reference_matches(asked, value):
    match asked.operator:
        case "In":
            return value in asked.values
        case "NotIn":
            return value not in asked.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            if value is None or not value.isdecimal():
                return False
            bound = int(asked.values[0])
            return int(value) > bound if operator == "Gt" else int(value) < bound


@given(st.lists(terms, max_size=3), st.dictionaries(keys, values), st.sampled_from(["n1", "n2"]))
def test_agrees_with_a_reference_implementation(terms, labels, name):
    expected = any(
        (term.match_expressions or term.match_fields)
        and all(reference_matches(asked, labels.get(asked.key)) for asked in term.match_expressions)
        and all(reference_matches(asked, name) for asked in term.match_fields)
        for term in terms
    )
    assert compile_node_selector(selector(*terms)).matches(labels, name) == bool(expected)
