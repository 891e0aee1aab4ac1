"""The frame in which an expression runs: its variables, and its cost so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from moorage.api.cel.bounds import MAX_EFFORT, CostLimitError, EvalError
from moorage.api.cel.values import Value

#: A unit of cost takes about a microsecond.
EFFORT_PER_COST: Final = 20
_TOO_LONG: Final = f"the evaluation takes more than {MAX_EFFORT} steps"


class Frame:
    """``vars``: name → value, ``Lazy`` or ``Failed``. ``cost`` must not exceed ``limit``.

    The cost is what kube-scheduler counts. Some functions cost little but take long. ``strain`` subtracts their extra work from
    the limit, so that the limit bounds the time as well. Other steps cost nothing, and a fold may repeat thousands of them:
    ``effort`` is how much work may still be done, whatever it costs. ``patterns`` are those that were compiled.
    """

    __slots__ = ("cost", "effort", "limit", "patterns", "vars")

    def __init__(self, variables: Mapping[str, Value], limit: int, effort: int = MAX_EFFORT) -> None:
        self.vars: Mapping[str, Value] = variables
        self.limit = limit
        self.cost = 0
        self.effort = effort
        self.patterns: set[str] = set()

    def spend(self, cost: int) -> None:
        """Charge a step.

        Raises  CostLimitError if the limit is exceeded
        """
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError

    def expect(self, cost: int) -> None:
        """Check that the limit allows a step which is charged later.

        Raises  CostLimitError
        """
        if self.cost + cost > self.limit:
            raise CostLimitError

    def strain(self, work: int) -> None:
        """Charge work that is not part of the cost, in its units.

        Raises  CostLimitError if the limit is exceeded
        """
        self.limit -= work
        if self.cost > self.limit:
            raise CostLimitError
        self.work(work * EFFORT_PER_COST)

    def work(self, effort: int) -> None:
        """Charge work, in the units of ``MAX_EFFORT``.

        Raises  CostLimitError if the evaluation takes too long
        """
        self.effort -= effort
        if self.effort < 0:
            raise CostLimitError(_TOO_LONG)

    def look_up(self, name: str) -> Value:
        """Return the value of a variable.

        Raises  EvalError if its computation failed
        """
        value = self.vars[name]
        if isinstance(value, Lazy):
            value = value.resolve(self)
        if isinstance(value, Failed):
            raise value.error.with_traceback(None)  # raised repeatedly; each time would lengthen its traceback
        return value


#: A compiled node.
Run: TypeAlias = Callable[[Frame], Value]


class Failed:
    """A variable whose computation failed."""

    __slots__ = ("error",)

    def __init__(self, error: EvalError) -> None:
        self.error = error


class Lazy:
    """A value that is computed at first use, in the scope of its definition, and then cached."""

    __slots__ = ("_found", "_run", "_scope")

    def __init__(self, run: Run, scope: Mapping[str, Value]) -> None:
        self._run: Run | None = run
        self._scope = scope
        self._found: Value = None

    def resolve(self, frame: Frame) -> Value:
        if self._run is not None:
            run, self._run = self._run, None
            inner, frame.vars = frame.vars, self._scope
            try:
                self._found = run(frame)
            except EvalError as error:
                self._found = Failed(error)
            finally:
                frame.vars = inner
        return self._found
