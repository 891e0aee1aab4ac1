"""The combinations of the offers for a node: one set of changes for each constraint that refuses the node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from itertools import groupby, islice, product
from math import prod
from typing import Final, NamedTuple, TypeAlias

from moorage.framework.changes import Change, Owner
from moorage.laboratory.change.change_sets import combined
from moorage.laboratory.change.offers import ChangeSet, NodeOffers

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
