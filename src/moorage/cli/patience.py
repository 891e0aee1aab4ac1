"""A word about what takes long before there is an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moorage.server.patience import PATIENCE_S

__all__ = ["told_if_slow"]


@contextmanager
def told_if_slow(what: str, report: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Report what is going on if it is not done after so long."""
    timer = threading.Timer(patience_s, report, [f"Still {what}"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
