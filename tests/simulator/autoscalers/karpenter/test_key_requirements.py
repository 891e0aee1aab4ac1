"""Karpenter's algebra of requirements, on the tables of its own tests (``requirement_cases.txt``)."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from moorage.api.core import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from moorage.simulator.autoscalers.key_requirements import (
    INSTANCE_TYPE,
    WELL_KNOWN,
    ZONE,
    KeyRequirement,
    incompatibility,
    of_expressions,
    of_labels,
    of_pod,
    one,
    text_of,
)  # fmt: skip

_KEY = ZONE
_CASES = [
    tuple(part.strip() for part in line.split(" | "))
    for line in Path(__file__).with_name("requirement_cases.txt").read_text().splitlines()
    if not line.startswith("#")
]


def _read(text: str) -> KeyRequirement:
    """Read ``NotIn 1,2 min2``, or ``= not 1,2 - 8 2``: complement, values, bounds and minValues."""
    if text.startswith("= "):
        kind, values, least, most, count = text[2:].split()
        numbers = [None if part == "-" else int(part) for part in (least, most, count)]
        held = frozenset[str]() if values == "-" else frozenset(values.split(","))
        return KeyRequirement(_KEY, held, kind == "not", *numbers)
    if " & " in text:
        first, second = map(_read, text.split(" & "))
        return first.intersection(second)
    operator, *parts = text.split()
    counts = [int(part[3:]) for part in parts if part.startswith("min")]
    listed = [part.split(",") for part in parts if not part.startswith("min")]
    return one(_KEY, operator, listed[0] if listed else (), counts[0] if counts else None)


def _agrees(what: str, text: str, other: str, expected: str) -> bool:
    if what in {"well-known", "strict"}:
        held, asked = ({_KEY: _read(part)} if part else {} for part in (text, other))
        undefined = WELL_KNOWN if what == "well-known" else frozenset[str]()
        return (incompatibility(held, asked, undefined) == "") == (expected == "true")
    found = _read(text)
    match what:
        case "intersect":
            return found.intersection(_read(other)) == _read(expected)
        case "has":
            return found.has(other) == (expected == "true")
        case "operator":
            return found.operator == expected
        case "length":
            return (f"all-{len(found.values)}".removesuffix("-0") if found.complement else str(len(found.values))) == expected
        case "text":
            return str(found).replace(_KEY, "key") == expected
        case _:
            return found == _read(expected)


def test_requirements_are_those_of_karpenters_tables() -> None:
    assert [case for case in _CASES if not _agrees(*(*case, "")[:4])] == []
    assert Counter(case[0] for case in _CASES) == {
        "intersect": 590, "has": 70, "prints": 28, "text": 16, "operator": 14, "length": 14, "well-known": 225, "strict": 225,
    }  # fmt: skip


def test_meeting_is_an_intersection_that_is_not_empty() -> None:
    listed = {_read(case[1]) for case in _CASES if case[0] == "intersect"}
    for mine, its in product(listed, repeat=2):
        both = mine.intersection(its)
        assert mine.meets(its) == (both.complement or bool(both.values)), (mine, its)


#: Cases of requirement_test.go, "Gte and Lte Operators": the requirement, what it has, what it has not.
_BOUNDS = {
    "should treat Gte as inclusive lower bound": (one("k", "Gte", ("2",)), "2 3", "1"),
    "should treat Lte as inclusive upper bound": (one("k", "Lte", ("8",)), "8 7", "9"),
    "should intersect Gte and Lte correctly": (one("k", "Gte", ("2",)).intersection(one("k", "Lte", ("8",))), "2 8", "1 9"),
    "should keep Gt when Gt is more restrictive": (one("k", "Gte", ("5",)).intersection(one("k", "Gt", ("5",))), "6", "5"),
    "should keep more restrictive Gte when Gte > Gt+1": (
        one("k", "Gte", ("9",)).intersection(one("k", "Gt", ("5",))),
        "9",
        "8",
    ),
    "should keep Lt when Lt is more restrictive": (one("k", "Lte", ("5",)).intersection(one("k", "Lt", ("5",))), "4", "5"),
    "should handle Gte 0 boundary": (one("k", "Gte", ("0",)), "0", "-1"),
    "should handle Lte 0 boundary": (one("k", "Lte", ("0",)), "0", "1"),
    "should return DoesNotExist for Gt MaxInt": (one("k", "Gt", (str(2**63 - 1),)), "", "1 x"),
}


@pytest.mark.parametrize(("asked", "has", "lacks"), _BOUNDS.values(), ids=_BOUNDS)
def test_bounds(asked: KeyRequirement, has: str, lacks: str) -> None:
    assert [value for value in has.split() if not asked.has(value)] == []
    assert [value for value in lacks.split() if asked.has(value)] == []


def test_old_names_of_labels_are_normalized() -> None:
    old = {
        "failure-domain.beta.kubernetes.io/zone": "test", "failure-domain.beta.kubernetes.io/region": "test",
        "beta.kubernetes.io/arch": "test", "beta.kubernetes.io/os": "test", "beta.kubernetes.io/instance-type": "test",
    }  # fmt: skip
    expressions = tuple(NodeSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in old.items())
    node = NodeAffinity(
        required_during_scheduling_ignored_during_execution=NodeSelector(
            node_selector_terms=(NodeSelectorTerm(match_expressions=expressions),)
        )
    )
    keys = {"kubernetes.io/arch", "kubernetes.io/os", INSTANCE_TYPE, "topology.kubernetes.io/region", ZONE}
    for found in (
        of_labels(old), of_expressions(expressions),
        of_pod(PodSpec(node_selector=old, affinity=Affinity(node_affinity=node))),
    ):  # fmt: skip
        assert set(found) == keys


def test_an_unknown_label_gets_a_hint() -> None:
    assert incompatibility({}, of_labels({"zone": "a"}), WELL_KNOWN) == (
        f'label "zone" does not have known values (typo of "{ZONE}"?)'
    )
    assert incompatibility({}, of_labels({"team": "a"}), WELL_KNOWN) == 'label "team" does not have known values'


def test_requirements_print_in_one_order_without_the_host_name() -> None:
    assert text_of([one("b", "Exists"), one("kubernetes.io/hostname", "In", ("x",)), one("a", "In", ("2", "1"))]) == (
        "a In [1 2], b Exists"
    )
    assert str(one("a", "In", "01234567")) == "a In [0 1 2 3 4 and 3 others]"
