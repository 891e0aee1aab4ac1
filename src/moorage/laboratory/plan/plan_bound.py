"""A lower bound of the cost of nodes, which holds for any scheduler.

The program counts, for each offer, the nodes to buy and the pods of each shape that they take together. It sums the room of
nodes, so it allows more than any real packing: its optimum is a lower bound. Without a solver, the bound is the largest of
those for single resources.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np

from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.plan.plan_problem import PlanProblem

# Linear and integer programs, solved by HiGHS if it is installed (the extra ``plan``).

ENDLESS: Final = float("inf")


@cache
def _highs() -> Any:
    """Return the module ``highspy``; None if it is not installed."""
    try:
        return importlib.import_module("highspy")
    except ImportError:
        return None


def has_solver() -> bool:
    """Return True if programs can be solved."""
    return _highs() is not None


@contextmanager
def _c_output_off() -> Iterator[None]:
    """Discard what C code prints meanwhile: since 1.16, the constructor of HiGHS prints a banner, before any option is set."""
    flush = ctypes.CDLL(None).fflush
    flush(None)
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
        flush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(frozen=True, slots=True)
class Solution:
    """The best values found.

    ``cost``    their cost
    ``bound``   no values cost less
    ``duals``   by row; for linear programs only
    ``proven``  whether the values are optimal
    """

    values: tuple[float, ...]
    cost: float
    bound: float
    duals: tuple[float, ...] = ()
    proven: bool = True


@dataclass
class LinearProgram:
    """Minimise cost over columns from 0 on, subject to rows. Add columns first."""

    costs: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, Mapping[int, float]]] = field(default_factory=list)

    def column(self, cost: float = 0.0, most: float = ENDLESS, *, whole: bool = False) -> int:
        """Add a column with values from 0 to ``most`` and return its number."""
        self.costs.append(cost)
        self.most.append(most)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, entries: Mapping[int, float], *, least: float = -ENDLESS, most: float = ENDLESS) -> int:
        """Add a row and return its number."""
        self.rows.append((least, most, entries))
        return len(self.rows) - 1

    def solve(self, budget: TimeBudget, *, relaxed: bool = False) -> Solution | None:
        """Return the best solution; None if there is none, or none was found within the budget.

        ``relaxed``: whole columns may have fractions.
        """
        highs = _highs()
        with _c_output_off():
            solver = highs.Highs()
        for name, value in (
            ("output_flag", False), ("threads", 1), ("random_seed", 1), ("time_limit", max(0.1, budget.left_s)),
            ("mip_rel_gap", 1e-9), ("mip_abs_gap", 1e-9),
        ):  # fmt: skip
            solver.setOptionValue(name, value)
        solver.passModel(self._model(highs, relaxed=relaxed))
        solver.run()
        if solver.getModelStatus() == highs.HighsModelStatus.kTimeLimit:
            budget.note_spent()
        info = solver.getInfo()
        if info.primal_solution_status != 2:  # feasible
            return None
        solution = solver.getSolution()
        integer = any(self.whole) and not relaxed
        bound = float(info.mip_dual_bound) if integer else float(info.objective_function_value)
        proven = solver.getModelStatus() == highs.HighsModelStatus.kOptimal
        if not integer and not proven:
            bound = 0.0
        duals = () if integer else tuple(solution.row_dual)
        return Solution(tuple(solution.col_value), float(info.objective_function_value), bound, duals, proven)

    def _model(self, highs: Any, *, relaxed: bool) -> Any:
        model = highs.HighsLp()
        model.num_col_, model.num_row_ = len(self.costs), len(self.rows)
        model.col_cost_ = np.array(self.costs, dtype=float)
        model.col_lower_ = np.zeros(len(self.costs))
        model.col_upper_ = np.array(self.most, dtype=float)
        model.row_lower_ = np.array([least for least, _, _ in self.rows], dtype=float)
        model.row_upper_ = np.array([most for _, most, _ in self.rows], dtype=float)
        counts = [len(entries) for _, _, entries in self.rows]
        matrix = model.a_matrix_
        matrix.format_ = highs.MatrixFormat.kRowwise
        matrix.start_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        matrix.index_ = np.array([at for _, _, entries in self.rows for at in entries], dtype=np.int32)
        matrix.value_ = np.array([value for _, _, entries in self.rows for value in entries.values()], dtype=float)
        if not relaxed and any(self.whole):
            kinds = highs.HighsVarType
            model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.whole]
        return model


@dataclass(frozen=True, slots=True)
class CostBound:
    """``cost`` is None if no number of nodes within the limits of the types is enough.

    ``kind``    ``integer``, ``linear`` or ``resource``: which program gave it
    ``counts``  the nodes by offer of the program's best solution; not a packing
    """

    cost: float | None
    kind: str
    counts: tuple[int, ...] = ()


def cost_bound(problem: PlanProblem, prices: Sequence[float], budget: TimeBudget) -> CostBound:
    """Return the bound for prices by offer."""
    if not has_solver():
        return CostBound(_resource_bound(problem, prices), "resource")
    program, nodes = _program(problem, prices)
    relaxed = program.solve(budget, relaxed=True)
    if relaxed is None:
        return CostBound(None, "linear")
    whole = program.solve(budget)
    if whole is None:
        return CostBound(relaxed.bound, "linear")
    counts = tuple(round(whole.values[column]) for column in nodes)
    cost = max(relaxed.bound, whole.bound)
    return CostBound(round(cost, 9), "integer" if whole.proven else "linear", counts)


def _program(problem: PlanProblem, prices: Sequence[float]) -> tuple[LinearProgram, list[int]]:
    program = LinearProgram()
    nodes = [program.column(price, whole=True) for price in prices]
    placed: list[dict[int, float]] = [{} for _ in problem.shapes]
    for o in range(len(problem.offers)):
        _add_room(program, problem, placed, problem.fits[o], problem.room[o], nodes[o])
    for name in problem.resources:  # all requests that do not fit into really free room: evicted pods need room as well
        if (need := _lacking(problem, name)) > 0:
            rooms = {nodes[o]: room.get(name, 0) / need for o, room in enumerate(problem.room) if room.get(name, 0) > 0}
            program.row(rooms, least=1.0)
    add_limits(program, problem, list(enumerate(nodes)))
    add_existing_nodes(program, problem, placed)
    for s, shape in enumerate(problem.shapes):
        program.row(placed[s], least=float(shape.count))
    return program, nodes


def _lacking(problem: PlanProblem, name: str) -> int:
    """Return how much of a resource the existing nodes lack."""
    need = sum(shape.needs.get(name, 0) * shape.count for shape in problem.shapes)
    return need - problem.spare.get(name, 0)


def add_limits(program: LinearProgram, problem: PlanProblem, columns: Sequence[tuple[int, int]]) -> list[int]:
    """Add a row for each limit, over columns that stand for nodes of offers; return the rows."""
    weights = [[limit.weights.get(offer.type.name, 0.0) for offer in problem.offers] for limit in problem.limits]
    return [
        program.row({column: of[o] / max(limit.most, 1.0) for o, column in columns if of[o]}, most=min(limit.most, 1.0))
        for limit, of in zip(problem.limits, weights, strict=True)
    ]


def add_existing_nodes(
    program: LinearProgram, problem: PlanProblem, placed: list[dict[int, float]]
) -> list[dict[int, int]]:  # fmt: skip
    """Add columns and rows for the pods of each shape that existing nodes can take; return the columns by shape."""
    return [_add_room(program, problem, placed, held.fits, held.free, nodes=held.nodes) for held in problem.held]


def _add_room(
    program: LinearProgram, problem: PlanProblem, placed: list[dict[int, float]], fits: Sequence[bool],
    room: Mapping[str, int], bought: int | None = None, nodes: int = 0,
) -> dict[int, int]:  # fmt: skip
    """Add a column for the pods of each shape that fits, and rows for their room: of ``nodes``, or of each node ``bought``.

    Return the columns by shape.
    """

    def limited(entries: Mapping[int, float], amount: float) -> None:
        if bought is None:
            program.row(entries, most=amount)
        else:
            program.row({**entries, bought: -amount}, most=0.0)

    pods = {s: program.column(whole=True) for s, does in enumerate(fits) if does}
    for s, column in pods.items():
        placed[s][column] = 1.0
        if problem.shapes[s].alone:
            limited({column: 1.0}, 1.0 if bought is not None else float(nodes))
    for name in problem.resources:
        used = {column: float(problem.shapes[s].needs.get(name, 0)) for s, column in pods.items()}
        scale = max([room.get(name, 0), *used.values(), 1])
        entries = {column: need / scale for column, need in used.items() if need}
        if entries:
            limited(entries, room.get(name, 0) / scale)
    return pods


def _resource_bound(problem: PlanProblem, prices: Sequence[float]) -> float:
    """Return the largest cost that any single resource requires, counting shapes that no existing node takes as well."""
    best = 0.0
    for name in problem.resources:
        need = _lacking(problem, name)
        rates = [price / room[name] for price, room in zip(prices, problem.room, strict=True) if room.get(name, 0) > 0]
        if need > 0 and rates:
            best = max(best, need * min(rates))
    least = least_count(problem)
    return max(best, least * min(prices, default=0.0))


def least_count(problem: PlanProblem) -> int:
    """Return a number of nodes below which no set is enough: by the largest room of each resource."""
    least = 0
    for name in problem.resources:
        need = _lacking(problem, name)
        most = max((room.get(name, 0) for room in problem.room), default=0)
        if need > 0 and most > 0:
            least = max(least, math.ceil(need / most))
    for s, shape in enumerate(problem.shapes):
        if shape.alone:
            least = max(least, shape.count - sum(one.nodes for one in problem.held if one.fits[s]))
    return least
