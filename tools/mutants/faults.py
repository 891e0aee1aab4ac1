"""Small faults for a module's source: each changes one place of the text and leaves the rest as it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Fault", "faults"]

#: An operator of a comparison → one that differs at the edge, or says the opposite.
_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "//"}
_TEXT = (ast.Constant, ast.JoinedStr)
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Fault:
    """A change of the text between two offsets. ``line`` counts from 1, ``says`` is the change as people read it."""

    line: int
    start: int
    end: int
    text: str
    says: str

    def applied(self, source: str) -> str:
        """Return the source with this fault."""
        return source[: self.start] + self.text + source[self.end :]


def faults(source: str) -> Iterator[Fault]:
    """Yield the faults of a module, in the order of its lines.

    Annotations, docstrings, ``__all__``, assertions of types and messages of errors have none: nothing decides by them.
    """
    found: list[Fault] = []
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def offset(line: int, column: int) -> int:
        return len(data[: starts[line - 1] + column].decode())

    for node in _deciding(ast.parse(source)):
        for one in (*_of_expression(node), *_of_statement(node)):
            place = one.place
            start, end = offset(place.lineno, place.col_offset), offset(place.end_lineno or 0, place.end_col_offset or 0)
            found.append(Fault(place.lineno, start, end, one.text, one.says))
    yield from sorted(found, key=lambda one: (one.start, one.end, one.text))


class _Change(NamedTuple):
    place: ast.expr | ast.stmt
    text: str
    says: str


def _deciding(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that decide something, without annotations, raised errors and assertions."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "exc", "decorator_list"} or isinstance(node, ast.Assert):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            ahead.extend(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def _of_expression(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            other = _COMPARISONS[type(op)]
            yield _Change(node, f"{ast.unparse(left)} {other} {ast.unparse(right)}", f"{other} in a comparison")
        case ast.BoolOp():
            yield from _of_condition(node)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Change(node, f"({ast.unparse(operand)})", "without not")
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC and not isinstance(left, _TEXT):
            other = _ARITHMETIC[type(op)]
            yield _Change(node, f"(({ast.unparse(left)}) {other} ({ast.unparse(right)}))", f"{other} in a sum")
        case ast.Constant(value=bool() as value):
            yield _Change(node, str(not value), f"{not value} for {value}")
        case ast.Constant(value=int() as value):
            yield _Change(node, str(value + 1), f"{value + 1} for {value}")
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
            yield _Change(function, _CALLS[name], f"{_CALLS[name]} for {name}")
        case _:
            pass


def _of_condition(node: ast.BoolOp) -> Iterator[_Change]:
    """Yield the condition with the other word, and without each of its parts."""
    word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    parts = [f"({ast.unparse(one)})" for one in node.values]
    yield _Change(node, f"({f' {other} '.join(parts)})", f"{other} in a condition")
    for at, part in enumerate(parts):
        yield _Change(node, f"({f' {word} '.join(parts[:at] + parts[at + 1 :])})", f"without {part[1:-1]}")


def _of_statement(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _Change(value, "None", "return None")
        case ast.Expr(value=ast.Call()):
            yield _Change(node, "pass", f"without {ast.unparse(node)[:60]}")
        case ast.Continue():
            yield _Change(node, "break", "break for continue")
        case ast.Break():
            yield _Change(node, "continue", "continue for break")
        case _:
            pass
