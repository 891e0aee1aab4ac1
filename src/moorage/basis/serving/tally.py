"""Count recurring errors, and log them in at most one line a minute."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

#: Minimum number of seconds between two log lines.
EVERY_S: Final = 60.0


class Tally:
    """Log the first error at once; count later ones and log their number when the interval is over.

    ``say`` writes a line, which starts with ``subject``.
    """

    def __init__(self, subject: str, say: Callable[[str], None], every_s: float = EVERY_S) -> None:
        self._subject = subject
        self._say = say
        self._every_s = every_s
        self._counts: Counter[str] = Counter()
        self._details: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, what: str, detail: str = "") -> None:
        """Count an error. The line shows the latest ``detail`` of each kind."""
        self._counts[what] += 1
        self._details[what] = detail
        if self._timer is None:
            self._flush()

    def close(self) -> None:
        """Stop logging."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._counts.clear()

    def _flush(self) -> None:
        self._timer = None
        if not self._counts:
            return
        parts = [_times(what, count, self._details[what]) for what, count in self._counts.items()]
        self._counts.clear()
        self._details.clear()
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._flush)
        self._say(f"{self._subject}: {'; '.join(parts)}")


def _times(what: str, count: int, detail: str) -> str:
    often = "once" if count == 1 else f"{count} times"
    return f"{what} {often} ({'' if count == 1 else 'last: '}{detail})" if detail else f"{what} {often}"
