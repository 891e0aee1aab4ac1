"""Parse JSON to plain data: a single valid document quickly, anything else with exact error messages.

``msgspec`` parses a valid document straight from bytes. Anything else (several objects in a row, as ``kubectl`` accepts them;
possible duplicates in strict mode; anything ``msgspec`` rejects) is parsed again by the standard library's decoder, which
reports the line of a fault. Its leniencies are off: no NaN, no infinities, no lone surrogates, no numbers out of range.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NoReturn, Self

import msgspec

from moorage.api.reading.text_encoding import to_utf8
from moorage.errors import InputError

#: Deepest nesting of lists and objects.
MAX_DEPTH: Final = 100
#: How many duplicate fields of a document an error lists, as Go's decoder does.
MAX_REPEATS: Final = 100
#: The exceptions of msgspec's decoders for invalid input.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: What may separate two documents: blanks, and separator lines as in YAML.
_BLANK = re.compile(r"(?:[ \t\r\n]++|(?<=\n)---[ \t]*(?:#[^\n]*)?(?=\r?\n|\Z))*+")
_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}|\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]')


class JsonSyntaxError(InputError):
    """The bytes are not JSON, but may still be YAML. ``after``: the number of documents read before the fault."""

    def __init__(self, message: str, after: int) -> None:
        self.after = after
        super().__init__(message)


class WrittenFloat(float):
    """A number with a fraction or an exponent, and its ``text``: quantities keep ``1e18``, and ``1e400`` is beyond floats."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


_WRITTEN: Final = msgspec.json.Decoder(float_hook=WrittenFloat)


def read_written(data: bytes, where: str) -> Iterator[tuple[Any, int]]:
    """Yield what ``read_tree`` yields, with floats as they are written. Numbers beyond floats are not refused.

    Raises  as ``read_tree``
    """
    try:
        document = _WRITTEN.decode(data)
    except UNREADABLE:
        yield from read_tree(data, where)
    else:
        refuse_depth(document, where)
        yield document, 1


def plain_floats(value: Any) -> Any:
    """Return a value without the texts of its floats.

    Raises  OverflowError with the text of a number beyond floats
    """
    match value:
        case WrittenFloat():
            if math.isinf(value):
                raise OverflowError(value.text)
            return float(value)
        case dict():
            return {name: plain_floats(one) for name, one in value.items()}
        case list():
            return [plain_floats(one) for one in value]
        case _:
            return value


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """A value that the standard library's decoder would accept."""


def read_tree(
    data: bytes, where: str, *, strict: bool = False, on_repeat: Callable[[str], None] | None = None
) -> Iterator[tuple[Any, int]]:
    """Yield each document of a JSON stream (UTF-8, no byte order mark) with the line it starts on.

    Raises  JsonSyntaxError for input that is not JSON; InputError for JSON that is rejected. Messages start with
            ``where:line:``. ``strict`` rejects duplicate fields and reports up to ``MAX_REPEATS`` of a document at once;
            ``on_repeat`` receives these messages instead, and the last value of a field is its value
    """
    strict = strict or on_repeat is not None
    try:
        document = msgspec.json.decode(data)
    except UNREADABLE:
        pass
    else:
        if not strict or reads_back(document, data):
            line = data[: len(data) - len(data.lstrip(b" \t\r\n"))].count(b"\n") + 1
            refuse_depth(document, f"{where}:{line}")
            yield document, line
            return
    yield from _read_carefully(data, where, strict, on_repeat)


def reads_back(document: Any, data: bytes) -> bool:
    """Return True if encoding the document gives the same bytes, which rules out duplicate fields. Most programs' files do."""
    try:
        return msgspec.json.encode(document) == data.strip(b" \t\r\n")
    except (OverflowError, RecursionError, TypeError):  # the last for a written float
        return False


