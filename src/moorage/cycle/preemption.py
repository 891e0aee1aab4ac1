"""Preemption: which pods of lower priority would have to go, and where, for a pod that fits nowhere?

Nodes that might help are tried in what-ifs (see ``moorage.cycle.reprieve``) until there are enough candidates. Of these the one
where the least harm is done is chosen. Nothing is changed here; the answer is a value.

Source  kube-scheduler 1.36, framework/preemption/preemption.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.disruption import Budgets
from moorage.cycle.importance import earliest_start
from moorage.cycle.ranking import Ranking
from moorage.cycle.reprieve import NOBODY_LESSER, Victims, select_victims, select_victims_everywhere
from moorage.framework.points import Attempt
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Status

__all__ = ["NOT_HELPFUL", "Candidate", "Search", "choose", "find_candidates"]

# kube-scheduler's own texts, kept word for word: people search their events for them.
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NOBODY_HAS_TO_GO: Final = 'expected at least one victim pod on node "{}"'

#: Added to each priority before they are summed, so that fewer victims of a negative priority never look worse than more.
_LIFT: Final = 2**31
#: Nodes tried at once, at least.
_BATCH: Final = 256

_Rows = npt.NDArray[np.intp]


class Candidate(NamedTuple):
    """A node that the pod fits on once the victims are gone; at least one."""

    row: int
    victims: Victims


@dataclass(frozen=True, slots=True)
class Search:
    """What was found: ``candidates`` in the order the choice goes by; ``verdicts`` says why each other row is none.

    ``errors`` tells of nodes that a plugin could not judge, and of those on which the pod fits although Filter refused them;
    ``fitting`` are the rows of these.
    """

    verdicts: Verdicts
    candidates: list[Candidate]
    errors: list[str]
    fitting: list[int]


def find_candidates(attempt: Attempt, budgets: Budgets, percentage: int, absolute: int, ranking: Ranking) -> Search:
    """Try the nodes that Filter refused for reasons that evicting might lift, until there are enough candidates.

    Enough is ``percentage`` of those nodes, at least ``absolute``, one of them within all budgets. kube-scheduler starts
    anywhere; here the search starts with the node that came first, or where there are more nodes than have to be found, at
    a place that hangs on the pod's UID alone.
    """
    rows = attempt.verdicts.rows_with(Code.UNSCHEDULABLE)
    rows = rows[np.argsort(attempt.snapshot.table.arrival.view[rows], kind="stable")]
    wanted = min(len(rows), max(len(rows) * percentage // 100, absolute))
    within: list[Candidate] = []
    beyond: list[Candidate] = []
    errors: list[str] = []
    fitting: list[int] = []
    rows_of: dict[int, tuple[Status, list[int]]] = {}
    for row, victims in _tried(attempt, _turned(rows, wanted, attempt.pod.uid), max(wanted, _BATCH), budgets, ranking):
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
    return Search(_explained(len(attempt.verdicts), rows_of.values()), [*within, *beyond], errors, fitting)


def _explained(rows: int, refused: Iterable[tuple[Status, list[int]]]) -> Verdicts:
    """Return a status for each row: why it is no candidate."""
    verdicts = Verdicts(rows)
    verdicts.refuse(np.arange(rows), Status(Code.UNRESOLVABLE, "", (NOT_HELPFUL,)))
    for status, of_rows in refused:
        verdicts.refuse(np.array(of_rows), status)
    return verdicts


def _turned(rows: _Rows, wanted: int, uid: str) -> _Rows:
    """Return the rows, starting elsewhere for each pod where not all have to be tried."""
    if wanted >= len(rows):
        return rows
    start = int.from_bytes(blake2b(uid.encode(), digest_size=8).digest(), "little") % len(rows)
    return np.concatenate([rows[start:], rows[:start]])


def _tried(
    attempt: Attempt, rows: _Rows, batch: int, budgets: Budgets, ranking: Ranking
) -> Iterator[tuple[int, Victims | Status]]:
    """Yield each row with its victims or the reason why it does not help, in the order of ``rows``.

    Rows are tried many at once where that is possible; ``batch`` at first, then more, since few were of use.
    """
    start = 0
    while start < len(rows):
        chunk: _Rows = rows[start : start + batch]
        start, batch = start + batch, 4 * batch
        lesser = ranking.have_lesser(attempt.snapshot.table, chunk, attempt.pod.priority)
        answers: dict[int, Victims | Status] = dict.fromkeys(chunk[~lesser].tolist(), NOBODY_LESSER)
        together = chunk[lesser]
        if attempt.contended:
            together = together[[row not in attempt.contended for row in together.tolist()]]
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
    """Return the candidate that does the least harm; there must be one. Of equals the first.

    Source  framework/preemption/preemption.go, pickOneNodeForPreemption
    """
    kinds: dict[Hashable, Candidate] = {}  # victims that cannot be told apart by harm are weighed once
    for candidate in candidates:
        kinds.setdefault(_all_that_weighs(candidate.victims), candidate)
    left = list(kinds.values())
    for harm in _HARMS:
        amounts = [harm(candidate.victims) for candidate in left]
        least = min(amounts)
        left = [candidate for candidate, amount in zip(left, amounts, strict=True) if amount == least]
        if len(left) == 1:
            break
    return left[0]


def _all_that_weighs(victims: Victims) -> Hashable:
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
    """How long the most important of them have run, up to an arbitrary now."""
    return -earliest_start(victims.pods)


#: What counts as harm, the gravest first.
_HARMS: Final[tuple[Callable[[Victims], int], ...]] = (
    _budgets_exceeded, _highest_priority, _sum_of_priorities, _number, _time_run,
)  # fmt: skip
