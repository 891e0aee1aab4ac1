"""Report an unreachable API server on the terminal of ``moorage run``: once, instead of a line for each kind."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from moorage.cli.terminal import say

__all__ = ["reports_for"]

_FAILED = re.compile(r".*: cannot connect: (?P<why>.*); listing again in [\d.]+s")


def reports_for(server: str, log: Callable[[str], None]) -> Callable[[str], None]:
    """Return the function that reports recoverable errors: the log or, on a terminal, a filter in front of the log."""
    return _Terminal(server, log) if sys.stderr.isatty() else log


class _Terminal:
    """Prints once that the server cannot be reached, and why; prints it again only if the reason changes."""

    def __init__(self, server: str, log: Callable[[str], None]) -> None:
        self._server, self._log = server, log
        self._said = ""

    def __call__(self, line: str) -> None:
        failed = _FAILED.fullmatch(line)
        if failed is None:
            self._log(line)
            return
        why = failed["why"][:1].lower() + failed["why"][1:]
        if why != self._said:
            self._said = why
            say(f"cannot reach {self._server}: {why}; retrying every second or two", err=True)
