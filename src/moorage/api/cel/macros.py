"""Macros: ``has``, ``all``, ``exists``, ``map``, ``filter`` and others are rewritten into basic nodes before the check.

A comprehension over a list or map becomes a ``Fold``. A call whose name or arguments fit no macro stays a call.

Source  cel-go: parser/macro.go, cel/library.go (optionals), ext/comprehensions.go, ext/bindings.go, ext/lists.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from moorage.api.cel.bounds import SourceError
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, ListExpr, Literal, MapExpr, Select

ACCUMULATOR: Final = "@result"
#: cel-go's former name of the accumulator; no variable may have it.
_OLD_ACCUMULATOR: Final = "__result__"
_UNUSED: Final = "#unused"
_Macro: TypeAlias = Callable[[CallNode], Expr]
#: Given the position, the variables and the arguments of a call, make the start, condition, step and result of its fold.
_Parts: TypeAlias = Callable[[int, tuple[str, ...], list[Expr]], tuple[Expr, Expr, Expr, Expr]]


def expand(call: CallNode) -> Expr:
    """Return the expansion of a call; the call itself if it is not a macro.

    Raises  SourceError if the arguments of a macro are invalid
    """
    macro = _MACROS.get((call.function, len(call.args), call.target is not None))
    return call if macro is None else macro(call)


def _accumulator(at: int) -> Expr:
    return Ident(at, ACCUMULATOR)


def _name(arg: Expr, text: str) -> str:
    if not isinstance(arg, Ident):
        raise SourceError(arg.at, text)
    return arg.name


def _variable(arg: Expr, text: str) -> str:
    name = _name(arg, text)
    if name in {ACCUMULATOR, _OLD_ACCUMULATOR}:
        raise SourceError(arg.at, "iteration variable overwrites accumulator variable")
    return name


def _target(call: CallNode) -> Expr:
    assert call.target is not None
    return call.target


def _has(call: CallNode) -> Expr:
    arg = call.args[0]
    if not isinstance(arg, Select):
        raise SourceError(arg.at, "invalid argument to has() macro")
    return Select(call.at, arg.operand, arg.field, test=True)


def _fold(count: int, text: str, parts: _Parts) -> _Macro:
    """Return a macro over elements (``count`` 1), or over (key or index, value); ``text``: a variable is not a name."""

    def made(call: CallNode) -> Expr:
        names = tuple([_variable(arg, text) for arg in call.args[:count]])
        if len(set(names)) < len(names):
            raise SourceError(call.args[1].at, f"duplicate variable name: {names[0]}")
        return Fold(call.at, _target(call), names, ACCUMULATOR, *parts(call.at, names, call.args))

    return made


# -- quantifiers ------------------------------------------------------------------------------------------------------------


def _all(at: int, names: tuple[str, ...], args: list[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    condition = CallNode(at, "@not_strictly_false", [_accumulator(at)])
    return Literal(at, True), condition, CallNode(at, "_&&_", [_accumulator(at), args[-1]]), _accumulator(at)


def _exists(at: int, names: tuple[str, ...], args: list[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    condition = CallNode(at, "@not_strictly_false", [CallNode(at, "!_", [_accumulator(at)])])
    return Literal(at, False), condition, CallNode(at, "_||_", [_accumulator(at), args[-1]]), _accumulator(at)


def _exists_one(at: int, names: tuple[str, ...], args: list[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    more = CallNode(at, "_+_", [_accumulator(at), Literal(at, 1)])
    result = CallNode(at, "_==_", [_accumulator(at), Literal(at, 1)])
    return Literal(at, 0), Literal(at, True), _if(at, args[-1], more), result


# -- transformations --------------------------------------------------------------------------------------------------------


def _if(at: int, condition: Expr, step: Expr) -> Expr:
    return CallNode(at, "_?_:_", [condition, step, _accumulator(at)])


def _collect(start: type[ListExpr | MapExpr], add: Callable[[int, tuple[str, ...], Expr], Expr]) -> _Parts:
    """Return what collects a value for each element, or for each that its predicate selects."""

    def parts(at: int, names: tuple[str, ...], args: list[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
        step = add(at, names, args[-1])
        if len(args) == len(names) + 2:
            step = _if(at, args[len(names)], step)
        return start(at, []), Literal(at, True), step, _accumulator(at)

    return parts


def _into_list(at: int, names: tuple[str, ...], value: Expr) -> Expr:
    return CallNode(at, "_+_", [_accumulator(at), ListExpr(at, [value])])


def _into_map(at: int, names: tuple[str, ...], value: Expr) -> Expr:
    return CallNode(at, "cel.@mapInsert", [_accumulator(at), Ident(at, names[0]), value])


def _entry_into_map(at: int, names: tuple[str, ...], value: Expr) -> Expr:
    return CallNode(at, "cel.@mapInsert", [_accumulator(at), value])


def _filter(at: int, names: tuple[str, ...], args: list[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    return ListExpr(at, []), Literal(at, True), _if(at, args[1], _into_list(at, names, args[0])), _accumulator(at)


# -- bindings and optionals -------------------------------------------------------------------------------------------------


def _bound(at: int, name: str, value: Expr, body: Expr) -> Expr:
    """Return ``body`` with a name bound to ``value``: a fold over an empty list."""
    return Fold(at, ListExpr(at, []), (_UNUSED,), name, value, Literal(at, False), Ident(at, name), body)


def _bind(call: CallNode) -> Expr:
    if not isinstance(call.target, Ident) or call.target.name != "cel":
        return call
    name = _name(call.args[0], "cel.bind() variable names must be simple identifiers")
    return _bound(call.at, name, call.args[1], call.args[2])


def _opt_map(function: str, wrap: bool) -> _Macro:
    def made(call: CallNode) -> Expr:
        at = call.at
        name = _name(call.args[0], f"{function}() variable name must be a simple identifier")
        body = _bound(at, name, CallNode(at, "value", [], _target(call)), call.args[1])
        some = CallNode(at, "optional.of", [body]) if wrap else body
        return CallNode(at, "_?_:_", [CallNode(at, "hasValue", [], _target(call)), some, CallNode(at, "optional.none", [])])

    return made


def _sort_by(call: CallNode) -> Expr:
    at = call.at
    names = (_variable(call.args[0], "sortBy can only be applied to an identifier"),)
    varies = "@__sortBy_input__"
    keys = Fold(at, Ident(at, varies), names, ACCUMULATOR, *_LISTED(at, names, call.args))
    return _bound(at, varies, _target(call), CallNode(at, "@sortByAssociatedKeys", [keys], Ident(at, varies)))


_LISTED: Final = _collect(ListExpr, _into_list)
_QUANTIFIERS: Final = {"all": _all, "exists": _exists, "exists_one": _exists_one, "existsOne": _exists_one}
#: (name, number of variables, what it does); each takes a predicate as well.
_TRANSFORMATIONS: Final[list[tuple[str, int, _Parts]]] = [
    ("map", 1, _LISTED),
    ("transformList", 2, _LISTED),
    ("transformMap", 2, _collect(MapExpr, _into_map)),
    ("transformMapEntry", 2, _collect(MapExpr, _entry_into_map)),
]
#: (name, number of arguments, has a target) → the function that expands the call.
_MACROS: Final[dict[tuple[str, int, bool], _Macro]] = {
    ("has", 1, False): _has,
    ("filter", 2, True): _fold(1, "argument is not an identifier", _filter),
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _opt_map("optMap", wrap=True),
    ("optFlatMap", 2, True): _opt_map("optFlatMap", wrap=False),
    ("sortBy", 2, True): _sort_by,
    **{
        (name, count + 1, True): _fold(count, "argument must be a simple name", parts)
        for name, parts in _QUANTIFIERS.items()
        for count in (1, 2)
    },
    **{
        (name, count + arguments, True): _fold(count, "argument is not an identifier", parts)
        for name, count, parts in _TRANSFORMATIONS
        for arguments in (1, 2)
    },
}
