"""Combinations of the offers for a node."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moorage.framework.changes import Change
from moorage.laboratory.change.combinations import NodeChoices, combinations
from moorage.laboratory.change.offers import NodeOffers

OFFERED = [
    *(Change("pod", "request", "pod/default/p", f"requests.{name}", 9, new) for name in ("cpu", "memory") for new in (1, 2)),
    *(Change("cluster", "evict", f"pod/default/{name}", "", "n", None) for name in "abc"),
    *(Change("node", "label", "node/n", "labels.disk", None, value) for value in ("ssd", "hdd")),
    Change("node", "uncordon", "node/n", "unschedulable", True, False),
    Change("node", "allocatable", "node/n", "allocatable.cpu", 4, 6),
]
SETS = st.frozensets(st.sampled_from(OFFERED), min_size=1, max_size=3)
CONSTRAINTS = st.lists(st.lists(SETS, min_size=1, max_size=3, unique=True), min_size=1, max_size=3)
EVERYONE = frozenset(["pod", "node", "cluster"])


def choices_of(constraints):
    return NodeChoices(NodeOffers("n", tuple(map(tuple, constraints)))).of(EVERYONE)


@settings(max_examples=80, deadline=None)
@given(CONSTRAINTS)
@example([[frozenset([OFFERED[0]])], [frozenset([OFFERED[4]]), frozenset([OFFERED[7]])]])
def test_no_combination_contains_another(constraints):
    found = list(combinations(choices_of(constraints)))
    assert len(set(found)) == len(found)
    assert not any(one < other for one in found for other in found)
    offered = {change for sets in constraints for one in sets for change in one}
    assert set().union(*found) <= offered


def test_an_owner_who_cannot_lift_all_constraints_has_no_choices():
    label, evict = OFFERED[7], OFFERED[4]
    node = NodeChoices(NodeOffers("n", ((frozenset([label]), frozenset([evict])), (frozenset([evict]),))))
    assert node.of(frozenset(["node"])) == ()
    assert node.of(frozenset(["cluster"])) == [[(evict,)], [(evict,)]]


def test_other_kinds_of_changes_are_left_out():
    node = NodeOffers("n", ((frozenset([OFFERED[7]]), frozenset([OFFERED[4]])),))
    assert NodeChoices(node, verbs=["evict"]).of(EVERYONE) == [[(OFFERED[4],)]]
