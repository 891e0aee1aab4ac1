"""What takes long, reported while it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["PATIENCE_S", "report_delays"]

#: Seconds before a delay is reported, and between two looks at what is left.
PATIENCE_S = 5.0


async def report_delays(waits_for: Callable[[], list[str]], report: Callable[[str], None]) -> None:
    """Report what is waited for when that takes long, and again whenever it is something else. Ends by being cancelled."""
    reported: list[str] = []
    while True:
        await asyncio.sleep(PATIENCE_S)
        left = waits_for()
        if left and left != reported:
            report(f"Still waiting for {'; '.join(left)}")
        reported = left
