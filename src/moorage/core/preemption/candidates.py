"""Preemption: find the node and the victims of lower priority that make room for a pod that fits nowhere.

``find_candidates`` tries nodes in what-ifs (see ``moorage.core.preemption.reprieve``) until it has enough candidates, and
``choose`` picks the one that does the least harm. This module changes no state and evicts no pod.

Source  kube-scheduler 1.36, framework/preemption/preemption.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.reprieve import NOBODY_LESSER, EvictionAnswers, Victims, select_victims, select_victims_everywhere
from moorage.core.preemption.row_importance import Ranking, earliest_start
from moorage.core.preemption.victim_units import Units, select_units
from moorage.framework.points import Attempt
from moorage.framework.verdicts import Code, Status, Verdicts

# kube-scheduler's own texts, kept word for word: people search their events for them.
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NOBODY_HAS_TO_GO: Final = 'expected at least one victim pod on node "{}"'

#: Added to each priority before summing, so that fewer victims of negative priority never rank worse than more of them.
_LIFT: Final = 2**31
#: The least number of nodes tried in the first batch.
_BATCH: Final = 256

_Rows = npt.NDArray[np.intp]


class Candidate(NamedTuple):
    """A node that the pod fits on without the victims, of which there is at least one."""

    row: int
    victims: Victims


@dataclass(frozen=True, slots=True)
class PreemptionSearch:
    """The search result: ``candidates`` in the order that ``choose`` expects; ``verdicts`` has the reasons for all other rows.

    ``errors`` has a message for each node that a plugin could not judge, and for each node on which the pod fits although
    Filter refused it; ``fitting`` are the rows of the latter.
    """

    verdicts: Verdicts
    candidates: list[Candidate]
    errors: list[str]
    fitting: list[int]


class VictimRules(NamedTuple):
    """Which pods of a node go, and which go first. With ``units``, groups are victims as a whole."""

    budgets: Budgets
    ranking: Ranking
    units: Units | None = None


def find_candidates(attempt: Attempt, percentage: int, absolute: int, rules: VictimRules) -> PreemptionSearch:
    """Try the nodes that Filter refused for reasons that eviction might resolve, until there are enough candidates.

    Enough are ``percentage`` percent of those nodes and at least ``absolute``, one of which violates no budget. kube-scheduler
    starts at a random node. This search starts with the oldest node, or, if there are more nodes than candidates wanted, at an
    offset that depends only on the pod's UID.
    """
    rows = attempt.verdicts.rows_with(Code.UNSCHEDULABLE)
    rows = rows[np.argsort(attempt.snapshot.table.arrival.view[rows], kind="stable")]
    wanted = min(len(rows), max(len(rows) * percentage // 100, absolute))
    within: list[Candidate] = []
    beyond: list[Candidate] = []
    errors: list[str] = []
    fitting: list[int] = []
    verdicts = Verdicts(len(attempt.verdicts))
    verdicts.refuse(np.arange(len(verdicts)), Status(Code.UNRESOLVABLE, "", (NOT_HELPFUL,)))
    missing = lambda: wanted - len(within) - len(beyond)  # noqa: E731
    for batch in _tried(attempt, _turned(rows, wanted, attempt.pod.uid), missing, rules):
        if batch.refuses_all(verdicts):
            continue
        rows_of: dict[int, tuple[Status, list[int]]] = {}
        for row, victims in batch.in_order():
            if isinstance(victims, Status):
                rows_of.setdefault(id(victims), (victims, []))[1].append(row)
                if victims.code is Code.ERROR:
                    errors.append(victims.message)
            elif not victims.pods:
                fitting.append(row)
                errors.append(_NOBODY_HAS_TO_GO.format(attempt.snapshot.table.nodes[row].name))
            else:
                found = beyond if victims.violations else within
                if len(found) < wanted:
                    found.append(Candidate(row, victims))
                if within and len(within) + len(beyond) >= wanted:
                    break
        for status, refused in rows_of.values():
            verdicts.refuse(np.array(refused), status)
        if within and len(within) + len(beyond) >= wanted:
            break
    return PreemptionSearch(verdicts, [*within, *beyond], errors, fitting)


def _turned(rows: _Rows, wanted: int, uid: str) -> _Rows:
    """Return the rows, rotated by an offset from the pod's UID if not all have to be tried."""
    if wanted >= len(rows):
        return rows
    start = int.from_bytes(blake2b(uid.encode(), digest_size=8).digest(), "little") % len(rows)
    return np.concatenate([rows[start:], rows[:start]])