def _read_carefully(
    data: bytes, where: str, strict: bool, on_repeat: Callable[[str], None] | None
) -> Iterator[tuple[Any, int]]:
    text = _decoded(data, where)
    repeats: list[str] = []
    decoder = json.JSONDecoder(
        object_pairs_hook=_recording(repeats) if strict else None,
        parse_float=_float,
        parse_int=_int,
        parse_constant=_no,
    )
    line, counted, start = 1, 0, _skip_blank(text, 0)
    read = 0
    while start < len(text):
        line += text.count("\n", counted, start)
        counted = start
        document, end = _decode_one(decoder, text, start, where, line, read)
        if repeats:
            messages = [*islice(_duplicates(text, start, end, line, where), MAX_REPEATS)]
            if on_repeat is None:
                raise InputError(*messages)
            for message in messages:
                on_repeat(message)
            repeats.clear()
        yield document, line
        start, read = _skip_blank(text, end), read + 1


def _decode_one(decoder: json.JSONDecoder, text: str, start: int, where: str, line: int, read: int) -> tuple[Any, int]:
    here = f"{where}:{line}"
    try:
        document, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        fault_line = line + text.count("\n", start, min(error.pos, len(text.rstrip())))
        raise JsonSyntaxError(f"{where}:{fault_line}: {_syntax_fault(error)}", read) from None
    except _Refused as error:
        raise InputError(f"{here}: {error}") from None
    except RecursionError:
        raise InputError(f"{here}: nested deeper than {MAX_DEPTH} levels") from None
    refuse_depth(document, here)
    _refuse_surrogates(document, text, start, end, here)
    return document, end


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{where}:{line}: this is not UTF-8 ({error.reason}); save it as UTF-8") from None


def _skip_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found else start


def _syntax_fault(error: json.JSONDecodeError) -> str:
    if error.pos >= len(error.doc.rstrip()):
        return "unexpected end of JSON input"
    message = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
    return f"{message} at {json.dumps(error.doc[error.pos : error.pos + 12], ensure_ascii=False)}"


# -- leniencies of the standard library ---------------------------------------------------------------------------------


def _no(constant: str) -> NoReturn:
    raise _Refused(f"{constant} is not a JSON number")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Refused(f"number {text[:24]} is out of range")
    return number


def _int(text: str) -> int:
    if len(text) > 400:
        raise _Refused(f"number {text[:24]}… is out of range")
    return int(text)


def refuse_depth(document: Any, here: str) -> None:
    """Reject a document nested deeper than ``MAX_DEPTH``. It is checked level by level, without recursion.

    Raises  InputError
    """
    level = [document] if isinstance(document, (dict, list)) else []
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InputError(f"{here}: nested deeper than {MAX_DEPTH} levels")
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]


def _refuse_surrogates(document: Any, text: str, start: int, end: int, here: str) -> None:
    if _SURROGATE.search(text, start, end) is None:
        return
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(f"{here}: a string holds a lone surrogate, which is not a character") from None


# -- duplicates ---------------------------------------------------------------------------------------------------------


def _recording(repeats: list[str]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a hook that builds objects and records the keys of objects with duplicate fields."""

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            repeats.extend(key for key, _ in pairs)
        return built

    return build


def _duplicates(text: str, start: int, end: int, first_line: int, where: str) -> Iterator[str]:
    """Yield a message for every duplicate field. ``text[start:end]`` is valid JSON."""
    path: list[str | int] = []
    seen: list[set[str] | None] = []
    line, counted, string = first_line, start, ""
    for token in _TOKEN.finditer(text, start, end):
        match token[0]:
            case "{" | "[" as opening:
                seen.append(set() if opening == "{" else None)
                path.append(0)
            case "}" | "]":
                seen.pop()
                path.pop()
            case ",":
                if seen[-1] is None:
                    path[-1] = int(path[-1]) + 1
            case ":":
                fields = seen[-1]
                path[-1] = string
                if fields is not None and string in fields:
                    line += text.count("\n", counted, token.start())
                    counted = token.start()
                    yield f'{where}:{line}: duplicate field "{_dotted(path)}"'
                elif fields is not None:
                    fields.add(string)
            case quoted:
                string = json.loads(quoted)


def _dotted(path: list[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def loads_strict_json(data: bytes | str, where: str) -> Any:
    """Return the only document of a text; reject duplicate fields and everything that is not JSON."""
    documents = read_tree(to_utf8(data, where), where, strict=True)
    first = next(documents, None)
    if first is None:
        raise InputError(f"{where}:1: unexpected end of JSON input")
    try:
        _, line = next(documents)
    except StopIteration:
        return first[0]
    raise InputError(f"{where}:{line}: more than one document")
