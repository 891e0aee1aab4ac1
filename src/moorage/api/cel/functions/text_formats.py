"""``format`` of strings: ``"%d of %s".format([1, "a"])``.

Source  cel-go: ext/formatting_v2.go
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

from moorage.api.cel.bounds import EvalError, check_text, check_work
from moorage.api.cel.effort import nested_parts
from moorage.api.cel.functions.conversions import to_string
from moorage.api.cel.values import Map, TypeValue, UInt, Value, type_name

__all__ = ["formatted"]

_CLAUSE: Final = re.compile(r"%(?:\.(\d{1,4}))?(.?)", re.DOTALL)
_PRECISION: Final = 6


def formatted(text: str, args: Sequence[Value]) -> str:
    """Return a text with the clauses in it replaced by values.

    Raises  EvalError
    """
    made: list[str] = []
    at = used = length = 0
    check_work(text.count("%"))
    for clause in _CLAUSE.finditer(text):
        made.append(text[at : clause.start()])
        at = clause.end()
        if clause[2] == "%":
            made.append("%")
            continue
        if clause[2] not in _VERBS or not clause[2]:
            raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{clause[2]}"')
        if used >= len(args):
            raise EvalError(f"index {used} out of range")
        check_work(nested_parts([args[used]]))
        made.append(_VERBS[clause[2]](args[used], _PRECISION if clause[1] is None else int(clause[1])))
        length += len(made[-1])
        check_text(length)
        used += 1
    made.append(text[at:])
    return _joined(made)


def _joined(parts: Iterable[str], separator: str = "") -> str:
    """Join texts, and stop when the result gets too long."""
    made: list[str] = []
    length = 0
    for part in parts:
        made.append(part)
        length += len(part) + len(separator)
        check_text(length)
    return separator.join(made)


def _string(value: Value, precision: int = 0) -> str:
    del precision
    if isinstance(value, list | tuple):
        return f"[{_joined(map(_string, value), ', ')}]"
    if isinstance(value, Map):
        shown = sorted([(_string(key), held) for key, held in value.items()], key=itemgetter(0))
        return f"{{{_joined((f'{key}: {_string(held)}' for key, held in shown), ', ')}}}"
    if value is None:
        return "null"
    if isinstance(value, float):
        return _special(value) or to_string(value)
    return str(value.type) if isinstance(value, TypeValue) and hasattr(value, "type") else to_string(value)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return ("Infinity" if value > 0 else "-Infinity") if math.isinf(value) else ""


def _whole(verb: str, value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int | UInt):
        raise _wrong(verb, value)
    return int(value)


def _wrong(verb: str, value: Value) -> EvalError:
    what = {"d": "decimal", "o": "octal", "x": "hex", "X": "hex", "b": "binary", "f": "fixed-point", "e": "scientific"}[verb]
    return EvalError(f"error during formatting: {what} clause can not be used on {type_name(value)}")


def _decimal(value: Value, precision: int) -> str:
    del precision
    if isinstance(value, float) and _special(value):
        return _special(value)
    return str(_whole("d", value))


def _real(verb: str) -> Callable[[Value, int], str]:
    def show(value: Value, precision: int) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(verb, value)
        return _special(float(value)) or f"{float(value):.{precision}{verb}}"

    return show


def _hex(verb: str) -> Callable[[Value, int], str]:
    def show(value: Value, precision: int) -> str:
        del precision
        if isinstance(value, str | bytes):
            made = (value.encode() if isinstance(value, str) else value).hex()
            return made.upper() if verb == "X" else made
        return f"{_whole(verb, value):{verb}}"

    return show


def _binary(value: Value, precision: int) -> str:
    del precision
    return str(int(value)) if isinstance(value, bool) else f"{_whole('b', value):b}"


_VERBS: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": _string, "d": _decimal, "f": _real("f"), "e": _real("e"), "x": _hex("x"), "X": _hex("X"), "b": _binary,
    "o": lambda value, _: f"{_whole('o', value):o}",
}  # fmt: skip
