"""An event loop in a thread of its own, for what must go on while the main loop is busy: probes, and the lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


async def across(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that ``make`` returns on another loop, and wait for it. Cancelled, it cancels it and waits for its end.

    Raises  what the coroutine raises; RuntimeError if that loop is closed
    """
    call = _Call(loop, make)
    loop.call_soon_threadsafe(call.begin)
    try:
        return await asyncio.shield(call.done)
    except asyncio.CancelledError:
        if not call.done.done():
            loop.call_soon_threadsafe(call.cancel)
            await asyncio.wait({call.done})
        raise


class _Call(Generic[T]):
    """A coroutine that runs on ``loop`` for a caller on another one. ``done`` belongs to the caller's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop, self._make = loop, make
        self._own = asyncio.get_running_loop()
        self.done: asyncio.Future[T] = self._own.create_future()
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = self._loop.create_task(self._make())
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        with suppress(RuntimeError):  # the caller's loop is closed
            self._own.call_soon_threadsafe(self._settle, task)

    def _settle(self, task: asyncio.Task[T]) -> None:
        if self.done.done():
            return
        if task.cancelled():
            self.done.cancel()
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


class SideLoop:
    """A loop that runs in a thread within the ``async with`` block; its tasks are cancelled at the end."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that ``make`` returns on this loop, and wait for it; see ``across``."""
        return await across(self.loop, make)
