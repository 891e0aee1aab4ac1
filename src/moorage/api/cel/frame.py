"""The frame in which an expression runs: its variables, and its cost so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from moorage.api.cel.bounds import MAX_EFFORT, CostLimitError, EvalError
from moorage.api.cel.values import NONE, Map, Optional, Value, show, type_name

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


# -- attributes --------------------------------------------------------------------------------------------------------
# Paths into values: ``a.b``, ``a["b"]``, ``a[0]``, ``a.?b``, ``has(a.b)``.
#
# Once a step of a path is optional, the result is optional: a missing part gives "no value" instead of an error.
# Source  cel-go: interpreter/attributes.go


class Qualifier(NamedTuple):
    """One step of a path: a constant ``key``, or ``run`` to compute the key. ``optional``: the key may be missing."""

    key: Value
    run: Run | None = None
    optional: bool = False


def attribute(root: Run, qualifiers: tuple[Qualifier, ...], *, test: bool, cost: int) -> Run:
    """Return a function that returns the value at the end of a path or, with ``test``, whether the last step exists."""

    def run(frame: Frame) -> Value:
        value = root(frame)
        optional = isinstance(value, Optional)
        if optional:
            if not value.has_value:
                frame.spend(cost)
                return False if test else value
            value = value.held
        last = len(qualifiers) - 1
        for at, qualifier in enumerate(qualifiers):
            key = qualifier.key if qualifier.run is None else qualifier.run(frame)
            testing = test and at == last
            optional = optional or qualifier.optional
            found, present = _step(value, key, lenient=optional or testing)
            if present or testing:
                frame.spend(1)
            if testing:
                return present
            if not present:
                frame.spend(cost)
                return NONE
            value = found
        frame.spend(cost)
        return Optional(value) if optional else value

    return run


def _step(value: Value, key: Value, *, lenient: bool) -> tuple[Value, bool]:
    """Return the value of a key, and whether the key exists.

    Raises  EvalError if the key is missing and ``lenient`` is false, or if an index is invalid
    """
    if isinstance(value, Map):
        found, present = value.find(key)
        if not present and not lenient:
            raise EvalError(f"no such key: {show(key)}")
        return found, present
    if isinstance(value, (tuple, list)):
        index = _index(key)
        if 0 <= index < len(value):
            return value[index], True
        if not lenient:
            raise EvalError(f"index out of bounds: {show(key)}")
        return None, False
    if not lenient:
        raise EvalError(f"no such key: {show(key)}")
    return None, False


def _index(key: Value) -> int:
    """Return a whole number (int, uint or double) as an index."""
    if isinstance(key, int) and not isinstance(key, bool):
        return int(key)
    if isinstance(key, float) and key.is_integer():
        return int(key)
    raise EvalError(f"unsupported index type '{type_name(key)}' in list")
