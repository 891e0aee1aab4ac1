"""Follow-up work of changes that would block the event loop: the worker does it as soon as it is free."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable

from moorage.apiserver.http.worker import Worker
from moorage.apiserver.storage.deferral import AskOwner
from moorage.apiserver.vocabulary.statuses import ApiError

__all__ = ["DeferredWork"]

_LOG = logging.getLogger(__name__)


class DeferredWork:
    """A queue of work for the worker. Work added under a key replaces work that waits under the same key."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting: dict[Hashable, Callable[[AskOwner], None]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, key: Hashable, work: Callable[[AskOwner], None]) -> None:
        self._waiting[key] = work
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            work = self._waiting.pop(key)
            try:
                await self._worker.run("", work)
            except ApiError as error:
                _LOG.warning("deferred work on %s: %s", key, error)
            except Exception:  # a bug with one object must not stop the work on others
                _LOG.exception("deferred work on %s", key)

    async def close(self) -> None:
        """Cancel the running work and drop the waiting work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
