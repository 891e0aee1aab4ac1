"""Escape text from outside for printing: names, messages and file names from input, servers and plugins.

Terminals interpret control characters, and characters that reorder the line, are invisible or break the line mislead readers.
All of these are escaped as in a Python literal (``\x1b``, ``\u202e``, ``\n``); other characters stay as they are. Escaping
twice has no further effect.

``errors`` escapes every message, ``server.klog`` every log line, ``report.columns`` every cell, and ``cli.terminal`` everything
that is written to standard output and standard error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

#: The maximum length of a text from a server or a plugin in an error or a log line.
MOST_BYTES: Final = 1024

#: Invisible characters that Unicode classifies as letters or marks: fillers, joiners and variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_BEYOND_ASCII: Final = re.compile(r"[^ -~]+")
_PLAIN: Final = bytes(range(0x20, 0x7F)) + b"\n\t"
_BEYOND_LINES: Final = re.compile(r"[^ -~\n\t]+")


#: How formulas of spreadsheets begin.
_FORMULA: Final = frozenset("=+-@\t\r")


def is_printable(text: str) -> bool:
    """Return True if every character is visible and is shown in its place."""
    return text.isprintable() and (text.isascii() or _INVISIBLE.search(text) is None)


def one_line(text: str) -> str:
    """Return the text as one line without control characters."""
    return text if is_printable(text) else _escaped(text, _BEYOND_ASCII, _as_python)


def some_lines(text: str) -> str:
    """Return the text with its line feeds and tabs; everything else is escaped as in ``one_line``."""
    return text if _is_plain(text) else _escaped(text, _BEYOND_LINES, _as_python)


def clip(text: str, most: int = MOST_BYTES) -> str:
    """Return the text as one line of at most ``most`` bytes of UTF-8; a cut text ends with its original length."""
    shown = one_line(text[:most]).encode()
    if len(text) <= most and len(shown) <= most:
        return shown.decode()
    rest = f" … ({len(text)} characters)"
    return shown[: most - len(rest.encode())].decode(errors="ignore") + rest


def escape_json(document: str) -> str:
    """Return an equivalent JSON document without control characters; in strings they are escaped with ``\\u``."""
    return document if _is_plain(document) else _escaped(document, _BEYOND_LINES, _as_json)


def _is_plain(text: str) -> bool:
    """Return True for printable lines, as most documents are; a fifth of the cost of a regular expression."""
    others = text.encode(errors="surrogatepass").translate(None, _PLAIN)
    return not others or is_printable(others.decode(errors="surrogatepass"))


def _escaped(text: str, suspects: re.Pattern[str], spell: Callable[[str], str]) -> str:
    def spelled(found: re.Match[str]) -> str:
        run = found[0]
        return run if is_printable(run) else "".join(one if is_printable(one) else spell(one) for one in run)

    return suspects.sub(spelled, text)


def _as_python(character: str) -> str:
    return ascii(character)[1:-1]


def _as_json(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


# -- wording -----------------------------------------------------------------------------------------------------------

_SHOWN: Final = 3


def csv_cell(value: object) -> object:
    """Return a value for a cell of CSV: a quote stands before a text that a spreadsheet would compute."""
    return f"'{value}" if isinstance(value, str) and len(value) > 1 and value[0] in _FORMULA else value


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 pod``, ``2 pods``, ``2 classes``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def close_to(asked: str, known: Mapping[str, str] | Iterable[str]) -> str:
    """Return ``; close: …`` with up to three of the known names that are most like one; "" if none is.

    ``known``: the names, or a mapping of names to the texts that are shown for them.
    """
    shown = known if isinstance(known, Mapping) else {name: name for name in known}
    close = dict.fromkeys(shown[name] for name in get_close_matches(asked, list(shown), 3))
    return one_line(f"; close: {', '.join(close)}") if close else ""
