"""Progress messages for slow work that runs before the event loop starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moorage.server.health import PATIENCE_S

__all__ = ["report_if_slow"]


@contextmanager
def report_if_slow(what: str, report: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Report ``Still {what}`` if the block takes longer than ``patience_s``."""
    timer = threading.Timer(patience_s, report, [f"Still {what}"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
