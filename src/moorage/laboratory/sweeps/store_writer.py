"""Write runs while others are executed, because most of the time of a write is spent waiting for the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from moorage.laboratory.sweeps.jobs import FailedRun, StoredRun
from moorage.laboratory.sweeps.store import RunStore

Outcome = StoredRun | FailedRun
#: Maximum number of runs that wait to be written: a crash of the machine loses them.
_MOST_WAITING: Final = 8


class StoreWriter:
    """Writes runs to a store in a thread of its own, in order.

    ``noted`` is called in the caller's thread with each outcome; for a run, after it is written. Leaving the block writes
    all waiting runs, also after an exception.
    """

    def __init__(self, store: RunStore, noted: Callable[[Outcome], None]) -> None:
        self._store, self._noted = store, noted
        self._thread = ThreadPoolExecutor(1, "moorage-store")
        self._waiting: deque[tuple[Outcome, Future[None]]] = deque()

    def put(self, found: Outcome) -> None:
        """Queue an outcome for writing, and report those that were written meanwhile.

        Raises  InputError if a file cannot be written
        """
        self._waiting.append((found, self._thread.submit(self._write, found)))
        self._settle(_MOST_WAITING)

    def _write(self, found: Outcome) -> None:
        if isinstance(found, StoredRun):
            self._store.write(found)

    def _settle(self, most: int) -> None:
        """Report outcomes that are written; wait until at most ``most`` are not."""
        while self._waiting and (len(self._waiting) > most or self._waiting[0][1].done()):
            found, written = self._waiting.popleft()
            written.result()
            self._noted(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._settle(0)
        finally:
            self._thread.shutdown(wait=True)
