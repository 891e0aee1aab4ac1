"""Linear and integer programs, solved by HiGHS if it is installed (the extra ``plan``)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np

from moorage.laboratory.budget import TimeBudget

__all__ = ["LinearProgram", "Solution", "has_solver"]

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
