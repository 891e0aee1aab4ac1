r"""Text from outside made safe to print: names, messages and file names as input, servers and plugins hand them over.

A terminal obeys control characters, and a reader is misled by characters that reorder the line, take no room or start a new
line. All of these are written as Python writes them in a literal (``\x1b``, ``\u202e``, ``\n``). Everything else stands for
itself. What is escaped once stays as it is when it is escaped again.

``errors`` escapes every message, ``server.klog`` every log line, ``report.columns`` every cell, and ``cli.terminal`` whatever
reaches standard output and standard error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["MOST_BYTES", "clip", "escape_json", "is_printable", "one_line", "some_lines"]

#: How much of a text from a server or a plugin stands in an error or a log line.
MOST_BYTES: Final = 1024

#: Characters that Unicode counts as letters or marks, and that show nothing: fillers, joiners and variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_BEYOND_ASCII: Final = re.compile(r"[^ -~]+")
_PLAIN: Final = bytes(range(0x20, 0x7F)) + b"\n\t"
_BEYOND_LINES: Final = re.compile(r"[^ -~\n\t]+")


def is_printable(text: str) -> bool:
    """Return True if each character shows something, and shows it where it stands."""
    return text.isprintable() and (text.isascii() or _INVISIBLE.search(text) is None)


def one_line(text: str) -> str:
    """Return the text as one line that steers no terminal."""
    return text if is_printable(text) else _escaped(text, _BEYOND_ASCII, _as_python)


def some_lines(text: str) -> str:
    """Return the text with its line feeds and tabs, and everything else escaped that ``one_line`` escapes."""
    return text if _is_plain(text) else _escaped(text, _BEYOND_LINES, _as_python)


def clip(text: str, most: int = MOST_BYTES) -> str:
    """Return the text as one line of at most so many bytes of UTF-8; where it is cut, it says how long it was."""
    shown = one_line(text[:most]).encode()
    if len(text) <= most and len(shown) <= most:
        return shown.decode()
    rest = f" … ({len(text)} characters)"
    return shown[: most - len(rest.encode())].decode(errors="ignore") + rest


def escape_json(document: str) -> str:
    """Return a JSON document that says the same and steers no terminal: within strings, ``\\u`` stands for the rest."""
    return document if _is_plain(document) else _escaped(document, _BEYOND_LINES, _as_json)


def _is_plain(text: str) -> bool:
    """Return True for lines of printable ASCII, as most documents are; it takes a fifth of the time of a search."""
    return text.isascii() and not text.encode().translate(None, _PLAIN)


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
