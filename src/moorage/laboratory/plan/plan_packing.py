"""Find a cheap set of nodes into which the pods fit by resources alone.

With a solver: column generation. A column is one node with the pods on it; for the dual prices of pods in the linear program,
an integer program for each offer finds the node of the highest value. Then an integer program chooses among all columns.
Without a solver: nodes are bought one at a time, each the best used one for its price when filled with the largest pods first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.plan.plan_bound import LinearProgram, Solution, add_existing_nodes, add_limits, has_solver
from moorage.laboratory.plan.plan_problem import PlanProblem

_ROUNDS: Final = 80
_TINY: Final = 1e-7
#: Up to how many places for shapes on existing nodes the integer program has a column for each.
_MOST_PLACES: Final = 4_000
#: The pods of each shape on one node.
Pattern = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodePacking:
    """The nodes of a packing by offer, and their cost.

    ``proven``  no packing of these pods costs less
    ``kept``    for each of the problem's existing nodes, or groups of them, the pods of each shape that it takes
    """

    counts: tuple[int, ...]
    cost: float
    proven: bool = False
    kept: tuple[Pattern, ...] = ()


def pack_nodes(problem: PlanProblem, prices: Sequence[float], time: TimeBudget) -> NodePacking | None:
    """Return a packing in which existing nodes take what their summed room allows; None if none was found within the limits.

    It is where a search starts: see ``real_packing`` for one whose pods all have a place.
    """
    greedy = _greedy(problem, prices)
    if not has_solver():
        return greedy
    return _generated(problem, prices, time) or greedy


def real_packing(
    problem: PlanProblem, prices: Sequence[float], time: TimeBudget, found: NodePacking
) -> NodePacking | None:  # fmt: skip
    """Return a packing in which every pod has a place on one node, without evictions: ``found``, if it is one.

    Return None if none was found within the limits.
    """
    each = replace(problem, held=problem.existing)
    total = [min(shape.count, sum(pods[s] for pods in found.kept)) for s, shape in enumerate(problem.shapes)]
    if not any(_after_existing(each, total)):
        return found
    greedy = _greedy(each, prices)
    if not has_solver() or len(each.held) * len(each.shapes) > _MOST_PLACES:
        return greedy
    packing = _generated(each, prices, time)
    exact = packing is not None and all(
        _holds(each, held.free, pods) for held, pods in zip(each.held, packing.kept, strict=True)
    )
    return packing if exact else greedy


# -- column generation ------------------------------------------------------------------------------------------------


def _generated(problem: PlanProblem, prices: Sequence[float], time: TimeBudget) -> NodePacking | None:
    columns = list(dict.fromkeys(_first_columns(problem)))
    best: Solution | None = None
    complete = False
    for _ in range(_ROUNDS):
        program, _, _, covers, limits = _master(problem, prices, columns)
        best = program.solve(time, relaxed=True)
        if best is None or time.is_over():
            break
        worth = [best.duals[row] for row in covers]
        scarce = [
            sum(best.duals[row] * limit.weights.get(offer.type.name, 0.0) / max(limit.most, 1.0)
                for limit, row in zip(problem.limits, limits, strict=True)) for offer in problem.offers
        ]  # fmt: skip
        fresh = [
            (o, pattern)
            for o in range(len(problem.offers))
            if (pattern := _worthiest(problem, o, worth, prices[o] - scarce[o], time)) is not None
            and (o, pattern) not in columns
        ]  # fmt: skip
        if not fresh:
            complete = True
            break
        columns += fresh
    program, used, kept, _, _ = _master(problem, prices, columns)
    whole = program.solve(time)
    if whole is None:
        return None
    counts = [0] * len(problem.offers)
    for (o, _), column in zip(columns, used, strict=True):
        counts[o] += round(whole.values[column])
    cost = sum(price * count for price, count in zip(prices, counts, strict=True))
    proven = complete and best is not None and whole.proven and cost <= best.cost + _TINY
    pods = tuple(
        tuple(round(whole.values[places[s]]) if s in places else 0 for s in range(len(problem.shapes))) for places in kept
    )
    return NodePacking(tuple(counts), round(cost, 9), proven, pods)


def _first_columns(problem: PlanProblem) -> list[tuple[int, Pattern]]:
    """Return, for each offer, a node full of each shape, and one filled with the largest pods first."""
    found = []
    for o in range(len(problem.offers)):
        for s in range(len(problem.shapes)):
            only = tuple(shape.count if at == s else 0 for at, shape in enumerate(problem.shapes))
            found.append((o, fill(problem, o, only)))
        found.append((o, fill(problem, o, tuple(shape.count for shape in problem.shapes))))
    return [(o, pattern) for o, pattern in found if any(pattern)]


def _master(
    problem: PlanProblem, prices: Sequence[float], columns: Sequence[tuple[int, Pattern]]
) -> tuple[LinearProgram, list[int], list[dict[int, int]], list[int], list[int]]:
    program = LinearProgram()
    used = [program.column(prices[o], whole=True) for o, _ in columns]
    placed: list[dict[int, float]] = [{} for _ in problem.shapes]
    for (_, pattern), column in zip(columns, used, strict=True):
        for s, count in enumerate(pattern):
            if count:
                placed[s][column] = float(count)
    kept = add_existing_nodes(program, problem, placed)
    covers = [program.row(placed[s], least=float(shape.count)) for s, shape in enumerate(problem.shapes)]
    limits = add_limits(program, problem, [(o, column) for (o, _), column in zip(columns, used, strict=True)])
    return program, used, kept, covers, limits


def _worthiest(problem: PlanProblem, o: int, worth: Sequence[float], price: float, time: TimeBudget) -> Pattern | None:
    """Return the most valuable set of pods for one node of an offer; None if its value is below the node's price."""
    program = LinearProgram()
    columns: dict[int, int] = {}
    for s, shape in enumerate(problem.shapes):
        if problem.fits[o][s] and worth[s] > _TINY:
            columns[s] = program.column(-worth[s], 1.0 if shape.alone else float(shape.count), whole=True)
    if not columns:
        return None
    for name in problem.resources:
        room = problem.room[o].get(name, 0)
        scale = max(room, 1)
        program.row(
            {column: problem.shapes[s].needs.get(name, 0) / scale for s, column in columns.items()}, most=room / scale + 1e-12
        )
    found = program.solve(time)
    if found is None or -found.cost <= price + _TINY:
        return None
    pattern = tuple(round(found.values[columns[s]]) if s in columns else 0 for s in range(len(problem.shapes)))
    return pattern if _holds(problem, problem.room[o], pattern) else None


