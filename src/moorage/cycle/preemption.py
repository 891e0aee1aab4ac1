"""Preemption: find the node and the victims of lower priority that make room for a pod that fits nowhere.

``find_candidates`` tries nodes in what-ifs (see ``moorage.cycle.reprieve``) until it has enough candidates, and ``choose``
picks the one that does the least harm. This module changes no state and evicts no pod.

Source  kube-scheduler 1.36, framework/preemption/preemption.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.disruption_budgets import Budgets
from moorage.cycle.importance import earliest_start
from moorage.cycle.reprieve import NOBODY_LESSER, Victims, select_victims, select_victims_everywhere
from moorage.cycle.row_importance import Ranking
from moorage.framework.points import Attempt
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Status

__all__ = ["HARMS", "NOT_HELPFUL", "Candidate", "PreemptionSearch", "choose", "find_candidates"]

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


def find_candidates(attempt: Attempt, budgets: Budgets, percentage: int, absolute: int, ranking: Ranking) -> PreemptionSearch:
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
    rows_of: dict[int, tuple[Status, list[int]]] = {}
    missing = lambda: wanted - len(within) - len(beyond)  # noqa: E731
    for row, victims in _tried(attempt, _turned(rows, wanted, attempt.pod.uid), missing, budgets, ranking):
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
    return PreemptionSearch(_explained(len(attempt.verdicts), rows_of.values()), [*within, *beyond], errors, fitting)


def _explained(rows: int, refused: Iterable[tuple[Status, list[int]]]) -> Verdicts:
    """Return a status for each row: why it is not a candidate."""
    verdicts = Verdicts(rows)
    verdicts.refuse(np.arange(rows), Status(Code.UNRESOLVABLE, "", (NOT_HELPFUL,)))
    for status, of_rows in refused:
        verdicts.refuse(np.array(of_rows), status)
    return verdicts


def _turned(rows: _Rows, wanted: int, uid: str) -> _Rows:
    """Return the rows, rotated by an offset from the pod's UID if not all have to be tried."""
    if wanted >= len(rows):
        return rows
    start = int.from_bytes(blake2b(uid.encode(), digest_size=8).digest(), "little") % len(rows)
    return np.concatenate([rows[start:], rows[:start]])


def _tried(
    attempt: Attempt, rows: _Rows, missing: Callable[[], int], budgets: Budgets, ranking: Ranking
) -> Iterator[tuple[int, Victims | Status]]:
    """Yield each row with its victims or the reason why it does not help, in the order of ``rows``.

    Rows are tried in batches where possible: first as many rows as candidates are ``missing``, then twice as many as are still
    missing. The minimum size of a batch grows fourfold each time, so that a search that finds few candidates has few batches.
    """
    start, least, factor = 0, _BATCH, 1
    while start < len(rows):
        batch = max(factor * missing(), least)
        chunk: _Rows = rows[start : start + batch]
        start += batch
        least, factor = (least if factor == 1 else 4 * least), 2
        lesser = ranking.have_lesser(attempt.snapshot.table, chunk, attempt.pod.priority)
        answers: dict[int, Victims | Status] = dict.fromkeys(chunk[~lesser].tolist(), NOBODY_LESSER)
        together = chunk[lesser]
        together = together[attempt.ignored(together)]
        many = attempt.what_ifs(together) if len(together) else None
        if many is not None:
            ranked = ranking.of(attempt.snapshot.table, together.tolist())
            with many as nodes:
                found = select_victims_everywhere(attempt.pod, nodes, ranked, together, budgets)
            answers |= zip(together.tolist(), found, strict=True)
        for row in chunk.tolist():
            yield row, answers[row] if row in answers else _on_one_node(attempt, row, budgets)


def _on_one_node(attempt: Attempt, row: int, budgets: Budgets) -> Victims | Status:
    with attempt.what_if(row) as node:
        return select_victims(attempt.pod, node, budgets)


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that does the least harm; of several, the first. There must be at least one candidate.

    Source  framework/preemption/preemption.go, pickOneNodeForPreemption
    """
    kinds: dict[Hashable, Candidate] = {}  # victims with equal harm are compared once
    for candidate in candidates:
        kinds.setdefault(_harm_key(candidate.victims), candidate)
    left = list(kinds.values())
    for _, harm in HARMS:
        amounts = [harm(candidate.victims) for candidate in left]
        least = min(amounts)
        left = [candidate for candidate, amount in zip(left, amounts, strict=True) if amount == least]
        if len(left) == 1:
            break
    return left[0]


def _harm_key(victims: Victims) -> Hashable:
    return victims.violations, tuple([(pod.priority, pod.status.start_time) for pod in victims.pods])


def _budgets_exceeded(victims: Victims) -> int:
    return victims.violations


def _highest_priority(victims: Victims) -> int:
    return victims.pods[0].priority


def _sum_of_priorities(victims: Victims) -> int:
    return sum(pod.priority + _LIFT for pod in victims.pods)


def _number(victims: Victims) -> int:
    return len(victims.pods)


def _time_run(victims: Victims) -> int:
    """Return how long the most important victims have run, up to a constant; less is better."""
    return -earliest_start(victims.pods)


#: The measures of harm, the most important first: what distinguishes the best candidate, and the number to minimize.
HARMS: Final[tuple[tuple[str, Callable[[Victims], int]], ...]] = (
    ("fewest budget violations", _budgets_exceeded),
    ("lowest highest victim priority", _highest_priority),
    ("lowest sum of priorities", _sum_of_priorities),
    ("fewest victims", _number),
    ("latest start of the most important victim", _time_run),
)