class _Batch:
    """Rows that are tried one after the other.

    ``spared``    rows without a pod of lower priority
    ``together``  rows that were tried at once, with their ``answers``
    ``alone``     a function that tries one row, for all others
    """

    def __init__(
        self,
        rows: _Rows,
        spared: _Rows,
        together: _Rows,
        answers: EvictionAnswers | None,
        alone: Callable[[int], Victims | Status],
    ) -> None:
        self._rows, self._spared, self._together, self._answers, self._alone = rows, spared, together, answers, alone
        self._tried: dict[int, Victims | Status] = {}

    def refuses_all(self, verdicts: Verdicts) -> bool:
        """If eviction helps on no row, and no plugin raised, set the status of each row, and return True."""
        if self._answers is not None and self._answers.victims:
            return False
        refused = [(NOBODY_LESSER, self._spared)]
        if self._answers is not None:
            refused += self._answers.statuses_of(self._together)
        for row in self._left():
            found = self._tried[row] = self._alone(row)
            if not isinstance(found, Status):
                return False
            refused.append((found, np.array([row])))
        if any(status.code is Code.ERROR for status, _ in refused):
            return False
        for status, rows in refused:
            if len(rows):
                verdicts.refuse(rows, status)
        return True

    def _left(self) -> list[int]:
        """Return the rows that ``alone`` tries, in order."""
        tried = len(self._spared) + (0 if self._answers is None else len(self._together))
        if tried == len(self._rows):
            return []
        known = {*self._spared.tolist(), *(() if self._answers is None else self._together.tolist())}
        return [row for row in self._rows.tolist() if row not in known]

    def in_order(self) -> Iterator[tuple[int, Victims | Status]]:
        """Yield each row with its victims or the reason why it does not help."""
        known = self._tried | dict.fromkeys(self._spared.tolist(), NOBODY_LESSER)
        if self._answers is not None:
            known |= zip(self._together.tolist(), self._answers, strict=True)
        for row in self._rows.tolist():
            yield row, known[row] if row in known else self._alone(row)


def _tried(attempt: Attempt, rows: _Rows, missing: Callable[[], int], rules: VictimRules) -> Iterator[_Batch]:
    """Yield the rows in batches, in order.

    Rows of a batch are tried together where possible: first as many rows as candidates are ``missing``, then twice as many as
    are still missing. The minimum size of a batch grows fourfold each time, so that a search that finds few candidates has few
    batches.
    """
    budgets, ranking, units = rules
    start, least, factor = 0, _BATCH, 1
    while start < len(rows):
        size = max(factor * missing(), least)
        chunk: _Rows = rows[start : start + size]
        start += size
        least, factor = (least if factor == 1 else 4 * least), 2
        lesser = ranking.have_lesser(attempt.snapshot.table, chunk, attempt.pod.priority)
        grouped = np.array([units is not None and units.grouped(row) for row in chunk.tolist()], dtype=bool)
        lesser |= grouped
        together = chunk[lesser & ~grouped]
        if len(together) > 1:
            together = together[attempt.ignored(together)]
        many = attempt.what_ifs(together) if len(together) > 1 else None
        answers: EvictionAnswers | None = None
        if many is not None:
            ranked = ranking.of(attempt.snapshot.table, together)
            with many as nodes:
                answers = select_victims_everywhere(attempt.pod, nodes, ranked, together, budgets)
        yield _Batch(chunk, chunk[~lesser], together, answers, lambda row: _on_one_node(attempt, row, rules))


def _on_one_node(attempt: Attempt, row: int, rules: VictimRules) -> Victims | Status:
    budgets, ranking, units = rules
    with attempt.what_if(row) as node:
        if units is not None and units.grouped(row):
            return select_units(attempt.pod, row, node, units.on(row), budgets)
        return select_victims(attempt.pod, node, budgets, in_turn=ranking.in_turn)


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that does the least harm; of several, the first. There must be at least one candidate.

    Source  framework/preemption/preemption.go, pickOneNodeForPreemption
    """
    kinds: dict[Hashable, Candidate] = {}  # victims with equal harm are compared once
    for candidate in candidates:
        kinds.setdefault(harm_key(candidate.victims), candidate)
    left = list(kinds.values())
    for _, harm in HARMS:
        amounts = [harm(candidate.victims) for candidate in left]
        least = min(amounts)
        left = [candidate for candidate, amount in zip(left, amounts, strict=True) if amount == least]
        if len(left) == 1:
            break
    return left[0]


def harm_key(victims: Victims) -> Hashable:
    """Return a key that is equal only for victims whose eviction does equal harm."""
    return victims.violations, tuple([(pod.priority, pod.status.start_time) for pod in victims.pods])


#: The measures of harm, the most important first: what distinguishes the best candidate, and the number to minimize.
HARMS: Final[tuple[tuple[str, Callable[[Victims], int]], ...]] = (
    ("fewest budget violations", lambda victims: victims.violations),
    ("lowest highest victim priority", lambda victims: victims.pods[0].priority),
    ("lowest sum of priorities", lambda victims: sum(pod.priority + _LIFT for pod in victims.pods)),
    ("fewest victims", lambda victims: len(victims.pods)),
    # How long the most important victims have run, up to a constant; less is better.
    ("latest start of the most important victim", lambda victims: -earliest_start(victims.pods)),
)