def _holds(problem: PlanProblem, room: Mapping[str, int], pattern: Pattern) -> bool:
    """Return True if a node with this room has it for a pattern, in whole numbers."""
    return all(
        sum(count * shape.needs.get(name, 0) for count, shape in zip(pattern, problem.shapes, strict=True)) <= room.get(name, 0)
        for name in problem.resources
    )


# -- largest first ----------------------------------------------------------------------------------------------------


def shares(problem: PlanProblem) -> list[float]:
    """Return the size of each shape: the sum over resources of its share of the largest node."""
    most = {name: max((room.get(name, 0) for room in problem.room), default=0) for name in problem.resources}
    return [sum(shape.needs.get(name, 0) / most[name] for name in problem.resources if most[name]) for shape in problem.shapes]


def fill(problem: PlanProblem, o: int, left: Sequence[int]) -> Pattern:
    """Return the pods that an empty node takes, the largest first."""
    return _filled(problem, problem.room[o], problem.fits[o], left, 1)


def _filled(problem: PlanProblem, room: Mapping[str, int], fits: Sequence[bool], left: Sequence[int], nodes: int) -> Pattern:
    """Return the pods that room on so many nodes takes, the largest first."""
    free, size = dict(room), shares(problem)
    taken = [0] * len(problem.shapes)
    for s in sorted(range(len(problem.shapes)), key=lambda at: -size[at]):
        shape = problem.shapes[s]
        if not left[s] or not fits[s]:
            continue
        most = min([left[s], *(free.get(name, 0) // need for name, need in shape.needs.items() if need)])
        taken[s] = max(0, min(most, nodes) if shape.alone else most)
        for name, need in shape.needs.items():
            free[name] = free.get(name, 0) - need * taken[s]
    return tuple(taken)


def _greedy(problem: PlanProblem, prices: Sequence[float]) -> NodePacking | None:
    """Buy the node that pods fill best for its price, one after the other, until all pods have a node."""
    kept = _taken_by_existing(problem, [shape.count for shape in problem.shapes])
    left = [shape.count - sum(pods[s] for pods in kept) for s, shape in enumerate(problem.shapes)]
    counts = [0] * len(problem.offers)
    while any(left):
        found = best_offer(problem, prices, left, counts)
        if found is None:
            return None
        o, pattern = found
        counts[o] += 1
        left = [count - taken for count, taken in zip(left, pattern, strict=True)]
    return NodePacking(tuple(counts), round(sum(p * n for p, n in zip(prices, counts, strict=True)), 9), kept=kept)


def best_offer(
    problem: PlanProblem, prices: Sequence[float], left: Sequence[int], counts: Sequence[int], budget: float = math.inf
) -> tuple[int, Pattern] | None:
    """Return the offer whose node takes the most of the remaining pods for its price, and the pods that it takes.

    ``budget``: what the node may cost at most
    """
    size = shares(problem)
    best: tuple[float, int, Pattern] | None = None
    for o in range(len(problem.offers)):
        pattern = fill(problem, o, left)
        if not any(pattern) or prices[o] > budget or problem.reached(counts, o):
            continue
        used = sum(count * share for count, share in zip(pattern, size, strict=True))
        rate = (prices[o] or 1e-9) / used
        if best is None or rate < best[0]:
            best = rate, o, pattern
    return None if best is None else best[1:]


def _taken_by_existing(problem: PlanProblem, wanted: Sequence[int]) -> tuple[Pattern, ...]:
    """Return how many of the wanted pods of each shape existing nodes take, or groups of them by their summed room."""
    left, taken = list(wanted), []
    for held in problem.held:
        taken.append(_filled(problem, held.free, held.fits, left, held.nodes))
        left = [count - some for count, some in zip(left, taken[-1], strict=True)]
    return tuple(taken)


def _after_existing(problem: PlanProblem, wanted: Sequence[int]) -> list[int]:
    """Return how many of the wanted pods of each shape the existing nodes leave over."""
    taken = _taken_by_existing(problem, wanted)
    return [count - sum(pods[s] for pods in taken) for s, count in enumerate(wanted)]
