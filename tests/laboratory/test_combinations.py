"""Combinations of the offers for a node, and the quick tests that tell what they cost and contain."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moorage.framework.changes import Change
from moorage.laboratory.change.change_sets import combined, is_numeric
from moorage.laboratory.change.combinations import LeastCosts, NodeChoices, all_are_minimal, combinations
from moorage.laboratory.change.offers import NodeOffers
from moorage.laboratory.costs import BASE_COSTS, Costs

OFFERED = [
    *(Change("pod", "request", "pod/default/p", f"requests.{name}", 9, new) for name in ("cpu", "memory") for new in (1, 2)),
    *(Change("cluster", "evict", f"pod/default/{name}", "", "n", None) for name in "abc"),
    *(Change("node", "label", "node/n", "labels.disk", None, value) for value in ("ssd", "hdd")),
    Change("node", "uncordon", "node/n", "unschedulable", True, False),
    Change("node", "allocatable", "node/n", "allocatable.cpu", 4, 6),
]
SETS = st.frozensets(st.sampled_from(OFFERED), min_size=1, max_size=3)
CONSTRAINTS = st.lists(st.lists(SETS, min_size=1, max_size=3, unique=True), min_size=1, max_size=3)
PRICES = st.sampled_from([Costs(), Costs({**BASE_COSTS, "effort.move": 0, "effort.request": 5})])
EVERYONE = frozenset(["pod", "node", "cluster"])


def choices_of(constraints):
    return NodeChoices(NodeOffers("n", tuple(map(tuple, constraints)))).of(EVERYONE)


@settings(max_examples=80, deadline=None)
@given(CONSTRAINTS, st.frozensets(st.sampled_from(OFFERED), max_size=2), PRICES)
@example([[frozenset([OFFERED[0]])], [frozenset([OFFERED[4]]), frozenset([OFFERED[7]])]], frozenset(), Costs())
@example([[frozenset([OFFERED[0]]), frozenset([OFFERED[5]])]], frozenset([OFFERED[4]]), Costs())
@example([[frozenset([OFFERED[0]])]], frozenset([OFFERED[2], OFFERED[4]]), Costs())
def test_the_bound_and_the_test_for_minimality_hold_for_every_combination(constraints, changes, costs):
    choices = choices_of(constraints)
    if not all_are_minimal(choices) or combined(changes) != changes:
        return
    bound, found = LeastCosts(costs, changes).of(choices), list(combinations(choices))
    assert set().union(*found) == {change for sets in constraints for one in sets for change in one}
    for more in filter(None, (combined(changes, one) for one in found)):
        assert costs.least_of(more) >= bound - 1e-5
        bare = {change for change in more if not is_numeric(change)}
        if any(change.verb == "evict" for change in more) and bare != changes:
            assert costs.least_of(bare) >= bound - 1e-5


def test_an_owner_who_cannot_lift_all_constraints_has_no_choices():
    label, evict = OFFERED[7], OFFERED[4]
    node = NodeChoices(NodeOffers("n", ((frozenset([label]), frozenset([evict])), (frozenset([evict]),))))
    assert node.of(frozenset(["node"])) == ()
    assert node.of(frozenset(["cluster"])) == [[(evict,)], [(evict,)]]


def test_other_kinds_of_changes_are_left_out():
    node = NodeOffers("n", ((frozenset([OFFERED[7]]), frozenset([OFFERED[4]])),))
    assert NodeChoices(node, verbs=["evict"]).of(EVERYONE) == [[(OFFERED[4],)]]
