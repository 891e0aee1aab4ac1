"""The planner: turn a checked tree into a program. Each node becomes a Python function of the frame it runs in.

Running counts the cost as kube-scheduler does and stops at a limit. A failed operand is an ``EvalError``; ``&&``, ``||`` and
the folds of ``all`` and ``exists`` absorb it where another operand decides.

Source  cel-go: interpreter/planner.go, interpretable.go, runtimecost.go, decorators.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from moorage.api.cel import values as cel
from moorage.api.cel.attributes import Qualifier, attribute
from moorage.api.cel.bounds import MAX_PARSED, EvalError, SourceError, check_sizes
from moorage.api.cel.declarations import Functions, Overload, accepts
from moorage.api.cel.effort import (
    ITERATION,
    SIZED,
    absorb,
    strain_of_failure,
    strain_of_operands,
    strain_operator,
    weight,
    work_of_result,
)
from moorage.api.cel.frame import Failed, Frame, Lazy, Run
from moorage.api.cel.functions.conversions import CONVERSIONS, TYPE_NAMES
from moorage.api.cel.functions.operators import BINARY, negate, negate_bool
from moorage.api.cel.functions.strings import REGEX_FUNCTIONS
from moorage.api.cel.regex import RegexError, compile_regex
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, ListExpr, Literal, MapExpr, Message, Select

LIST_COST: Final = 10
MAP_COST: Final = 30

#: A constant, which costs nothing, or a function to run.
Planned: TypeAlias = "Constant | Run"


class Constant:
    """A node whose value is known at compile time."""

    __slots__ = ("value",)

    def __init__(self, value: cel.Value) -> None:
        self.value = value


def plan(expression: Expr, functions: Functions) -> Run:
    """Return a function that evaluates a checked expression.

    Raises  SourceError for an invalid constant conversion or pattern
    """
    return _Planner(functions).run(expression)


def _running(planned: Planned) -> Run:
    if isinstance(planned, Constant):
        value = planned.value
        return lambda frame: value
    return planned


class _Planner:
    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._scopes: list[frozenset[str]] = []

    def run(self, node: Expr) -> Run:
        return _running(self.planned(node))

    def planned(self, node: Expr, *, branch: bool = False) -> Planned:
        """Plan a node. ``branch``: it is a branch of a conditional, where evaluating a name costs nothing."""
        match node:
            case Literal():
                return Constant(node.value)
            case Ident():
                return self._ident(node, branch)
            case Select():
                return self._attribute(node, branch)
            case CallNode():
                return self._call(node, branch)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Fold():
                return self._fold(node)
            case Message():
                raise SourceError(node.at, f"undeclared reference to '{node.name}' (in container '')")

    # -- names and paths --------------------------------------------------------------------------------------------------

    def _ident(self, node: Ident, branch: bool) -> Planned:
        name = node.name.removeprefix(".")
        if name in TYPE_NAMES and not any(name in scope for scope in self._scopes):
            return Constant(cel.TypeValue(TYPE_NAMES[name]))
        cost = 0 if branch else 1

        def run(frame: Frame) -> cel.Value:
            frame.spend(cost)
            return frame.look_up(name)

        return run

    def _attribute(self, node: Expr, branch: bool) -> Run:
        """Plan a root and a path from it: ``a.b["c"][d].?e``."""
        qualifiers: list[Qualifier] = []
        test = False
        while True:
            if isinstance(node, Select):
                qualifiers.append(Qualifier(node.field))
                test, node = test or node.test, node.operand
            elif isinstance(node, CallNode) and node.function == "_?._" and isinstance(node.args[1], Literal):
                qualifiers.append(Qualifier(node.args[1].value, optional=True))
                node = node.args[0]
            elif isinstance(node, CallNode) and node.function in {"_[_]", "_[?_]"}:
                qualifiers.append(self._index(node.args[1], optional=node.function == "_[?_]"))
                node = node.args[0]
            else:
                break
            if isinstance(node, Select) and node.test:  # has(…) yields a bool, so the path starts after it
                break
        root = self.planned(node, branch=True) if isinstance(node, Ident) else self.planned(node)
        return attribute(_running(root), tuple(reversed(qualifiers)), test=test, cost=0 if branch or test else 1)

    def _index(self, node: Expr, *, optional: bool) -> Qualifier:
        planned = self.planned(node, branch=True)
        if isinstance(planned, Constant):
            return Qualifier(planned.value, optional=optional)
        return Qualifier(None, planned, optional)

    # -- calls ------------------------------------------------------------------------------------------------------------

    def _call(self, node: CallNode, branch: bool) -> Planned:
        match node.function:
            case "_&&_" | "_||_":
                return _logical([self.run(arg) for arg in node.args], deciding=node.function == "_||_")
            case "_?_:_":
                return self._conditional(node)
            case "_[_]" | "_[?_]" | "_?._":
                return self._attribute(node, branch)
            case "@not_strictly_false":
                return _not_strictly_false(self.run(node.args[0]))
            case "!_" | "-_":
                return _unary(self.run(node.args[0]), negate_bool if node.function == "!_" else negate)
        if node.function in BINARY:
            return self._binary(node)
        if node.target is not None and node.function in {"or", "orValue"}:
            return _or_else(self.run(node.target), self.run(node.args[0]), keep_optional=node.function == "or")
        return self._function(node)

    def _conditional(self, node: CallNode) -> Run:
        condition = self.run(node.args[0])
        yes, no = (_running(self.planned(arg, branch=True)) for arg in node.args[1:])

        def run(frame: Frame) -> cel.Value:
            decided = condition(frame)
            if not isinstance(decided, bool):
                raise cel.no_such_overload()
            return yes(frame) if decided else no(frame)

        return run

    def _binary(self, node: CallNode) -> Run:
        left, right = self.planned(node.args[0]), self.planned(node.args[1])
        if node.function == "@in" and isinstance(right, Constant) and _are_primitive(right.value):
            return _member_of(_running(left), right.value)
        return _operator(node.function, _running(left), _running(right))

    def _function(self, node: CallNode) -> Planned:
        name = node.function.removeprefix(".")
        function = self._functions[name]
        overloads = [overload for overload in function.overloads if overload.name in node.overloads]
        given = [*([node.target] if node.target is not None else []), *node.args]
        planned = [self.planned(arg) for arg in given]
        self._check_pattern(node, planned)
        run = _dispatch(name, overloads, [_running(arg) for arg in planned])
        if name in CONVERSIONS and isinstance(planned[0], Constant):
            try:
                return Constant(run(Frame({}, 1 << 60)))
            except EvalError as error:
                raise SourceError(-2, str(error)) from error
        return run

    def _check_pattern(self, node: CallNode, planned: list[Planned]) -> None:
        at = REGEX_FUNCTIONS.get(node.function)
        pattern = planned[at] if at is not None and at < len(planned) else None
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            try:
                compile_regex(pattern.value)
            except RegexError as error:
                raise SourceError(-2, str(error)) from error

    # -- lists, maps, comprehensions --------------------------------------------------------------------------------------

    def _list(self, node: ListExpr) -> Planned:
        planned = [self.planned(element) for element in node.elements]
        if not node.optional and all(isinstance(element, Constant) for element in planned):
            return Constant([element.value for element in planned if isinstance(element, Constant)])
        runs = list(map(_running, planned))

        def run(frame: Frame) -> cel.Value:
            made = []
            for at, element in enumerate(runs):
                value = element(frame)
                if at in node.optional:
                    if not isinstance(value, cel.Optional):
                        raise EvalError(f"cannot initialize optional list element from non-optional value {cel.show(value)}")
                    if not value.has_value:
                        continue
                    value = value.held
                made.append(value)
            frame.spend(LIST_COST)
            return made

        return run

    def _map(self, node: MapExpr) -> Planned:
        planned = [(self.planned(e.key), self.planned(e.value), e.optional) for e in node.entries]
        constants = [
            (k.value, v.value) for k, v, opt in planned if isinstance(k, Constant) and isinstance(v, Constant) and not opt
        ]
        if len(constants) == len(planned):
            return Constant(cel.Map(constants))
        runs = [(_running(key), _running(value), optional) for key, value, optional in planned]

        def run(frame: Frame) -> cel.Value:
            made = []
            for key_run, value_run, optional in runs:
                key, value = key_run(frame), value_run(frame)
                if optional:
                    if not isinstance(value, cel.Optional):
                        raise EvalError(
                            f"cannot initialize optional entry '{cel.show(key)}' from non-optional value {cel.show(value)}"
                        )
                    if not value.has_value:
                        continue
                    value = value.held
                made.append((key, value))
            frame.spend(MAP_COST)
            return cel.Map(made)

        return run

    def _fold(self, node: Fold) -> Run:
        range_run, start = self.run(node.range), self.run(node.start)
        self._scopes.append(frozenset([node.accumulator]))
        self._scopes.append(frozenset(node.variables))
        condition, step = self.run(node.condition), self.run(node.step)
        self._scopes.pop()
        result = self.run(node.result)
        self._scopes.pop()
        each = ITERATION + weight(node.condition) + weight(node.step)
        return _run_fold(node, range_run, _growing(node, start), condition, step, result, each)


# -- functions that run ---------------------------------------------------------------------------------------------------


def _are_primitive(values: cel.Value) -> bool:
    return isinstance(values, list) and all(isinstance(value, (bool, int, float, str)) for value in values)


def _logical(terms: list[Run], *, deciding: bool) -> Run:
    """Return a function for ``&&`` or ``||``. A term with the ``deciding`` value decides, even if other terms fail."""

    def run(frame: Frame) -> cel.Value:
        failed: EvalError | None = None
        for term in terms:
            try:
                value = term(frame)
            except EvalError as error:
                absorb(frame, error)
                failed = failed or error
                continue
            if value is deciding:
                return deciding
            if not isinstance(value, bool):
                failed = failed or cel.no_such_overload()
        if failed is not None:
            raise failed
        return not deciding

    return run


def _not_strictly_false(operand: Run) -> Run:
    def run(frame: Frame) -> cel.Value:
        try:
            value = operand(frame)
        except EvalError as error:
            absorb(frame, error)
            value = True
        frame.spend(1)
        return value is not False

    return run


def _unary(operand: Run, apply: Callable[[cel.Value], cel.Value]) -> Run:
    def run(frame: Frame) -> cel.Value:
        value = operand(frame)
        frame.spend(1)
        return apply(value)

    return run


def _or_else(optional: Run, other: Run, *, keep_optional: bool) -> Run:
    def run(frame: Frame) -> cel.Value:
        value = optional(frame)
        if not isinstance(value, cel.Optional):
            raise cel.no_such_overload()
        if value.has_value:
            return value if keep_optional else value.held
        return other(frame)

    return run


def _member_of(operand: Run, values: list[cel.Value]) -> Run:
    """Return a function for ``in`` with a constant list, as a lookup that costs nothing."""
    members = cel.Map((value, True) for value in values)

    def run(frame: Frame) -> cel.Value:
        return operand(frame) in members

    return run


def _operator(name: str, left: Run, right: Run) -> Run:
    apply = BINARY[name]

    def run(frame: Frame) -> cel.Value:
        one, other = left(frame), right(frame)
        if effort := check_sizes((other,) if isinstance(one, cel.Growing) else (one, other)):
            frame.work(effort)
        if isinstance(other, SIZED):
            strain_operator(frame, name, one, other)
        found = apply(one, other)
        frame.spend(_operator_cost(name, one, other))
        if effort:
            frame.work(work_of_result(found))
        return found

    return run


_COMPARING: Final = frozenset(["_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"])


def _operator_cost(name: str, one: cel.Value, other: cel.Value) -> int:
    if name in _COMPARING:
        if name in {"_==_", "_!=_"} or isinstance(one, (str, bytes)):
            one_size, other_size = cel.size_of(one), cel.size_of(other)
            return math.ceil(min(1 if one_size is None else one_size, 1 if other_size is None else other_size) * 0.1)
        return 1
    if name == "_+_" and isinstance(one, (str, bytes)):
        return math.ceil((len(one) + len(other)) * 0.1)
    if name == "@in" and isinstance(other, (tuple, list)):
        return len(other)
    return 1


#: The work of functions for each unit of what they cost, which depends on the size of their operands.
_WORK_PER_COST: Final = 12
#: Functions that parse a text, and the work of each of its characters.
_PARSERS: Final = frozenset({
    "cidr", "double", "duration", "int", "ip", "isCIDR", "isIP", "isQuantity", "isSemver", "isURL", "quantity", "semver",
    "timestamp", "uint", "url",
})  # fmt: skip
_WORK_PER_CHARACTER: Final = 8


def _dispatch(name: str, overloads: list[Overload], operands: list[Run]) -> Run:
    """Return a function that runs the first overload that accepts the values of the operands."""
    parses = name in _PARSERS

    def run(frame: Frame) -> cel.Value:
        args = [operand(frame) for operand in operands]
        for overload in overloads:
            if all(map(accepts, overload.args, args)):
                assert overload.run is not None
                try:
                    if not overload.cheap:
                        frame.work(check_sizes(args))
                    if parses and isinstance(args[0], str):
                        frame.work(min(len(args[0]), MAX_PARSED) * _WORK_PER_CHARACTER)
                    found = overload.run(frame, *args) if overload.metered else overload.run(*args)
                except EvalError:
                    frame.strain(strain_of_failure(args))
                    raise
                if overload.cost is None:
                    frame.spend(1)
                    if not overload.cheap:
                        frame.strain(strain_of_operands(args))
                else:
                    frame.spend(cost := overload.cost(args, found))
                    if not overload.cheap:
                        frame.work(cost * _WORK_PER_COST + work_of_result(found))
                return found
        raise EvalError(f"no such overload: {name}({', '.join(map(cel.type_name, args))})")

    return run


def _growing(node: Fold, start: Run) -> Run:
    """Return the start of a fold. An empty list or map is replaced by one that the fold extends in place."""
    if isinstance(node.start, ListExpr) and not node.start.elements:
        return lambda frame: cel.Growing()
    if isinstance(node.start, MapExpr) and not node.start.entries:
        return lambda frame: cel.GrowingMap()
    return start


def _run_fold(node: Fold, range_run: Run, start: Run, condition: Run, step: Run, result: Run, each: int) -> Run:
    """Return a function that runs a fold. ``each`` is the work of an iteration."""
    accumulator = node.accumulator

    def run(frame: Frame) -> cel.Value:
        elements = _elements(range_run(frame), len(node.variables))
        outer = frame.vars
        inner = {**outer, accumulator: Lazy(start, outer)}
        frame.vars = inner
        try:
            for element in elements:
                frame.work(each)
                inner.update(zip(node.variables, element, strict=True))
                if not _continues(condition, frame):
                    break
                inner[accumulator] = _outcome(step, frame)
            frame.vars = {**outer, accumulator: inner[accumulator]}
            found = result(frame)
        finally:
            frame.vars = outer
        return list(found) if isinstance(found, cel.Growing) else found

    return run


def _continues(condition: Run, frame: Frame) -> bool:
    try:
        return condition(frame) is not False
    except EvalError as error:
        absorb(frame, error)
        return True


def _outcome(step: Run, frame: Frame) -> cel.Value:
    """Return the value of a step. A failure becomes a value, ``Failed``, because later steps may absorb it."""
    try:
        return step(frame)
    except EvalError as error:
        absorb(frame, error)
        return Failed(error)


def _elements(range_run: cel.Value, variables: int) -> Iterable[tuple[cel.Value, ...]]:
    if isinstance(range_run, cel.Map):
        return range_run.items() if variables == 2 else zip(range_run)
    if isinstance(range_run, (tuple, list)):
        return enumerate(range_run) if variables == 2 else zip(range_run)
    if variables == 2:
        raise EvalError(f"unsupported comprehension range type: {cel.go_type(range_run)}")
    raise EvalError(f"got '{cel.go_type(range_run)}', expected iterable type")
