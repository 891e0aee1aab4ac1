"""What runs on the executor of a program: how much at once, and the object that a worker keeps between calls."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Executor
from typing import Any, Final

__all__ = ["kept", "workers_of"]

#: For an executor that does not say how many workers it has.
_UNKNOWN: Final = 8
_last: Final = threading.local()


def workers_of(executor: Executor) -> int:
    """Return the number of workers, or a guess."""
    found = getattr(executor, "_max_workers", None)
    return found if isinstance(found, int) and found > 0 else _UNKNOWN


def kept(data: bytes) -> Any:
    """Return what was pickled: the same object in every call of a thread with these bytes, until it is called with others."""
    if getattr(_last, "data", None) != data:
        _last.held = pickle.loads(data)  # noqa: S301 - the bytes come from the process that submitted the call
        _last.data = data
    return _last.held
