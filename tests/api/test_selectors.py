from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import LabelSelector, LabelSelectorRequirement
from moorage.api.requirements import Requirement, requirement_faults
from moorage.api.selectors import (
    EVERYTHING,
    NOTHING,
    Selector,
    SelectorError,
    compile_label_selector,
    label_selector_matches,
    parse_selector,
    selector_from_map,
)
from tests.executed import executed


def expression(key, operator, *values):
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


LABELS = {"app": "web", "tier": "front", "empty": ""}

MATCHES = {
    "absent": (None, False),
    "empty": (LabelSelector(), True),
    "label present": (LabelSelector(match_labels={"app": "web"}), True),
    "label differs": (LabelSelector(match_labels={"app": "db"}), False),
    "label missing": (LabelSelector(match_labels={"zone": "a"}), False),
    "empty value equals empty value": (LabelSelector(match_labels={"empty": ""}), True),
    "an absent label is not an empty value": (LabelSelector(match_labels={"zone": ""}), False),
    "all labels must hold": (LabelSelector(match_labels={"app": "web", "tier": "back"}), False),
    "in": (LabelSelector(match_expressions=(expression("app", "In", "db", "web"),)), True),
    "in, missing": (LabelSelector(match_expressions=(expression("zone", "In", "a"),)), False),
    "not in": (LabelSelector(match_expressions=(expression("app", "NotIn", "web"),)), False),
    "not in, missing": (LabelSelector(match_expressions=(expression("zone", "NotIn", "a"),)), True),
    "exists": (LabelSelector(match_expressions=(expression("app", "Exists"),)), True),
    "exists, empty value": (LabelSelector(match_expressions=(expression("empty", "Exists"),)), True),
    "exists, missing": (LabelSelector(match_expressions=(expression("zone", "Exists"),)), False),
    "does not exist": (LabelSelector(match_expressions=(expression("zone", "DoesNotExist"),)), True),
    "does not exist, present": (LabelSelector(match_expressions=(expression("app", "DoesNotExist"),)), False),
    "contradiction": (LabelSelector(match_expressions=(expression("a", "Exists"), expression("a", "DoesNotExist"))), False),
    "matchLabels and matchExpressions": (
        LabelSelector(match_labels={"app": "web"}, match_expressions=(expression("tier", "NotIn", "front"),)),
        False,
    ),
}


@pytest.mark.parametrize(("selector", "matches"), MATCHES.values(), ids=MATCHES)
def test_terms_match_pods(selector, matches):
    assert label_selector_matches(selector, LABELS) is matches
    assert compile_label_selector(selector).matches(LABELS) is matches


