"""A compiled expression, which can be evaluated any number of times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from moorage.api.cel.bounds import MAX_EFFORT, CompileError, EvalError, SourceError, located
from moorage.api.cel.call_estimates import SizeLookup
from moorage.api.cel.checker import Fields, NodeTypes, check
from moorage.api.cel.cost_estimate import estimate_cost
from moorage.api.cel.declarations import Function, functions_of
from moorage.api.cel.frame import Frame, Run
from moorage.api.cel.functions import authorization, conversions, kubernetes, lists, network, strings
from moorage.api.cel.functions.conversions import TYPE_NAMES
from moorage.api.cel.functions.operators import signatures
from moorage.api.cel.functions.times import duration_of, timestamp_of
from moorage.api.cel.parser import parse
from moorage.api.cel.planner import plan
from moorage.api.cel.regex import RegexError, compile_regex
from moorage.api.cel.syntax import CallNode, Expr, ListExpr, Literal, MapExpr, children
from moorage.api.cel.types import DYN, Type, type_of
from moorage.api.cel.values import Value, name_of

# Faults in literals that the type checker does not see: durations, times, patterns, and formats with their values.
#
# Source  cel-go: cel/validator.go; ext/formatting.go, stringFormatValidator


def literal_faults(expression: Expr, types: NodeTypes) -> Iterator[SourceError]:
    """Yield the faults of the literals in a checked expression."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        waiting += children(node)
        if isinstance(node, CallNode) and node.args:
            yield from _argument_faults(node, node.args[0])
            if node.function == "format" and _is_text(node.target) and isinstance(node.args[0], ListExpr):
                yield from _format_faults(node, node.args[0].elements, types)


def _is_text(node: Expr | None) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, str)


def _argument_faults(node: CallNode, given: Expr) -> Iterator[SourceError]:
    read = _READERS.get(node.function)
    if read is not None and isinstance(given, Literal) and isinstance(given.value, str):
        try:
            read(given.value)
        except (EvalError, RegexError):
            yield SourceError(given.at, f"invalid {node.function} argument")


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "duration": duration_of, "timestamp": timestamp_of, "matches": compile_regex,
}  # fmt: skip
_CLAUSE: Final = re.compile(r"%(?:%|(?:\.\d+)?(.?))", re.DOTALL)
_SHOWN: Final = frozenset(
    ["list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"]
)
_WHOLE: Final = frozenset(["int", "uint"])
_REAL: Final = frozenset(["double", "string"])
_HEX: Final = (_WHOLE | {"string", "bytes"}, "only integers, byte buffers, and strings can be formatted as hex")
_ALL: Final = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
#: A letter of a format → the types that it accepts, and the message for other types.
_VERBS: Final = {
    "s": (_SHOWN, f"string clause can only be used on {_ALL}"),
    "d": (_WHOLE, "decimal clause can only be used on integers"), "o": (_WHOLE, "octal clause can only be used on integers"),
    "f": (_REAL, "fixed-point clause can only be used on doubles"),
    "e": (_REAL, "scientific clause can only be used on doubles"),
    "b": (_WHOLE | {"bool"}, "only integers and bools can be formatted as binary"), "x": _HEX, "X": _HEX,
}  # fmt: skip


def _format_faults(node: CallNode, values: list[Expr], types: NodeTypes) -> Iterator[SourceError]:
    assert isinstance(node.target, Literal)
    used = 0
    for clause in _CLAUSE.finditer(node.target.value):
        if clause[1] is None:
            continue
        if not clause[1]:
            yield SourceError(node.at, "unexpected end of string")
            return
        if used >= len(values):
            yield SourceError(node.at, f"index {used} out of range")
            return
        if clause[1] not in _VERBS:
            why = f'could not parse formatting clause: unrecognized formatting clause "{clause[1]}"'
            yield SourceError(node.at, why)
            return
        taken, why = _VERBS[clause[1]]
        wrong = _not_taken(values[used], taken, types, inside=clause[1] == "s")
        if wrong is not None:
            yield SourceError(wrong.at, f"error during formatting: {why}, was given {name_of(types.of(wrong))}")
            return
        used += 1
    if len(values) > used:
        yield SourceError(node.at, f"too many arguments supplied to string.format (expected {used}, got {len(values)})")


def _not_taken(node: Expr, taken: frozenset[str], types: NodeTypes, *, inside: bool) -> Expr | None:
    """Return the value that a format clause does not accept: the operand, or the first such value inside it."""
    of = types.of(node)
    if of.kind != "dyn" and _kind(of) not in taken:
        return node
    parts = children(node) if inside and isinstance(node, (ListExpr, MapExpr)) else []
    return next((wrong for one in parts if (wrong := _not_taken(one, taken, types, inside=True)) is not None), None)


