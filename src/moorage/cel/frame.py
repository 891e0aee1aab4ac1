"""What an expression runs in: its variables, and the account of what it has cost so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from moorage.cel.cel_errors import CostLimitError, EvalError
from moorage.cel.values import Value

__all__ = ["Failed", "Frame", "Lazy", "Run"]


class Frame:
    """``vars``: name → value, ``Lazy`` or ``Failed``. ``cost`` may not go beyond ``limit``.

    The cost is what kube-scheduler counts. Some of its functions cost little and take long: what they take beyond their cost
    comes off the limit (``strain``), so that the limit bounds the time as well.
    """

    __slots__ = ("cost", "limit", "vars")

    def __init__(self, variables: Mapping[str, Value], limit: int) -> None:
        self.vars: Mapping[str, Value] = variables
        self.limit = limit
        self.cost = 0

    def spend(self, cost: int) -> None:
        """Account for a step.

        Raises  CostLimitError when that was one too many
        """
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError

    @property
    def left(self) -> int:
        """What may still be spent."""
        return self.limit - self.cost

    def expect(self, cost: int) -> None:
        """Make sure that a step which is about to be taken can be paid for; it is still to be accounted for.

        Raises  CostLimitError
        """
        if self.cost + cost > self.limit:
            raise CostLimitError

    def strain(self, work: int) -> None:
        """Account for work that is not part of the cost.

        Raises  CostLimitError when that was too much
        """
        self.limit -= work
        if self.cost > self.limit:
            raise CostLimitError

    def look_up(self, name: str) -> Value:
        """Return the value of a variable.

        Raises  EvalError if working it out failed
        """
        value = self.vars[name]
        if isinstance(value, Lazy):
            value = value.resolve(self)
        if isinstance(value, Failed):
            raise value.error.with_traceback(None)  # it is raised often, and each time would make its traceback longer
        return value


#: A node, ready to run.
Run: TypeAlias = Callable[[Frame], Value]


class Failed:
    """A value that could not be told."""

    __slots__ = ("error",)

    def __init__(self, error: EvalError) -> None:
        self.error = error


class Lazy:
    """A value that is worked out when it is first wanted, in the scope it was written in; then it is kept."""

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
