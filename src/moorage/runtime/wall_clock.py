"""The wall clock, in the API's format: ``2026-11-21T03:00:00.000000Z``.

Every event needs it, so the part up to the second is cached.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["Wall"]


class Wall:
    """Satisfies ``moorage.runtime.ports.WallClock``. ``now_ns`` gives nanoseconds since 1970."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._second, self._text = -1, ""

    def __call__(self) -> str:
        second, rest = divmod(self._now_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._text}.{rest // 1000:06d}Z"
