"""The fewest pods that have to leave their nodes so that enough pods of a group fit together in one domain.

Pods of a group that is disrupted as one leave together, and disruption budgets are never exceeded. Among few pods every set is
tried in the order of its size. Among many, a set is put together from the nodes where one pod that leaves makes most room, and
arithmetic says how few pods could be enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.pod_groups import PodGroup
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.explain.gang_room import Filling, GangRoom
from moorage.state.pod_groups import group_key
from moorage.state.view import IntArray, PodInfo

#: Among up to so many pods, every set is tried.
_FEW: Final = 14
#: How many pods of a node count one by one when room is estimated.
_MOST_OF_ROW: Final = 12
#: How many domains sets are made for, those that need fewest first.
_MOST_DOMAINS: Final = 3
_MOST_ROUNDS: Final = 12
#: Larger sets are not searched for pods that may stay after all.
_MOST_DROPPED: Final = 48
#: How many more sets of the same size are tried once one has helped.
_MOST_ALIKE: Final = 16

_Floats = npt.NDArray[np.float64]


class MadeRoom(NamedTuple):
    """A set of pods with which the group starts, and how few could be enough. ``moved`` find another node, ``evicted`` wait."""

    domain: str
    placed: int
    moved: tuple[PodInfo, ...]
    evicted: tuple[PodInfo, ...]
    at_least: int = 0

    @property
    def size(self) -> int:
        return len(self.moved) + len(self.evicted)

    @property
    def loss(self) -> tuple[int, int, int, list[str]]:
        """Sort key, the least loss first: pods that wait, those of groups, their priorities."""
        gone = [*self.moved, *self.evicted]
        grouped = sum(pod.spec.scheduling_group is not None for pod in gone)
        return len(self.evicted), grouped, sum(pod.priority for pod in gone), sorted(pod.key for pod in gone)


#: Pods that leave their nodes together, each with its row.
_Unit = tuple[tuple[PodInfo, int], ...]


@dataclass
class RoomSearch:
    """A search for the fewest pods in some domains.

    ``attempt`` lets pods leave, places the group in a domain, and returns what became of all of them; None if that fails
    """

    room: GangRoom
    needed: int
    domains: Sequence[int]
    budgets: Budgets
    attempt: Callable[[Sequence[PodInfo], int], MadeRoom | None]
    probes: int
    budget: TimeBudget
    runs: int = 0
    _units: dict[str, _Unit] = field(default_factory=dict)
    _budgets_of: dict[str, list[int]] = field(default_factory=dict)
    _left: dict[int, int] = field(default_factory=dict)

    def fewest(self) -> MadeRoom | None:
        """Return the smallest set that was found; None if no set helps, or none was found."""
        placed, room = self.room.placed, self.room
        among = np.flatnonzero(np.isin(room.domain[placed.rows], self.domains) & ~placed.stays)
        if len(among) <= _FEW:
            pods = [(placed.pods[at], int(placed.rows[at])) for at in among.tolist()]
            units = list(dict.fromkeys(unit for pod, row in pods if (unit := self._unit(pod, row))))
            return self._every_set(units)
        bounds = sorted((self.least(at), at) for at in self.domains)
        sets = [(made, at) for _, at in bounds[:_MOST_DOMAINS] if (made := self._made_for(at))]
        for made, at in sorted(sets, key=lambda one: sum(map(len, one[0]))):
            found = self._try(made, [at])
            if found is not None:
                return found._replace(at_least=bounds[0][0])
        return None

    def _unit(self, pod: PodInfo, row: int) -> _Unit:
        """Return the pods that leave with a pod: those of its group if that is disrupted as one; () if they cannot leave."""
        key = group_key(pod) if pod.spec.scheduling_group is not None else None
        group = None if key is None else self.room.snapshot.objects(PodGroup).get(key)
        name = pod.uid if group is None or not group.disrupted_as_one or key is None else key
        unit = self._units.get(name)
        if unit is None:
            unit = ((pod, row),)
            known = self.room.snapshot.group(name) if name == key else None
            if known is not None:
                row_of = self.room.snapshot.table.row_of
                others = ((known.pod(uid), row_of.get(node)) for uid, node in known.nodes.items())
                unit = tuple((one, at) for one, at in others if one is not None and at is not None)
            unit = self._units[name] = unit if self._is_allowed([unit]) and not any(one.terminating for one, _ in unit) else ()
        return unit

    def _is_allowed(self, units: Iterable[_Unit], spent: Counter[int] | None = None) -> bool:
        """Return whether budgets allow that these leave after this many disruptions of each are ``spent``."""
        more = self._spent(units)
        return all(self._left[key] >= count + (spent[key] if spent else 0) for key, count in more.items())

    def _spent(self, units: Iterable[_Unit]) -> Counter[int]:
        """Return how many disruptions of each budget these need, by the budget's id()."""
        found: Counter[int] = Counter()
        for unit in units:
            for pod, _ in unit:
                keys = self._budgets_of.get(pod.uid)
                if keys is None:
                    matching = self.budgets.matching(pod)
                    self._left |= {id(one): one.status.disruptions_allowed for one in matching}
                    keys = self._budgets_of[pod.uid] = [id(one) for one in matching]
                found.update(keys)
        return found

    def _try(self, units: Sequence[_Unit], domains: Sequence[int]) -> MadeRoom | None:
        pods = [pod for unit in units for pod, _ in unit]
        filled = self._filled(units)
        for at in sorted(domains, key=lambda at: -int(filled.fits[at])):
            if int(filled.most[at]) < self.needed or self.runs >= self.probes or self.budget.is_over():
                continue
            self.runs += 1
            found = self.attempt(pods, at)
            if found is not None:
                return found
        return None

    def _filled(self, units: Iterable[_Unit]) -> Filling:
        open_rows = [one.open_ever for one in self.room.classes]
        return self.room.filled(self.room.without(one for unit in units for one in unit), open_rows)

    def _every_set(self, units: Sequence[_Unit]) -> MadeRoom | None:
        """Try all sets in the order of their sizes. Of the smallest that help, return the one with the least loss."""
        sets = (some for count in range(1, len(units) + 1) for some in combinations(units, count))
        best: MadeRoom | None = None
        last = self.probes
        for some in sorted(sets, key=lambda some: sum(map(len, some))):
            size = sum(map(len, some))
            if (best is not None and size > best.size) or self.runs >= last or self.budget.is_over():
                break
            if int(self._filled(some).most[list(self.domains)].max()) < self.needed or not self._is_allowed(some):
                continue
            found = self._try(some, self.domains)
            if found is not None:
                last = min(last, self.runs + _MOST_ALIKE)
                best = min(filter(None, (best, found._replace(at_least=size))), key=lambda one: one.loss)
        return best

    # -- sets from the best nodes ------------------------------------------------------------------------------------------

    def least(self, domain: int) -> int:
        """Return how many pods have to leave a domain at least, as if every resource could be freed by other pods."""
        room, bound = self.room, 0
        whole = self.needed == sum(room.wanted)
        for at in range(len(room.classes)) if whole else [int(np.argmin(room.needs.sum(axis=1)))]:
            wanted = room.wanted[at] if whole else self.needed
            fits = self._curves(at, domain, room.free)[1]
            lacks = wanted - int(fits[:, 0].sum())
            if lacks > 0:
                gains = np.sort(np.diff(_hull(fits - fits[:, :1]), axis=1).ravel())[::-1]
                bound = max(bound, int(np.searchsorted(np.cumsum(gains), lacks - 1e-6)) + 1)
        return bound

    def _curves(self, at: int, domain: int, free: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows of a domain, and how many pods of a class fit on each at most once 0, 1, 2 … others have left."""
        room, placed = self.room, self.room.placed
        rows = np.flatnonzero((room.domain == domain) & room.classes[at].open_ever)
        place = np.full(len(room.domain), -1)
        place[rows] = np.arange(len(rows))
        among = np.flatnonzero((place[placed.rows] >= 0) & ~placed.stays)
        of_row, amounts = place[placed.rows[among]], placed.amounts[among]
        freed = np.zeros((len(rows), _MOST_OF_ROW + 1, len(room.resources)), dtype=np.int64)
        starts = np.searchsorted(of_row, np.arange(len(rows)))
        for number in range(len(room.resources)):
            order = np.lexsort((-amounts[:, number], of_row))
            rank = np.minimum(np.arange(len(order)) - starts[of_row[order]] + 1, _MOST_OF_ROW)
            np.add.at(freed[:, :, number], (of_row[order], rank), amounts[order, number])
        steps = free[rows][:, None] + np.cumsum(freed, axis=1)
        asked = room.needs[at] > 0
        fits = (np.clip(steps[:, :, asked], 0, None) // room.needs[at][asked]).min(axis=2)
        fits = np.minimum(fits, 1) if room.classes[at].pods[0].host_ports else fits
        return rows, np.minimum(fits, self.needed)

    def _made_for(self, domain: int) -> list[_Unit]:
        """Put a set together for one domain, and drop what is not needed; [] if it is not enough."""
        chosen: list[_Unit] = []
        for _ in range(_MOST_ROUNDS):
            filled = self._filled(chosen)
            lacks = self.needed - int(filled.fits[domain])
            if lacks <= 0:
                break
            lacking = [at for at, wanted in enumerate(self.room.wanted) if filled.counts[domain][at] < wanted]
            at = max(lacking, key=lambda at: int(self.room.needs[at].sum()))
            if not self._add(at, domain, filled.left, lacks, chosen):
                return []
        if len(chosen) <= _MOST_DROPPED:
            for unit in sorted(chosen, key=lambda unit: -len(unit)):
                fewer = [other for other in chosen if other is not unit]
                if int(self._filled(fewer).fits[domain]) >= self.needed:
                    chosen = fewer
        return chosen if int(self._filled(chosen).fits[domain]) >= self.needed else []

    def _add(self, at: int, domain: int, left: IntArray, lacks: int, chosen: list[_Unit]) -> bool:
        """Add units that make room for so many more pods of a class, from the rows where one that leaves gains most."""
        rows, fits = self._curves(at, domain, left)
        gains = fits[:, 1:] - fits[:, :1]
        steps = np.arange(1, fits.shape[1])
        before = len(chosen)
        while lacks > 0 and len(rows):
            useful = np.minimum(gains, lacks)
            rate = useful / steps
            number = int(np.argmax(rate.max(axis=1)))
            if rate[number].max() <= 0:
                break
            wanted = int(useful[number, int(np.argmax(rate[number]))])
            found, row = wanted + int(fits[number, 0]), int(rows[number])
            units = self._on_row(self.room.needs[at] * found - left[row], row, chosen)
            gains[number] = np.where(gains[number] < wanted, gains[number], 0) if not units and wanted > 1 else 0
            if units:
                chosen += units
                lacks -= wanted
        return len(chosen) > before

    def _on_row(self, lacking: IntArray, row: int, chosen: Sequence[_Unit]) -> list[_Unit]:
        """Return the fewest units of a row that free what is lacking there; [] if budgets or sizes forbid it."""
        placed = self.room.placed
        lacking, taken_before = np.clip(lacking, 0, None), set(chosen)
        start, end = np.searchsorted(placed.rows, [row, row + 1]).tolist()
        units: dict[_Unit, IntArray] = {}
        for at in range(start, end):
            unit = () if placed.stays[at] else self._unit(placed.pods[at], row)
            if unit and unit not in taken_before:
                units[unit] = units.get(unit, 0) + placed.amounts[at]
        spent = self._spent(chosen)
        share = {unit: float((np.minimum(one, lacking) / np.maximum(lacking, 1)).sum()) for unit, one in units.items()}
        among = sorted(units, key=lambda unit: (len(unit), -share[unit], unit[0][0].priority))
        for count in range(1, min(3, len(among)) + 1):
            for some in combinations(among[:_MOST_OF_ROW], count):
                if (sum(units[unit] for unit in some) >= lacking).all() and self._is_allowed(some, spent):
                    return list(some)
        taken: list[_Unit] = []
        for unit in among:
            if self._is_allowed([*taken, unit], spent):
                taken.append(unit)
            if taken and (sum(units[one] for one in taken) >= lacking).all():
                return taken
        return []


def _hull(gains: IntArray) -> _Floats:
    """Return the least concave curves above these, one a row: what a fraction of several steps gains, at most."""
    number = gains.shape[1]
    hull: _Floats = gains.astype(np.float64)
    for first in range(number):
        for last in range(first + 2, number):
            slope = (gains[:, last] - gains[:, first]) / (last - first)
            for at in range(first + 1, last):
                np.maximum(hull[:, at], gains[:, first] + slope * (at - first), out=hull[:, at])
    return hull
