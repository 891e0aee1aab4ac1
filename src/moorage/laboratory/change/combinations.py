"""The combinations of the offers for a node: one set of changes for each constraint that refuses the node.

Several searches go through the same offers, each with the changes of other owners.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import groupby, islice, product
from math import inf, prod
from typing import Final, NamedTuple, TypeAlias

from moorage.framework.changes import Change, Owner
from moorage.laboratory.change.change_sets import combined, field_of, is_numeric
from moorage.laboratory.change.offers import ChangeSet, NodeOffers
from moorage.laboratory.costs import Costs

#: Maximum number of combinations to queue for one node.
_MOST_SETS: Final = 512
#: For each constraint of a node, sets of changes that lift it.
Choices: TypeAlias = Sequence[Sequence[tuple[Change, ...]]]


class _Choice(NamedTuple):
    """Changes that lift a constraint together, and all their owners."""

    changes: tuple[Change, ...]
    owners: frozenset[Owner]


class NodeChoices:
    """The offers for a node without the terms for which plugins made them; ``verbs`` limits them to some kinds of changes.

    ``is_complete``  the offers have so few combinations that none is left out
    """

    __slots__ = ("_constraints", "is_complete")

    def __init__(self, node: NodeOffers, verbs: Collection[str] | None = None) -> None:
        self.is_complete = prod(map(len, node.constraints)) <= _MOST_SETS
        self._constraints = [
            [
                _Choice(tuple(map(_plain, one)), frozenset([change.owner for change in one]))
                for one in sets
                if verbs is None or all(change.verb in verbs for change in one)
            ]
            for sets in node.constraints
        ]

    def of(self, owners: Set[Owner]) -> Choices:
        """Return for each constraint the sets of these owners; nothing if they can lift none or not all of the constraints."""
        found = []
        for constraint in self._constraints:
            allowed = [choice.changes for choice in constraint if choice.owners <= owners]
            if not allowed:
                return ()
            found.append(allowed)
        return found


def _plain(change: Change) -> Change:
    return change if not change.term else Change(
        change.owner, change.verb, change.target, change.path, change.old, change.new, change.cost
    )  # fmt: skip


def combinations(choices: Choices) -> Iterator[ChangeSet]:
    """Yield the combinations of one set per constraint, without those that contain another one."""
    if not choices:
        return
    found: set[ChangeSet] = set()
    for chosen in islice(product(*choices), _MOST_SETS):
        together = combined(*chosen)
        if together is not None:
            found.add(together)
    smaller: list[ChangeSet] = []
    for _, alike in groupby(sorted(found, key=len), key=len):  # no set contains another one of its size
        kept = [one for one in alike if not any(map(one.issuperset, smaller))]
        yield from kept
        smaller += kept


def all_are_minimal(choices: Choices) -> bool:
    """Return True only if ``combinations`` yields the union of every choice of sets, so that each change is part of some.

    That is so if the constraints share no field, no set changes a field twice, and no set of a constraint contains another.
    """
    if prod(map(len, choices)) > _MOST_SETS:
        return False
    fields = [[frozenset(map(field_of, one)) for one in sets] for sets in choices]
    of_constraints = [frozenset().union(*some) for some in fields]
    if sum(map(len, of_constraints)) != len(frozenset().union(*of_constraints)):
        return False
    for sets, some, together in zip(choices, fields, of_constraints, strict=True):
        if sum(map(len, some)) != len(together) and _has_nested(sets):
            return False
        if any(len(one) != len(of_one) for one, of_one in zip(sets, some, strict=True)):
            return False
    return True


def _has_nested(sets: Iterable[Iterable[Change]]) -> bool:
    """Return whether one of some sets contains another one."""
    found = sorted(map(frozenset, sets), key=len)
    return any(any(map(one.issuperset, found[:at])) for at, one in enumerate(found))


class LeastCosts:
    """Lower bounds for the cost of some changes together with a combination of choices, if pods may move.

    A bound holds as well for what is left of them without numbers, if pods are evicted and this is not just the changes again.
    """

    def __init__(self, costs: Costs, changes: ChangeSet) -> None:
        self._costs = costs
        self._changes = changes
        #: A change of one of these fields may cost nothing more.
        self._fields = frozenset(map(field_of, changes))
        bare = [change for change in changes if not is_numeric(change)]
        self._whole, self._bare = costs.least_of(changes), costs.least_of(bare)
        self._evicts = any(change.verb == "evict" for change in changes)
        self._has_numbers = len(bare) < len(changes)

    def of(self, choices: Choices) -> float:
        """Return a bound for every combination."""
        whole, bare = self._whole, self._bare
        further = 0.0 if self._evicts and self._has_numbers else inf
        for sets in choices:
            prices = [self._prices(one) for one in sets]
            whole += min([price for price, _, _ in prices])
            least = min([price for _, price, _ in prices])
            bare += least
            further = min([further, *(price - least for _, price, matters in prices if matters)])
        return min(whole, bare + further)

    def _prices(self, changes: Iterable[Change]) -> tuple[float, float, bool]:
        """Return the least cost of changes of other fields, and the same without numbers.

        The third value tells whether sets without numbers are tried because of these changes: they evict pods, or if pods are
        evicted anyway, they are more than numbers.
        """
        whole = bare = 0.0
        matters = False
        for change in changes:
            numeric = is_numeric(change)
            matters |= (not numeric and change not in self._changes) if self._evicts else change.verb == "evict"
            if field_of(change) not in self._fields:
                price = self._costs.least_of_one(change)
                whole += price
                bare += 0.0 if numeric else price
        return whole, bare, matters
