"""Texts of input files: convert them to UTF-8, and explain common mistakes: unrendered templates, tabs, truncated files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from moorage.basis.printable import one_line
from moorage.errors import InputError

_TEMPLATE: Final = re.compile(rb"\{\{.{0,80}?\}\}")
_MOST_WIDTH: Final = 100
#: Larger files are dumps, which people do not edit by hand.
_MOST_BYTES: Final = 16 << 20
_CUT_JSON: Final = "unexpected end of JSON input"
_OPEN_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{}]', re.DOTALL)


def explained(error: InputError, where: str, data: bytes, mask: Callable[[str], str] = str) -> InputError:
    """Return the error of a file that cannot be parsed, with the likely cause and the lines around the fault.

    ``mask`` hides the secrets of a line.
    """
    message = str(error)
    place = re.match(re.escape(one_line(where)) + r":(\d+): ", message)
    if place is None or "\n" in message or len(data) > _MOST_BYTES:
        return error
    number = int(place[1])
    lines = data.splitlines()
    line = lines[number - 1] if number <= len(lines) else b""
    column, hint = _cause(data, line, message)
    return InputError(f"{message}{hint}", *_excerpt(lines, number, column, mask))


def _cause(data: bytes, line: bytes, message: str) -> tuple[int, str]:
    """Return the column of the fault, counted from 0, and what the user should know."""
    indent = line[: len(line) - len(line.lstrip())]
    if message.endswith(_CUT_JSON):
        return len(line.rstrip()), _cut(data)
    if template := _TEMPLATE.search(line) or _TEMPLATE.search(data):
        shown = template[0].decode(errors="replace")[:40]
        column = line.find(template[0])
        return max(column, len(indent)), f"; {shown} is a template that was not rendered: render it with helm template first"
    if b"\t" in indent:
        return indent.index(b"\t"), "; the line is indented with a tab: YAML allows only spaces there"
    return len(indent), ""


def _cut(data: bytes) -> str:
    """Return the part of the message that says where the JSON text ends, and how many brackets are still open."""
    depth = 0
    for token in _OPEN_BRACKETS.finditer(data):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
    brackets = f", {depth} brackets still open" if depth > 1 else ""
    return f": the file ends after {len(data)} bytes{brackets}; it may have been cut off while it was written or copied"


def _excerpt(lines: list[bytes], number: int, column: int, mask: Callable[[str], str]) -> Iterator[str]:
    """Yield the line of the fault with its neighbours, and a caret under the fault."""
    first = max(1, number - 1)
    start = max(0, column - _MOST_WIDTH + 20)
    width = len(str(number + 1))
    for at, raw in enumerate(islice(lines, first - 1, number + 1), first):
        yield f"  {at:>{width}} | {_shown(raw, start, mask)}"
        if at == number:
            yield f"  {'':>{width}} | {' ' * (column - start)}^"


def _shown(raw: bytes, start: int, mask: Callable[[str], str]) -> str:
    whole = mask(raw[: start + 4 * _MOST_WIDTH].decode(errors="replace"))
    text = one_line(whole[start:].replace("\t", " "))
    return text if len(text) <= _MOST_WIDTH else f"{text[: _MOST_WIDTH - 1]}…"
