"""Functions on strings: search, slices, joins, regular expressions.

Positions count code points. Costs equal those of kube-scheduler's estimator.

Source  cel-go: ext/strings.go (version 2); apiserver/pkg/cel/library/regex.go, cost.go
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from moorage.api.cel.bounds import EvalError, check_items, check_text, check_work
from moorage.api.cel.declarations import Cost, Metered, reading
from moorage.api.cel.effort import nested_parts
from moorage.api.cel.frame import Frame
from moorage.api.cel.functions.conversions import to_string
from moorage.api.cel.regex import Regex, RegexError, compile_regex
from moorage.api.cel.values import Map, TypeValue, UInt, Value, show, type_name

# ``format`` of strings: ``"%d of %s".format([1, "a"])``.
#
# Source  cel-go: ext/formatting_v2.go

_CLAUSE: Final = re.compile(r"%(?:\.(\d{1,4}))?(.?)", re.DOTALL)
_PRECISION: Final = 6
#: The work of a clause.
_CLAUSE_WORK: Final = 8


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
        if clause[2] == "s":  # the others refuse lists
            check_work(nested_parts([args[used]]))
        made.append(_VERBS[clause[2]](args[used], _PRECISION if clause[1] is None else int(clause[1])))
        length += len(made[-1])
        check_text(length)
        used += 1
    made.append(text[at:])
    return _joined(made)


def _format(frame: Frame, text: str, args: Sequence[Value]) -> str:
    frame.work(text.count("%") * _CLAUSE_WORK)
    return formatted(text, args)


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
    if isinstance(value, (list, tuple)):
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
    if isinstance(value, bool) or not isinstance(value, (int, UInt)):
        raise _wrong(verb, value)
    return int(value)


def _wrong(verb: str, value: Value) -> EvalError:
    what = {"d": "decimal", "o": "octal", "x": "hex", "X": "hex", "b": "binary", "f": "fixed-point", "e": "scientific"}[verb]
    return EvalError(f"error during formatting: {what} clause can not be used on {type_name(value)}")


def _decimal(value: Value, precision: int) -> str:
    if isinstance(value, float) and _special(value):
        return _special(value)
    return str(_whole("d", value))


def _real(verb: str) -> Callable[[Value, int], str]:
    def show(value: Value, precision: int) -> str:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong(verb, value)
        return _special(float(value)) or f"{float(value):.{precision}{verb}}"

    return show


def _hex(verb: str) -> Callable[[Value, int], str]:
    def show(value: Value, precision: int) -> str:
        if isinstance(value, (str, bytes)):
            made = (value.encode() if isinstance(value, str) else value).hex()
            return made.upper() if verb == "X" else made
        return f"{_whole(verb, value):{verb}}"

    return show


def _binary(value: Value, precision: int) -> str:
    return str(int(value)) if isinstance(value, bool) else f"{_whole('b', value):b}"


_VERBS: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": _string, "d": _decimal, "f": _real("f"), "e": _real("e"), "x": _hex("x"), "X": _hex("X"), "b": _binary,
    "o": lambda value, _: f"{_whole('o', value):o}",
}  # fmt: skip


#: Functions with a pattern argument, which is compiled in advance if constant: name → its position.
REGEX_FUNCTIONS: Final = {"matches": 1, "find": 1, "findAll": 1}
#: The work of parsing a character of a pattern, and of building a step of its program.
_PARSED: Final = 40
_BUILT: Final = 8
#: How many characters are changed at once.
_PART: Final = 1 << 16


def _compiled(frame: Frame, pattern: str, prefix: str = "") -> Regex:
    """Return the compiled pattern, and charge for each new one."""
    is_new = pattern not in frame.patterns
    if is_new:
        frame.patterns.add(pattern)
        frame.work(len(pattern) * _PARSED)
    try:
        regex = compile_regex(pattern)
    except RegexError as error:
        if is_new:
            frame.work(error.size * _BUILT)
        raise EvalError(f"{prefix}{error}") from None
    if is_new:
        frame.work(regex.size * _BUILT)
    return regex


def _matches(frame: Frame, text: str, pattern: str) -> bool:
    return _compiled(frame, pattern).find(text, frame.work) is not None


def _find(frame: Frame, text: str, pattern: str) -> str:
    return _compiled(frame, pattern, "Illegal regex: ").find(text, frame.work) or ""


def _find_all(frame: Frame, text: str, pattern: str, limit: int = -1) -> list[str]:
    return _compiled(frame, pattern, "Illegal regex: ").find_all(text, limit, frame.work)


def _out_of_range(index: int) -> EvalError:
    return EvalError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str, *offset: int) -> int:
    if not offset:
        return len(text) if not part else _last(text, part)
    if offset[0] < 0:
        raise _out_of_range(offset[0])
    if not part:
        return min(offset[0], len(text))
    return -1 if offset[0] >= len(text) else _last(text[: offset[0] + len(part)], part)


def _last(text: str, part: str) -> int:
    """Return the last position of a part. ``rfind`` takes quadratic time at worst, ``find`` does not."""
    at = text[::-1].find(part[::-1])
    return at if at < 0 else len(text) - at - len(part)


def _mapped(text: str, change: Callable[[bytes], bytes]) -> str:
    """Change the ASCII letters of a text, part by part: at once, decoding wide characters takes six times their memory."""
    parts = (text[at : at + _PART].encode(errors="surrogatepass") for at in range(0, len(text), _PART))
    return "".join(change(part).decode(errors="surrogatepass") for part in parts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    places = text.count(old) if old else len(text) + 1
    check_text(len(text) + (places if count < 0 else min(count, places)) * len(new))
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    places = text.count(separator) if separator else len(text)
    check_items(places if count < 0 else min(count, places))
    if not separator:
        if count < 0 or count >= len(text):
            return list(text)
        return [*text[: count - 1], text[count - 1 :]]
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int, *end: int) -> str:
    if end and start > end[0]:
        raise EvalError(f"invalid substring range. start: {start}, end: {end[0]}")
    for index in (start, *end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start : end[0]] if end else text[start:]


#: The characters that Go's ``strings.TrimSpace`` removes.
_WHITE: Final = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f"
    "\u3000"
)


def _join(parts: list[Value], separator: str = "") -> str:
    for part in parts:
        if not isinstance(part, str):
            raise EvalError(f"join: invalid input: {show(part)}")
    check_text(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


#: A backslash comes first, because the others add backslashes.
_QUOTED: Final = {
    "\\": "\\\\",
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", '"': '\\"',
}  # fmt: skip


def _quote(text: str) -> str:
    for char, quoted in _QUOTED.items():
        text = text.replace(char, quoted)
        check_text(len(text))
    return f'"{text}"'


# -- costs ----------------------------------------------------------------------------------------------------------------


def _scan_twice(args: list[Value], result: Value) -> int:
    return math.ceil(len(args[0]) * 0.2)


def _built(factor: float) -> Cost:
    return lambda args, result: math.ceil(len(result) * factor)


def _regex_cost(args: list[Value], result: Value) -> int:
    """Return the cost of a match: length of the text times length of the pattern."""
    return math.ceil((1 + len(args[0])) * 0.1) * math.ceil(len(args[1]) * 0.25)


def _contains_cost(args: list[Value], result: Value) -> int:
    return math.ceil(len(args[0]) * 0.1) * math.ceil(len(args[1]) * 0.1)


def _per_element(args: list[Value], result: Value) -> int:
    """Return a tenth of the length, the cost of a search through a list. kube-scheduler charges it for strings, too."""
    return int(len(args[0]) * 0.1)


FUNCTIONS: Final[list[tuple[str, str, Any, Cost | None]]] = [
    ("contains", "string . string -> bool", lambda text, part: part in text, _contains_cost),
    ("startsWith", "string . string -> bool", str.startswith, reading),
    ("endsWith", "string . string -> bool", str.endswith, reading),
    ("matches", "string, string -> bool", Metered(_matches), _regex_cost),
    ("matches", "string . string -> bool", Metered(_matches), _regex_cost),
    ("find", "string . string -> string", Metered(_find), _regex_cost),
    ("findAll", "string . string -> list<string>", Metered(_find_all), _regex_cost),
    ("findAll", "string . string, int -> list<string>", Metered(_find_all), _regex_cost),
    ("charAt", "string . int -> string", _char_at, None),
    ("indexOf", "string . string -> int", _index_of, _per_element),
    ("indexOf", "string . string, int -> int", _index_of, _per_element),
    ("lastIndexOf", "string . string -> int", _last_index_of, _per_element),
    ("lastIndexOf", "string . string, int -> int", _last_index_of, _per_element),
    ("lowerAscii", "string . -> string", lambda text: _mapped(text, bytes.lower), reading),
    ("upperAscii", "string . -> string", lambda text: _mapped(text, bytes.upper), reading),
    ("replace", "string . string, string -> string", _replace, _scan_twice),
    ("replace", "string . string, string, int -> string", _replace, _scan_twice),
    ("split", "string . string -> list<string>", _split, _scan_twice),
    ("split", "string . string, int -> list<string>", _split, _scan_twice),
    ("substring", "string . int -> string", _substring, reading),
    ("substring", "string . int, int -> string", _substring, reading),
    ("trim", "string . -> string", lambda text: text.strip(_WHITE), reading),
    ("join", "list<string> . -> string", _join, _built(0.2)),
    ("join", "list<string> . string -> string", _join, _built(0.2)),
    ("strings.quote", "string -> string", _quote, reading),
    ("format", "string . list<dyn> -> string", Metered(_format), _built(0.1)),
]
