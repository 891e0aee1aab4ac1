"""Faults in literals that the type checker does not see: durations, times, patterns, and formats with their values.

Source  cel-go: cel/validator.go; ext/formatting.go, stringFormatValidator
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moorage.api.cel.bounds import EvalError, SourceError
from moorage.api.cel.checker import NodeTypes
from moorage.api.cel.functions.times import duration_of, timestamp_of
from moorage.api.cel.regex import RegexError, compile_regex
from moorage.api.cel.syntax import CallNode, Expr, ListExpr, Literal, MapExpr, children
from moorage.api.cel.types import Type

__all__ = ["literal_faults"]


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
_NAMES: Final = {
    "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration", "any": "google.protobuf.Any",
    "null": "null_type",
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
            yield SourceError(wrong.at, f"error during formatting: {why}, was given {_type_name(types.of(wrong))}")
            return
        used += 1
    if len(values) > used:
        yield SourceError(node.at, f"too many arguments supplied to string.format (expected {used}, got {len(values)})")


def _not_taken(node: Expr, taken: frozenset[str], types: NodeTypes, *, inside: bool) -> Expr | None:
    """Return the value that a format clause does not accept: the operand, or the first such value inside it."""
    of = types.of(node)
    if of.kind != "dyn" and _kind(of) not in taken:
        return node
    parts = children(node) if inside and isinstance(node, ListExpr | MapExpr) else []
    return next((wrong for one in parts if (wrong := _not_taken(one, taken, types, inside=True)) is not None), None)


def _kind(of: Type) -> str:
    return of.name if of.name in {"timestamp", "duration"} else of.kind


def _type_name(of: Type) -> str:
    name = of.name or of.kind
    return _NAMES.get(name, name)
