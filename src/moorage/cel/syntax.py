"""The tree of an expression. ``at`` is where a node stands in the source, in code points, as messages count.

Operators are calls by the names cel-go gives them: ``_+_``, ``_?_:_``, ``_[_]``, ``_?._`` … Macros leave ``Fold`` s behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from moorage.cel.values import Value

__all__ = ["CallNode", "Expr", "Fold", "Ident", "ListExpr", "Literal", "MapEntry", "MapExpr", "Message", "Select", "children"]


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
    """``operand.field``; with ``test``, whether that is there: ``has(operand.field)``."""

    at: int
    operand: Expr
    field: str
    test: bool = False


@dataclass(slots=True, eq=False)
class CallNode:
    """A function or, with a target, a method. ``overloads`` are those the checker found to fit."""

    at: int
    function: str
    args: list[Expr]
    target: Expr | None = None
    overloads: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class ListExpr:
    """``optional`` holds the indices of elements written ``?e``: left out when they have no value."""

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
    at: int
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class Message:
    """``name{…}``: nothing can be made this way here; the checker says so."""

    at: int
    name: str
    values: list[Expr] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Fold:
    """Walk over ``range`` with ``variables`` bound to each element (or to key and value) as long as ``condition`` holds;
    ``accumulator`` starts as ``start`` and becomes ``step`` each time; then the value is that of ``result``.
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
    """Return the nodes right below one."""
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
