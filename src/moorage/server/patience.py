"""Report slow operations while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["PATIENCE_S", "report_delays"]

#: Seconds before the first check, and between two checks.
PATIENCE_S = 5.0


async def report_delays(waits_for: Callable[[], list[str]], report: Callable[[str], None]) -> None:
    """Each ``PATIENCE_S`` seconds, report what ``waits_for`` returns, unless it is empty or unchanged. Runs until cancelled."""
    reported: list[str] = []
    while True:
        await asyncio.sleep(PATIENCE_S)
        left = waits_for()
        if left and left != reported:
            report(f"Still waiting for {'; '.join(left)}")
        reported = left
