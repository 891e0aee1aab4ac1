"""Macros: ``has``, ``all``, ``exists``, ``map``, ``filter`` and others are rewritten into basic nodes before the check.

A comprehension over a list or map becomes a ``Fold``. A call whose name or arguments fit no macro stays a call.

Source  cel-go: parser/macro.go, cel/library.go (optionals), ext/comprehensions.go, ext/bindings.go, ext/lists.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moorage.api.cel.bounds import SourceError
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, ListExpr, Literal, MapExpr, Select

ACCUMULATOR: Final = "@result"
#: cel-go's former name of the accumulator; no variable may have it.
_OLD_ACCUMULATOR: Final = "__result__"
_UNUSED: Final = "#unused"


def expand(call: CallNode) -> Expr:
    """Return the expansion of a call; the call itself if it is not a macro.

    Raises  SourceError if the arguments of a macro are invalid
    """
    macro = _MACROS.get((call.function, len(call.args), call.target is not None))
    return call if macro is None else macro(call)


def _accumulator(at: int) -> Expr:
    return Ident(at, ACCUMULATOR)


def _variable(arg: Expr, text: str) -> str:
    if not isinstance(arg, Ident):
        raise SourceError(arg.at, text)
    if arg.name in {ACCUMULATOR, _OLD_ACCUMULATOR}:
        raise SourceError(arg.at, "iteration variable overwrites accumulator variable")
    return arg.name


def _target(call: CallNode) -> Expr:
    assert call.target is not None
    return call.target


def _has(call: CallNode) -> Expr:
    arg = call.args[0]
    if not isinstance(arg, Select):
        raise SourceError(arg.at, "invalid argument to has() macro")
    return Select(call.at, arg.operand, arg.field, test=True)


# -- quantifiers, over elements or over (key or index, value) ------------------------------------------------------------------


def _variables(call: CallNode, count: int, text: str) -> tuple[str, ...]:
    names = tuple([_variable(arg, text) for arg in call.args[:count]])
    if len(set(names)) < len(names):
        raise SourceError(call.args[1].at, f"duplicate variable name: {names[0]}")
    return names


def _all(count: int) -> Callable[[CallNode], Expr]:
    def made(call: CallNode) -> Expr:
        at = call.at
        names = _variables(call, count, "argument must be a simple name")
        condition = CallNode(at, "@not_strictly_false", [_accumulator(at)])
        step = CallNode(at, "_&&_", [_accumulator(at), call.args[count]])
        return Fold(at, _target(call), names, ACCUMULATOR, Literal(at, True), condition, step, _accumulator(at))

    return made


def _exists(count: int) -> Callable[[CallNode], Expr]:
    def made(call: CallNode) -> Expr:
        at = call.at
        names = _variables(call, count, "argument must be a simple name")
        condition = CallNode(at, "@not_strictly_false", [CallNode(at, "!_", [_accumulator(at)])])
        step = CallNode(at, "_||_", [_accumulator(at), call.args[count]])
        return Fold(at, _target(call), names, ACCUMULATOR, Literal(at, False), condition, step, _accumulator(at))

    return made


def _exists_one(count: int) -> Callable[[CallNode], Expr]:
    def made(call: CallNode) -> Expr:
        at = call.at
        names = _variables(call, count, "argument must be a simple name")
        more = CallNode(at, "_+_", [_accumulator(at), Literal(at, 1)])
        step = CallNode(at, "_?_:_", [call.args[count], more, _accumulator(at)])
        result = CallNode(at, "_==_", [_accumulator(at), Literal(at, 1)])
        return Fold(at, _target(call), names, ACCUMULATOR, Literal(at, 0), Literal(at, True), step, result)

    return made


# -- transformations --------------------------------------------------------------------------------------------------------


def _transform(
    count: int, start: Callable[[int], Expr], add: Callable[[int, tuple[str, ...], Expr], Expr]
) -> Callable[[CallNode], Expr]:
    """Return a macro that collects a value for each element, or for each that its predicate selects."""

    def made(call: CallNode) -> Expr:
        at = call.at
        names = _variables(call, count, "argument is not an identifier")
        step = add(at, names, call.args[-1])
        if len(call.args) == count + 2:
            step = CallNode(at, "_?_:_", [call.args[count], step, _accumulator(at)])
        return Fold(at, _target(call), names, ACCUMULATOR, start(at), Literal(at, True), step, _accumulator(at))

    return made


def _into_list(at: int, names: tuple[str, ...], value: Expr) -> Expr:
    return CallNode(at, "_+_", [_accumulator(at), ListExpr(at, [value])])


def _into_map(at: int, names: tuple[str, ...], value: Expr) -> Expr:
    return CallNode(at, "cel.@mapInsert", [_accumulator(at), Ident(at, names[0]), value])


def _entry_into_map(at: int, names: tuple[str, ...], value: Expr) -> Expr:
    return CallNode(at, "cel.@mapInsert", [_accumulator(at), value])


def _filter(call: CallNode) -> Expr:
    at = call.at
    names = _variables(call, 1, "argument is not an identifier")
    step = CallNode(at, "_?_:_", [call.args[1], _into_list(at, names, call.args[0]), _accumulator(at)])
    return Fold(at, _target(call), names, ACCUMULATOR, ListExpr(at, []), Literal(at, True), step, _accumulator(at))


# -- bindings and optionals -------------------------------------------------------------------------------------------------


def _bound(at: int, name: str, value: Expr, body: Expr) -> Expr:
    """Return ``body`` with a name bound to ``value``: a fold over an empty list."""
    return Fold(at, ListExpr(at, []), (_UNUSED,), name, value, Literal(at, False), Ident(at, name), body)


def _bind(call: CallNode) -> Expr:
    if not isinstance(call.target, Ident) or call.target.name != "cel":
        return call
    name = call.args[0]
    if not isinstance(name, Ident):
        raise SourceError(name.at, "cel.bind() variable names must be simple identifiers")
    return _bound(call.at, name.name, call.args[1], call.args[2])


def _opt_map(function: str, wrap: bool) -> Callable[[CallNode], Expr]:
    def made(call: CallNode) -> Expr:
        at = call.at
        name = call.args[0]
        if not isinstance(name, Ident):
            raise SourceError(name.at, f"{function}() variable name must be a simple identifier")
        body = _bound(at, name.name, CallNode(at, "value", [], _target(call)), call.args[1])
        some = CallNode(at, "optional.of", [body]) if wrap else body
        return CallNode(at, "_?_:_", [CallNode(at, "hasValue", [], _target(call)), some, CallNode(at, "optional.none", [])])

    return made


def _sort_by(call: CallNode) -> Expr:
    at = call.at
    name = call.args[0]
    if not isinstance(name, Ident):
        raise SourceError(name.at, "sortBy can only be applied to an identifier")
    varies = "@__sortBy_input__"
    keys = Fold(
        at, Ident(at, varies), (_variable(name, ""),), ACCUMULATOR, ListExpr(at, []), Literal(at, True),
        _into_list(at, (), call.args[1]), _accumulator(at),
    )  # fmt: skip
    return _bound(at, varies, _target(call), CallNode(at, "@sortByAssociatedKeys", [keys], Ident(at, varies)))


def _empty_list(at: int) -> Expr:
    return ListExpr(at, [])


def _empty_map(at: int) -> Expr:
    return MapExpr(at, [])


#: (name, number of arguments, has a target) → the function that expands the call.
_MACROS: Final[dict[tuple[str, int, bool], Callable[[CallNode], Expr]]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all(1),
    ("all", 3, True): _all(2),
    ("exists", 2, True): _exists(1),
    ("exists", 3, True): _exists(2),
    ("exists_one", 2, True): _exists_one(1),
    ("exists_one", 3, True): _exists_one(2),
    ("existsOne", 2, True): _exists_one(1),
    ("existsOne", 3, True): _exists_one(2),
    ("map", 2, True): _transform(1, _empty_list, _into_list),
    ("map", 3, True): _transform(1, _empty_list, _into_list),
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform(2, _empty_list, _into_list),
    ("transformList", 4, True): _transform(2, _empty_list, _into_list),
    ("transformMap", 3, True): _transform(2, _empty_map, _into_map),
    ("transformMap", 4, True): _transform(2, _empty_map, _into_map),
    ("transformMapEntry", 3, True): _transform(2, _empty_map, _entry_into_map),
    ("transformMapEntry", 4, True): _transform(2, _empty_map, _entry_into_map),
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map("optMap", wrap=True),
    ("optFlatMap", 2, True): _opt_map("optFlatMap", wrap=False),
    ("sortBy", 2, True): _sort_by,
}
