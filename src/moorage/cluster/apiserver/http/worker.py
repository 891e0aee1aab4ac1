"""One thread for work that would block the event loop.

A job has the thread until it ends; others wait, and users take turns. Python runs one thread at a time, so while a job runs
the interpreter switches threads every millisecond, and the loop runs as soon as it has work. The garbage collector pauses,
as it would stop both threads.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from moorage.api.documents.statuses import ApiError, too_many
from moorage.api.gc_pause import collector_paused
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.rules.store.definitions import AskOwner

T = TypeVar("T")
#: Thread switch interval while a job runs, in seconds.
_SWITCH_S: Final = 0.001
_BUSY: Final = "too many large requests, please try again later"
_TOO_SLOW: Final = "Timeout: request did not complete within requested timeout - context deadline exceeded"
_RETRY_S: Final = 1


class _GivenUpError(Exception):
    """The client no longer waits for the job."""


class _Job(Generic[T]):
    """Work for the thread. Once ``given_up`` is True, its calls to the event loop fail, so that it changes nothing."""

    def __init__(self, work: Callable[[AskOwner], T]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[T] = self.loop.create_future()
        self.given_up = False

    def ask(self, function: Callable[[], Any]) -> Any:
        """Call a function on the event loop, from the thread; return its result or raise its error."""
        reply: Future[Any] = Future()
        self.loop.call_soon_threadsafe(self._call_on_loop, function, reply)
        return reply.result()

    def _call_on_loop(self, function: Callable[[], Any], reply: Future[Any]) -> None:
        try:
            if self.given_up:
                raise _GivenUpError
            reply.set_result(function())
        except Exception as error:  # the thread handles it
            reply.set_exception(error)

    def end(self, result: T | None, error: BaseException | None) -> None:
        if self.given_up or self.done.done():
            return
        if error is None:
            self.done.set_result(result)  # type: ignore[arg-type]
        else:
            self.done.set_exception(error)


class Worker:
    """Runs jobs in a thread that exists only while there are jobs."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._waiting: OrderedDict[str, deque[_Job[Any]]] = OrderedDict()
        self._running: _Job[Any] | None = None
        self._usual_switch_s = 0.0

    async def run(self, client: str, work: Callable[[AskOwner], T]) -> T:
        """Run ``work`` in the thread and return its result. Its argument calls functions on the event loop.

        Raises  ApiError 429 if too many jobs wait, in total or of the client; 504 after ``large_s``; and what the work raises
        """
        job = _Job(work)
        self._add(client, job)
        self._start_next()
        try:
            await asyncio.wait([job.done], timeout=self._limits.large_s)
            if not job.done.done():
                raise ApiError(504, "Timeout", _TOO_SLOW)
            return job.done.result()
        finally:
            job.given_up = True
            self._remove(client, job)

    def _add(self, client: str, job: _Job[Any]) -> None:
        own = self._waiting.get(client, ())
        total = sum(map(len, self._waiting.values()))
        if total >= self._limits.large_waiting or len(own) >= self._limits.large_per_client:
            raise too_many(_BUSY, _RETRY_S)
        self._waiting.setdefault(client, deque()).append(job)

    def _remove(self, client: str, job: _Job[Any]) -> None:
        jobs = self._waiting.get(client)
        if jobs is not None and job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._waiting[client]

    def _start_next(self) -> None:
        """Start the next job, of the user who has waited longest."""
        if self._running is not None or not self._waiting:
            return
        client, jobs = self._waiting.popitem(last=False)
        self._running = job = jobs.popleft()
        if jobs:
            self._waiting[client] = jobs
        if not self._usual_switch_s:
            self._usual_switch_s = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_S)
        threading.Thread(target=self._run_in_thread, args=[job], name="large request", daemon=True).start()

    def _run_in_thread(self, job: _Job[Any]) -> None:
        result, error = _outcome(job)
        with suppress(RuntimeError):  # no client waits if the loop is closed
            job.loop.call_soon_threadsafe(self._finished, job, result, error)

    def _finished(self, job: _Job[Any], result: Any, error: BaseException | None) -> None:
        job.end(result, error)
        self._running = None
        self._start_next()
        if self._running is None:
            sys.setswitchinterval(self._usual_switch_s)
            self._usual_switch_s = 0.0


def _outcome(job: _Job[Any]) -> tuple[Any, BaseException | None]:
    """Return a job's result or its exception, whose traceback keeps none of the job's data alive."""
    with collector_paused():
        try:
            return job.work(job.ask), None
        except BaseException as error:
            held: BaseException | None = error
            while held is not None:
                traceback.clear_frames(held.__traceback__)
                held = held.__context__
            return None, error


_LOG = logging.getLogger(__name__)


class DeferredWork:
    """A queue of work that would block the event loop: the worker does it as soon as it is free.

    Work added under a key replaces work that waits under the same key.
    """

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
