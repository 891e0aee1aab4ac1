"""Measure a scheduler's memory from outside: the number of objects that can be reached from it.

Processes in virtual time share descriptors and memory, so leaks are measured as reachable objects. A measurement takes a few
hundredths of a second and needs no knowledge of the scheduler.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["reachable", "tasks"]

_CODE = (ModuleType, type)


def tasks(others: Iterable[asyncio.Future[Any]]) -> int:
    """Return the number of tasks except the given ones, which are not the scheduler's."""
    return len(asyncio.all_tasks() - set(others))


def reachable(root: object, beyond: Iterable[object]) -> int:
    """Return the number of objects reachable from one, not following code or the objects in ``beyond``."""
    loop = asyncio.get_running_loop()
    seen = {id(one) for one in (*beyond, loop)}
    front, count = [root], 0
    while front:
        fresh = []
        for one in front:
            if id(one) in seen or isinstance(one, _CODE):
                continue
            seen.add(id(one))
            count += 1
            fresh.append(one)
        front = []
        for one in fresh:
            # The globals of a function lead to the whole program.
            held = (one.__closure__, one.__defaults__) if isinstance(one, FunctionType) else gc.get_referents(one)
            front.extend(held)
    return count
