"""Regular expressions with RE2's syntax, by Google's RE2: matched in time proportional to text times pattern.

RE2 and Go's regexp package accept the same patterns but for ``\\C``. Their messages differ; these are Go's. ``\\B`` alone may
match inside a character beyond ASCII, where Go's does not.

Source  Go's regexp and regexp/syntax packages
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from moorage.api.cel.bounds import MAX_PARSED, MAX_PROGRAM, MAX_STEPS, TooLargeError

#: RE2's messages as Go words them. A message ends with the part of the pattern that is at fault.
_MESSAGES: Final = (
    ("missing ): ", "missing closing )"), ("unexpected ): ", "unexpected )"), ("missing ]: ", "missing closing ]"),
    ("no argument for repetition operator: ", "missing argument to repetition operator"),
    ("bad repetition operator: ", "invalid nested repetition operator"), ("invalid repetition size: ", "invalid repeat count"),
    ("invalid perl operator: ", "invalid or unsupported Perl syntax"),
    ("invalid named capture group: ", "invalid named capture"), ("trailing \\", "trailing backslash at end of expression"),
)  # fmt: skip
#: ``\C``, a byte, which Go does not know, as the first escape of a pattern that is it.
_BYTE: Final = re.compile(rb"(?:[^\\]|\\[^C])*?\\C", re.DOTALL)
#: How much memory a pattern takes, in bytes: enough for ``MAX_PROGRAM`` steps.
_MAX_MEMORY: Final = 3 << 20
#: In how many steps RE2 does a unit of work: while it has to follow all threads, and per byte of the text for each match.
_STEPS_PER_UNIT: Final = 8
_STEPS_PER_UNIT_AGAIN: Final = 100
#: What a search takes in any case, in units of work.
_UNITS_PER_SEARCH: Final = 24


class RegexError(ValueError):
    """A pattern that RE2 rejects. ``size``: the number of steps built before it was."""

    size = 0

    def __init__(self, what: str, where: str | None = None) -> None:
        super().__init__(f"error parsing regexp: {what}" + ("" if where is None else f": `{where}`"))


class Regex:
    """A compiled pattern. ``size``: the number of steps in its program."""

    def __init__(self, pattern: str) -> None:
        import re2  # costs 5 ms, which most commands need not spend

        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MAX_MEMORY
        raw = pattern.encode(errors="replace")
        try:
            self._compiled = re2.compile(raw, options)
        except re2.error as error:
            raise _as_go(error.args[0].decode(errors="replace")) from None
        if _BYTE.match(raw):
            raise RegexError("invalid escape sequence", "\\C")
        self.size: int = self._compiled.programsize

    def find(self, text: str, work: Callable[[int], None] = lambda units: None) -> str | None:
        """Return the leftmost match, None if there is none; of several, the one Perl prefers.

        ``work`` is called with the most work that the search may be, in the units of ``MAX_EFFORT``.
        Raises  TooLargeError if that is more than ``MAX_STEPS``; what ``work`` raises
        """
        found = self._compiled.search(self._checked(text, work))
        return None if found is None else found.group().decode()

    def find_all(self, text: str, limit: int, work: Callable[[int], None] = lambda units: None) -> list[str]:
        """Return the texts of non-overlapping matches, at most ``limit`` of them (below zero: all).

        Raises  as ``find``
        """
        raw = self._checked(text, work)
        found: list[str] = []
        at, last_end = 0, -1
        while at <= len(raw) and (limit < 0 or len(found) < limit):
            work(_UNITS_PER_SEARCH + (len(raw) - at) * self.size // _STEPS_PER_UNIT_AGAIN)
            match = self._compiled.search(raw, at)
            if match is None:
                break
            begun, end = match.span()
            if end > begun or begun != last_end:  # skip an empty match right after another match
                found.append(raw[begun:end].decode())
            last_end = at = end
            if end == begun:
                at += 1
                while at < len(raw) and raw[at] & 0xC0 == 0x80:  # inside a character
                    at += 1
        return found

    def _checked(self, text: str, work: Callable[[int], None]) -> bytes:
        raw = text.encode(errors="replace")
        steps = len(raw) * self.size
        if steps > MAX_STEPS:
            raise TooLargeError(f"a text of {len(text)} characters takes more than {MAX_STEPS} steps to match")
        work(_UNITS_PER_SEARCH + steps // _STEPS_PER_UNIT)
        return raw


def _as_go(text: str) -> RegexError:
    if text.startswith("pattern too large"):
        return _too_large()
    for start, go in _MESSAGES:
        if text.startswith(start):
            return RegexError(go, text[len(start) :])
    what, _, where = text.partition(": ")
    return RegexError(what, where)


def _too_large() -> RegexError:
    error = RegexError("expression too large")
    error.size = MAX_PROGRAM
    return error


def compile_regex(pattern: str) -> Regex:
    """Compile a pattern.

    Raises  RegexError with Go's text
    """
    found = _compiled(pattern)
    if isinstance(found, RegexError):
        raise found.with_traceback(None)
    return found


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Regex | RegexError:
    """Compile a pattern; return the error, so that it is cached too."""
    try:
        if len(pattern) > MAX_PARSED:
            return RegexError("expression too large")
        found = Regex(pattern)
    except RegexError as error:
        return error
    return found if found.size <= MAX_PROGRAM else _too_large()
