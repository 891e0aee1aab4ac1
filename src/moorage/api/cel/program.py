"""A compiled expression, which can be evaluated any number of times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from moorage.api.cel.bounds import MAX_EFFORT, CompileError, EvalError, SourceError, located
from moorage.api.cel.checker import Fields, NodeTypes, check
from moorage.api.cel.cost_estimate import estimate_cost
from moorage.api.cel.declarations import Function, functions_of
from moorage.api.cel.estimated_sizes import SizeLookup
from moorage.api.cel.frame import Frame, Run
from moorage.api.cel.functions import conversions, kubernetes, lists, network, strings
from moorage.api.cel.functions.conversions import TYPE_NAMES
from moorage.api.cel.functions.operators import signatures
from moorage.api.cel.literal_checks import literal_faults
from moorage.api.cel.parser import parse
from moorage.api.cel.planner import plan
from moorage.api.cel.syntax import Expr
from moorage.api.cel.types import DYN, Type, type_of
from moorage.api.cel.values import Value

__all__ = ["COST_LIMIT", "Program", "compile_expression", "compile_with_estimate"]

#: The cost limit of a selector, in CEL's units (CELSelectorExpressionMaxCost).
COST_LIMIT: Final = 1_000_000

#: How many faults of an expression an error message lists, as in cel-go.
MOST_FAULTS: Final = 100

_PARAMETERS: Final = {"list": (DYN,), "map": (DYN, DYN), "optional_type": (DYN,)}


@cache
def standard_functions() -> Mapping[str, Function]:
    """Return all functions, by name."""
    libraries = (conversions.FUNCTIONS, strings.FUNCTIONS, lists.FUNCTIONS, kubernetes.FUNCTIONS, network.FUNCTIONS)
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
