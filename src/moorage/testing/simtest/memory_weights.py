"""What a scheduler holds on to, counted from outside: every object that can be reached from it, whatever its parts are called.

Virtual time has no descriptors and no memory of its own for each process, so leaks are looked for where they begin: in what is
reachable. It takes a few hundredths of a second, and knows nothing of the scheduler.
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
    """Return how many tasks there are, but for some that are none of the scheduler's."""
    return len(asyncio.all_tasks() - set(others))


def reachable(root: object, beyond: Iterable[object]) -> int:
    """Return how many objects can be reached from one, without going through code or what lies ``beyond``."""
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
