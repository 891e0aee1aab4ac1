"""The syntax tree of an expression. ``at`` is the position of a node in the source, in code points, for messages.

Operators are calls with cel-go's names: ``_+_``, ``_?_:_``, ``_[_]``, ``_?._`` and so on. Macros expand to ``Fold`` nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from moorage.api.cel.values import Value


@dataclass(slots=True, eq=False)
class Literal:
    at: int
    value: Value


@dataclass(slots=True, eq=False)
class Ident:
    at: int
    name: str


@dataclass(slots=True, eq=False)
class Select:
    """``operand.field``; with ``test``, whether the field exists: ``has(operand.field)``."""

    at: int
    operand: Expr
    field: str
    test: bool = False


@dataclass(slots=True, eq=False)
class CallNode:
    """A function call or, with a target, a method call. ``overloads``: the names of those that fit, set by the checker."""

    at: int
    function: str
    args: list[Expr]
    target: Expr | None = None
    overloads: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class ListExpr:
    """``optional``: the indexes of elements written ``?e``, which are left out if they have no value."""

    at: int
    elements: list[Expr]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapEntry:
    at: int
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapExpr:
    """``struct`` is the name of the type for ``name{…}`` with a type whose values are maps."""

    at: int
    entries: list[MapEntry]
    struct: str = ""


@dataclass(slots=True, eq=False)
class Message:
    """``name{…}``: no message type can be constructed here, and the checker reports it."""

    at: int
    name: str
    values: list[Expr] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Fold:
    """Iterate over ``range`` with ``variables`` bound to each element (or key and value) while ``condition`` holds;
    ``accumulator`` starts as ``start`` and becomes ``step`` each time; the value is that of ``result``.
    """

    at: int
    range: Expr
    variables: tuple[str, ...]
    accumulator: str
    start: Expr
    condition: Expr
    step: Expr
    result: Expr


Expr: TypeAlias = Literal | Ident | Select | CallNode | ListExpr | MapExpr | Message | Fold


def children(node: Expr) -> list[Expr]:
    """Return the direct children of a node."""
    match node:
        case Select():
            return [node.operand]
        case CallNode():
            return node.args if node.target is None else [node.target, *node.args]
        case ListExpr():
            return node.elements
        case MapExpr():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case Message():
            return node.values
        case Fold():
            return [node.range, node.start, node.condition, node.step, node.result]
        case _:
            return []