LABEL_FAULT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
REFUSED = {
    "unknown operator": (expression("a", "Foo"), '"Foo" is not a valid label selector operator'),
    "operator in upper case": (expression("a", "IN", "b"), '"IN" is not a valid label selector operator'),
    "operator of node selectors": (expression("a", "Gt", "1"), '"Gt" is not a valid label selector operator'),
    "In without values": (
        expression("a", "In"),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    "NotIn without values": (
        expression("a", "NotIn"),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    "Exists with values": (
        expression("a", "Exists", "x"),
        'values: Invalid value: ["x"]: values set must be empty for exists and does not exist',
    ),
    "an invalid label value": (expression("a", "In", "b", "c d"), f'values[1][a]: Invalid value: "c d": {LABEL_FAULT}'),
    "a value with a newline": (expression("a", "In", "b\n"), f'values[0][a]: Invalid value: "b\\n": {LABEL_FAULT}'),
    "a value that is too long": (
        expression("a", "In", "b" * 64),
        f'values[0][a]: Invalid value: "{"b" * 64}": must be no more than 63 bytes',
    ),
}


@pytest.mark.parametrize(("requirement", "text"), REFUSED.values(), ids=REFUSED)
def test_rejects(requirement, text):
    with pytest.raises(SelectorError) as caught:
        compile_label_selector(LabelSelector(match_expressions=(requirement,)))
    assert str(caught.value) == text


def test_reports_every_fault_of_labels():
    with pytest.raises(
        SelectorError, match=r'^\[key: Invalid value: "a/b/c": .*, values\[0\]\[a/b/c\]: Invalid value: "-": .*\]$'
    ):
        compile_label_selector(LabelSelector(match_labels={"a/b/c": "-"}))


def test_equal_selectors_are_equal_values():
    one = LabelSelector(match_labels={"a": "1", "b": "2"}, match_expressions=(expression("c", "In", "z", "y", "z"),))
    other = LabelSelector(
        match_labels={"b": "2"}, match_expressions=(expression("c", "In", "y", "z"), expression("a", "In", "1"))
    )
    assert compile_label_selector(one) == compile_label_selector(other)
    assert hash(compile_label_selector(one)) == hash(compile_label_selector(other))
    assert compile_label_selector(one) != compile_label_selector(LabelSelector())
    assert {compile_label_selector(one): 1}[compile_label_selector(other)] == 1


def test_the_empty_selector_and_none_differ():
    assert compile_label_selector(None) == NOTHING
    assert compile_label_selector(LabelSelector()) == EVERYTHING
    assert NOTHING != EVERYTHING
    assert (EVERYTHING.is_empty, EVERYTHING.matches_nothing) == (True, False)
    assert (NOTHING.is_empty, NOTHING.matches_nothing) == (False, True)
    assert not NOTHING.matches({})
    assert EVERYTHING.matches({})


def test_a_label_map_is_a_selector():
    selector = selector_from_map({"b": "not a label value", "a": "1"})
    assert [one.key for one in selector.requirements] == ["a", "b"]
    assert selector.matches({"a": "1", "b": "not a label value", "c": ""})
    assert not selector.matches({"a": "1"})
    assert selector_from_map({}) == EVERYTHING


def test_values_are_immutable():
    with pytest.raises(AttributeError):
        EVERYTHING.matches_nothing = True
    with pytest.raises(AttributeError):
        Requirement("a", "In", ("b",)).key = "c"


# -- requirements -------------------------------------------------------------------------------------------------------

JUDGED = {
    "Gt, more": ("Gt", ["5"], "6", True), "Gt, same": ("Gt", ["5"], "5", False), "Gt, less": ("Gt", ["5"], "-6", False),
    "Gt, absent": ("Gt", ["5"], None, False), "Gt, not a number": ("Gt", ["5"], "six", False),
    "Gt, a float": ("Gt", ["5"], "6.0", False), "Gt, blanks": ("Gt", ["5"], " 6", False), "Gt, plus": ("Gt", ["5"], "+6", True),
    "Gt, non-ASCII digits": ("Gt", ["5"], "٦", False), "Gt, beyond 64 bits": ("Gt", ["5"], "9223372036854775808", False),
    "Gt, leading zeros": ("Gt", ["5"], "0006", True), "Gt, no number to compare with": ("Gt", ["x"], "6", False),
    "Gt, absent label": ("Gt", [], "6", False),
    "Lt, less": ("Lt", ["5"], "4", True), "Lt, same": ("Lt", ["5"], "5", False), "Lt, absent": ("Lt", ["5"], None, False),
    "unknown": ("Foo", ["5"], "5", False),
}  # fmt: skip


@pytest.mark.parametrize(("operator", "values", "value", "holds"), JUDGED.values(), ids=JUDGED)
def test_matches_one_value(operator, values, value, holds):
    assert Requirement("k", operator, tuple(values)).matches(value) is holds


FAULTS = {
    "Gt without a number": (
        "Gt",
        ("x",),
        ["values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"],
    ),
    "Gt without a value": ("Gt", (), ["values: Invalid value: null: for 'Gt', 'Lt' operators, exactly one value is required"]),
    "Lt with two values": (
        "Lt",
        ("1", "2"),
        ["values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required"],
    ),
    "Gt with one value": ("Gt", ("12",), []),
    "unknown": (
        "=",
        ("1",),
        ['operator: Unsupported value: "=": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'],
    ),
}


@pytest.mark.parametrize(("operator", "values", "faults"), FAULTS.values(), ids=FAULTS)
def test_reports_faults(operator, values, faults):
    assert list(map(str, requirement_faults("k", operator, values))) == faults
    assert list(map(str, requirement_faults("k", operator, values, "at[0]"))) == [f"at[0].{fault}" for fault in faults]


def test_a_negative_bound_is_no_label_value():
    (fault,) = requirement_faults("k", "Gt", ("-5",))
    assert str(fault).startswith('values[0][k]: Invalid value: "-5": a valid label')


# -- properties ---------------------------------------------------------------------------------------------------------

keys = st.sampled_from("abcd")
values = st.sampled_from(["", "1", "2", "10", "x", "y"])
label_sets = st.dictionaries(keys, values)
requirements = st.one_of(
    st.builds(expression, keys, st.sampled_from(["In", "NotIn"]), values, values),
    st.builds(expression, keys, st.sampled_from(["Exists", "DoesNotExist"])),
)
label_selectors = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(keys, values, max_size=2),
    match_expressions=st.lists(requirements, max_size=3).map(tuple),
)


def reference_matches(requirement, labels):
    return {
        "In": requirement.key in labels and labels[requirement.key] in requirement.values,
        "NotIn": not (requirement.key in labels and labels[requirement.key] in requirement.values),
        "Exists": requirement.key in labels,
        "DoesNotExist": requirement.key not in labels,
    }[requirement.operator]


@given(label_selectors, label_sets)
def test_agrees_with_a_reference_implementation(selector, labels):
    expected = all(labels.get(key) == value for key, value in selector.match_labels.items())
    expected = expected and all(reference_matches(one, labels) for one in selector.match_expressions)
    assert compile_label_selector(selector).matches(labels) == expected


@given(label_selectors)
def test_survives_serialization(selector):
    compiled = compile_label_selector(selector)
    assert parse_selector(str(compiled)) == compiled


@given(label_selectors, st.randoms(use_true_random=False))
def test_the_order_of_requirements_does_not_matter(selector, random):
    compiled = compile_label_selector(selector)
    shuffled = list(compiled.requirements)
    random.shuffle(shuffled)
    assert Selector(tuple(shuffled)) == compiled


many = st.builds(
    Requirement, st.sampled_from("abcdefgh"), st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"]),
    st.lists(values, max_size=2).map(tuple),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(many, min_size=17, max_size=40), st.dictionaries(st.sampled_from("abcdefghij"), values))
def test_many_requirements_match_like_one_by_one(asked, labels):
    assert Selector(tuple(asked)).matches(labels) == all(one.matches(labels.get(one.key)) for one in asked)


def test_matching_cost_does_not_grow_with_the_number_of_requirements():
    few, lots = (parse_selector(",".join(f"!k{i}" for i in range(count))) for count in (20, 2000))
    labels = {"a": "b", "c": "d"}
    assert lots.matches(labels)
    assert executed(lambda: lots.matches(labels)) == executed(lambda: few.matches(labels))
