"""Run the refreshes of outside data that plugins asked for, beside scheduling."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import NoReturn

from moorage.errors import RAISED
from moorage.framework.handle import Refresh
from moorage.framework.plugin_runner import failure_text


async def keep_fresh(refresh: Refresh, done: Callable[[], None], report: Callable[[str], None]) -> NoReturn:
    """Run one refresh until cancelled, at once and then again ``every_s`` seconds after it ended; call ``done`` after each.

    A function that is not asynchronous runs in a thread, so that scheduling goes on. What it raises is reported.
    """
    while True:
        said = await _ran_here(refresh) if inspect.iscoroutinefunction(refresh.run) else await asyncio.to_thread(_ran, refresh)
        if said is not None:
            report(said)
        done()
        await asyncio.sleep(refresh.every_s)


def _ran(refresh: Refresh) -> str | None:
    """Run a function and return what failed; None if nothing did."""
    try:
        refresh.run()
    except RAISED as error:
        return _failure(refresh, error)
    return None


async def _ran_here(refresh: Refresh) -> str | None:
    try:
        await refresh.run()
    except RAISED as error:
        return _failure(refresh, error)
    return None


def _failure(refresh: Refresh, error: BaseException) -> str:
    return f"plugin {refresh.plugin} failed in a refresh: {failure_text(error)}"
