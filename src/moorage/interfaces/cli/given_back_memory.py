"""Each decision creates and drops dozens of arrays whose size grows with the number of nodes. From some 80 kB on (thousands of
nodes) glibc returns such memory to the system at once and requests it again for the next array, which costs several times
the computation itself. ``keep_freed_memory`` makes glibc keep it.

Python runs its cycle collector after some hundreds of new objects: twice for every pod that is decoded, although almost
none of a pod's objects are in cycles. ``collect_seldom`` makes it run less often. ``leave_memory_at_exit`` skips the last
collection. A process that runs for months gives memory back: ``give_back_memory`` collects the objects of the last minute,
and makes glibc return what is free.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

# From malloc.h of glibc.
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3


def keep_freed_memory(kept: int = 256 << 20) -> bool:
    """Let the process keep up to ``kept`` freed bytes. Return False if the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = {_TRIM_THRESHOLD: kept, _TOP_PAD: kept >> 4, _MMAP_THRESHOLD: kept}
    return all(mallopt(option, value) for option, value in settings.items())


def collect_seldom() -> None:
    """Run the cycle collector once in a hundred thousand new objects; some MiB of garbage may wait for it."""
    gc.set_threshold(100_000, 10, 20)


#: How often a process that runs for long gives back memory, and how often it searches old objects for cycles, too.
GIVE_BACK_S: Final = 60.0
_WHOLE: Final = 10


async def give_back_memory(every_s: float = GIVE_BACK_S) -> None:
    """Collect young garbage and return free memory to the system, until cancelled.

    Old objects are searched every tenth time: that takes some 0.1 s for each million of objects.
    """
    import asyncio  # a tenth of the time in which a command starts; only servers give back memory

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        trim = None
    for turn in count(1):
        await asyncio.sleep(every_s)
        gc.collect(2 if turn % _WHOLE == 0 else 1)
        if trim is not None:
            trim(0)


@asynccontextmanager
async def giving_back_memory() -> AsyncIterator[None]:
    """Give back memory while the block runs."""
    import asyncio

    giving = asyncio.create_task(give_back_memory(), name="give back memory")
    try:
        yield
    finally:
        giving.cancel()


def leave_memory_at_exit() -> None:
    """Let the process end without searching its objects for cycles; the operating system frees their memory at once."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