def _kind(of: Type) -> str:
    return of.name if of.name in {"timestamp", "duration"} else of.kind


#: The cost limit of a selector, in CEL's units (CELSelectorExpressionMaxCost).
COST_LIMIT: Final = 1_000_000

#: How many faults of an expression an error message lists, as in cel-go.
MOST_FAULTS: Final = 100

_PARAMETERS: Final = {"list": (DYN,), "map": (DYN, DYN), "optional_type": (DYN,)}


@cache
def standard_functions() -> Mapping[str, Function]:
    """Return all functions, by name."""
    libraries = (conversions.FUNCTIONS, strings.FUNCTIONS, lists.FUNCTIONS, kubernetes.FUNCTIONS, network.FUNCTIONS,
                 authorization.FUNCTIONS)  # fmt: skip
    return functions_of(signatures(), *libraries)


@cache
def _type_names() -> Mapping[str, Type]:
    return {name: type_of(t._replace(params=_PARAMETERS.get(name, ()))) for name, t in TYPE_NAMES.items()}


class Program:
    """A compiled expression. ``type`` is the type of its value as the checker found it."""

    def __init__(self, source: str, of: Type, run: Run) -> None:
        self.source = source
        self.type = of
        self._run = run

    def evaluate(self, variables: Mapping[str, Value], cost_limit: int = COST_LIMIT) -> Value:
        """Return the value.

        Raises  EvalError if it has none, CostLimitError if the cost exceeds the limit
        """
        return self.measure(variables, cost_limit)[0]

    def attempt(
        self, variables: Mapping[str, Value], limit: int, effort: int = MAX_EFFORT
    ) -> tuple[Value | EvalError, int, int]:
        """Return the value or the ``EvalError``, and how much of the limit and of the effort the evaluation used.

        Raises  CostLimitError
        """
        frame = Frame(variables, limit, effort)
        frame.work(0)
        try:
            value = self._run(frame)
        except EvalError as error:
            value = error
        return value, limit - frame.limit + frame.cost, effort - frame.effort

    def measure(self, variables: Mapping[str, Value], cost_limit: int = COST_LIMIT) -> tuple[Value, int]:
        """Return the value and the cost of the evaluation."""
        frame = Frame(variables, cost_limit)
        return self._run(frame), frame.cost


def compile_expression(
    source: str,
    variables: Mapping[str, Type],
    fields: Fields | None = None,
    without: frozenset[str] = frozenset(),
    structs: frozenset[str] = frozenset(),
) -> Program:
    """Compile an expression over variables of the given types; ``fields`` are the fields of struct types.

    ``without``: functions and macros that the expression cannot use. ``structs``: types whose values are maps (``parse``).

    Raises  CompileError with the faults found, as cel-go prints them
    """
    tree, types = _checked(source, variables, fields or {}, without, structs)
    return _planned(source, tree, types)


def compile_with_estimate(
    source: str, variables: Mapping[str, Type], fields: Fields, without: frozenset[str], lookup: SizeLookup
) -> tuple[Program, int]:
    """Compile an expression as above, and return with it what it may cost at most. ``lookup`` knows the sizes of variables."""
    tree, types = _checked(source, variables, fields, without)
    estimate = estimate_cost(tree, types, lookup)
    return _planned(source, tree, types), estimate


def _checked(
    source: str, variables: Mapping[str, Type], fields: Fields, without: frozenset[str], structs: frozenset[str] = frozenset()
) -> tuple[Expr, NodeTypes]:
    try:
        tree = parse(source, without, structs)
    except SourceError as problem:
        raise CompileError(f"compilation failed: {located(source, problem.at, problem.text)}") from None
    functions = standard_functions()
    if without:
        functions = {name: one for name, one in functions.items() if name not in without}
    types, problems = check(tree, {**_type_names(), **variables}, functions, fields)
    problems = problems or [*literal_faults(tree, types)]
    if problems:
        first = sorted(problems[:MOST_FAULTS], key=lambda problem: problem.at)
        shown = [located(source, p.at, p.text) for p in first]
        if len(problems) > MOST_FAULTS:
            shown.append(f"{len(problems) - MOST_FAULTS} more errors were truncated")
        raise CompileError("compilation failed: " + "\n".join(shown))
    return tree, types


def _planned(source: str, tree: Expr, types: NodeTypes) -> Program:
    try:
        return Program(source, types.of(tree), plan(tree, standard_functions()))
    except SourceError as problem:
        if problem.at == -2:
            raise CompileError(f"program instantiation failed: {problem.text}") from None
        raise CompileError(f"compilation failed: {located(source, problem.at, problem.text)}") from None
