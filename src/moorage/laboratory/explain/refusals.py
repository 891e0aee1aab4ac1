"""Derive report values from the verdicts of all plugins: groups of nodes, the funnel, conflicts, and the nearest node."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from moorage.framework.explaining import Detail, has_shortfall
from moorage.framework.verdicts import Code, Status
from moorage.laboratory.explain.verdicts import Constraint, EveryVerdict, Judgement, Stage, row_names
from moorage.report.explanation import ConflictTerm, FunnelStep, NearestNode, NodeGroup, RefusalReport
from moorage.state.columns import BoolArray

# Correction sets and conflicts: which constraints to give up, and which cannot all hold on any node.
#
# Each node has a set: the constraints that refuse it. If constraints are independent, the correction sets are the
# inclusion-minimal sets: without the constraints of one of them, the pod fits somewhere. The conflicts are the
# inclusion-minimal families of constraints that together refuse every node, that is, the minimal hitting sets of all sets.

#: How many conflicts are returned.
MOST_CONFLICTS = 20
#: Maximum number of partial conflicts to extend before the search ends.
_MOST_STEPS = 20_000
#: The bits of an integer that numbers sets of constraints.
_MOST_BITS = 62

Family = frozenset[Constraint]


def sets_of(constraints: Mapping[Constraint, BoolArray], among: BoolArray | None = None) -> list[Family]:
    """Return the distinct sets of constraints that refuse a row, ``among`` the given rows; the empty set if a row is open."""
    if not constraints:
        return [frozenset()]
    masks = np.stack(list(constraints.values()))
    columns = _distinct_columns(masks if among is None else masks[:, among])
    keys = list(constraints)
    return [frozenset(key for key, there in zip(keys, column, strict=True) if there) for column in columns.T.tolist()]


def _distinct_columns(masks: BoolArray) -> BoolArray:
    """Return the distinct columns of an array, in ascending order."""
    if len(masks) > _MOST_BITS:
        distinct: BoolArray = np.unique(masks, axis=1)
        return distinct
    bits = np.left_shift(1, np.arange(len(masks))[::-1])[:, None]
    return (np.unique((masks * bits).sum(axis=0)) & bits) > 0


def correction_sets(sets: Iterable[Family]) -> list[Family]:
    """Return the inclusion-minimal sets, the smallest first."""
    kept: list[Family] = []
    for one in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(other <= one for other in kept):
            kept.append(one)
    return kept


def conflicts(sets: Iterable[Family], most: int = MOST_CONFLICTS, order: Sequence[Constraint] = ()) -> list[Family]:
    """Return the inclusion-minimal families that share a constraint with every set, the smallest first; at most so many.

    There is none if some set is empty: then a node is open. Families of one size are sorted by the ``order`` of constraints.
    """
    place = {one: at for at, one in enumerate(order)}

    def rank(one: Constraint) -> tuple[int, Constraint]:
        return place.get(one, len(place)), one

    corrections = correction_sets(sets)
    if not corrections or not corrections[0]:
        return []
    serial = count()
    heap: list[tuple[int, int, Family]] = [(0, next(serial), frozenset())]
    seen: set[Family] = set()
    found: list[Family] = []
    while heap and len(found) < most and len(seen) < _MOST_STEPS:
        _, _, chosen = heapq.heappop(heap)
        at = next((at for at, one in enumerate(corrections) if chosen.isdisjoint(one)), None)
        if at is None:
            found.append(chosen)
            continue
        for more in sorted(corrections[at], key=rank):
            larger = chosen | {more}
            if larger not in seen and _each_is_needed(larger, corrections[: at + 1]):
                seen.add(larger)
                heapq.heappush(heap, (len(larger), next(serial), larger))
    return sorted(found, key=lambda family: (len(family), sorted(map(rank, family))))


def _each_is_needed(chosen: Family, corrections: Sequence[Family]) -> bool:
    """Return whether, for each chosen constraint, some set has no other chosen one."""
    alone: set[Constraint] = set()
    for one in corrections:
        hits = one & chosen
        if len(hits) == 1:
            alone |= hits
    return len(alone) == len(chosen)


#: Plugins that decide which nodes are eligible for a pod, whatever it requests. The others judge the eligible nodes.
ELIGIBILITY = frozenset({"NodeUnschedulable", "TaintToleration"})

#: Maximum number of nodes of a group whose conflicting objects are named, and of names.
_NAMED = 3

#: Returns the cost of the cheapest change for the node of a row; None if it is not known.
CostOf = Callable[[int], float | None]


def groups(judged: EveryVerdict, cost_of: CostOf | None = None) -> tuple[NodeGroup, ...]:
    """Return the nodes that are refused for equal reasons, in groups.

    Groups are sorted by the cost of their least change where it is known, else by the number of refusals; then the larger
    first, then by name.
    """
    if not len(judged.snapshot.table):
        return ()
    first, kind = judged.kinds
    short, names = _shortfalls(judged), row_names(judged.snapshot.table)
    found: list[NodeGroup] = []
    for number, representative in enumerate(first.tolist()):
        if judged.feasible[representative]:
            continue
        alike = names.in_order(np.flatnonzero(kind == number))
        rows = alike.tolist()
        nearest = rows[int(short[alike].argmin())]
        cost = None if cost_of is None else cost_of(nearest)
        refusals = tuple(_refusals(judged, nearest, rows))
        found.append(NodeGroup(tuple(rows), refusals, nearest, cost, _are_varied(judged, nearest, rows)))
    return tuple(sorted(found, key=lambda group: _rank(group, judged)))


def _rank(group: NodeGroup, judged: EveryVerdict) -> tuple[float, int, int, str]:
    cost = float("inf") if group.cost is None else group.cost
    return cost, len(group.refusals), -len(group.nodes), judged.names[group.nodes[0]]


def _shortfalls(judged: EveryVerdict) -> npt.NDArray[np.float64]:
    """Return the shortfall of each row: the sum over the plugins that report one."""
    total = np.zeros(len(judged.snapshot.table))
    for one in judged.refusing:
        if one.stage is Stage.FILTER and has_shortfall(one.plugin):
            with suppress(Exception):  # an explanation must not fail where the decision did not
                total += one.plugin.shortfall(one.state, judged.pod, judged.snapshot.nodes) * one.refused
    return total


def _refusals(judged: EveryVerdict, row: int, alike: Sequence[int]) -> Iterator[RefusalReport]:
    """Yield each reason why a row is refused, in running order; the first reason of a plugin carries its detail.

    ``alike`` are rows that are refused for equal reasons: the conflicting objects on a few of them are named, too.
    """
    for one in judged.refusing:
        status = one.verdicts.status(row)
        if status is None:
            continue
        detail = _shared(judged, one, row, alike)
        for at, reason in enumerate(status.reasons or ("",)):
            yield _report(one, status, reason, detail if at == 0 else None)


def _shared(judged: EveryVerdict, one: Judgement, row: int, alike: Sequence[int]) -> Detail | None:
    """Return the detail of one row, with the corresponding objects of a few other rows."""
    detail = judged.why(one, row)
    if detail is None or not detail.objects:
        return detail
    others = [judged.why(one, other) for other in alike[:_NAMED] if other != row]
    same = [other.objects for other in others if other is not None and other.text == detail.text]
    named = sorted({name for objects in (detail.objects, *same) for name in objects})
    return replace(detail, objects=tuple(named[:_NAMED]))


def _are_varied(judged: EveryVerdict, row: int, alike: Sequence[int]) -> bool:
    """Return whether the details of a few rows of a group differ in more than the names of objects."""
    others = [other for other in alike[:_NAMED] if other != row]
    for one in judged.refusing if others else ():
        if one.verdicts.status(row) is not None:
            texts = {detail.text if detail is not None else "" for detail in (judged.why(one, at) for at in (row, *others))}
            if len(texts) > 1:
                return True
    return False


def _report(one: Judgement, status: Status, reason: str, detail: Detail | None) -> RefusalReport:
    return RefusalReport(
        plugin=status.plugin or one.name,
        reason=reason,
        resolvable=status.code is Code.UNSCHEDULABLE,
        stage=one.stage.value,
        error=status.code is Code.ERROR,
        detail="" if detail is None else phrase(detail),
        terms=() if detail is None else detail.terms,
        numbers={} if detail is None else detail.numbers,
    )


def phrase(detail: Detail) -> str:
    """Return the text of a detail with its objects: ``search-0, search-1 have app=search``."""
    if not detail.objects:
        return detail.text
    text = detail.text
    if len(detail.objects) > 1 and text.startswith("has "):
        text = f"have {text.removeprefix('has ')}"
    return f"{', '.join(detail.objects)} {text}"


def funnel(judged: EveryVerdict) -> tuple[FunnelStep, ...]:
    """Return the plugins in running order, with the nodes left after each."""
    rows = len(judged.snapshot.table)
    refusals = np.zeros(rows, dtype=np.int64)
    for one in judged.refusing:
        refusals += one.refused
    left = np.ones(rows, dtype=bool)
    steps = []
    for one in judged.judgements:
        before = int(left.sum())
        left &= ~one.refused
        alone = int((one.refused & (refusals == 1)).sum())
        steps.append(FunnelStep(one.name or "nominated pods", before, int(left.sum()), alone, one.stage.value, one.skips))
    return tuple(steps)


def all_conflicts(judged: EveryVerdict) -> list[Family]:
    """Return the minimal families of constraints that no node satisfies together, the smallest first."""
    return conflicts(sets_of(judged.constraints), order=list(judged.constraints)) if len(judged.snapshot.table) else []


def eligible_conflict(judged: EveryVerdict) -> Family | None:
    """Return the smallest conflict over the nodes that the pod may use at all; None if there are no such nodes.

    Of constraints that do so alone, one that refuses every node is the stronger reason.
    """
    eligible = _eligible(judged)
    if not eligible.any():
        return None
    masks: Mapping[Constraint, BoolArray] = {
        key: rows for key, rows in judged.constraints.items() if key.plugin not in ELIGIBILITY
    }
    found = conflicts(sets_of(masks, eligible), order=list(masks))
    alone = (one for one in found if len(one) == 1 and all(masks[key].all() for key in one))
    return next(alone, found[0]) if found else None


def _eligible(judged: EveryVerdict) -> BoolArray:
    eligible = np.ones(len(judged.snapshot.table), dtype=bool)
    for key, rows in judged.constraints.items():
        if key.plugin in ELIGIBILITY:
            eligible &= ~rows
    return eligible


def conflict_terms(judged: EveryVerdict, family: Family) -> tuple[ConflictTerm, ...]:
    """Return a conflict's constraints in running order."""
    order = list(judged.constraints)
    return tuple(ConflictTerm(*one) for one in sorted(family, key=order.index))


def nearest_of(found: tuple[NodeGroup, ...], hints: tuple[str, ...] = ()) -> NearestNode | None:
    """Return the node that lacks least: the nearest of the first group; ``hints`` are about names that no node has."""
    if not found:
        return None
    return NearestNode(found[0].nearest, found[0].refusals, hints)
