"""Memory settings of the process.

Each decision creates and drops dozens of arrays whose size grows with the number of nodes. From some 80 kB on (thousands of
nodes) glibc returns such memory to the system at once and requests it again for the next array, which costs several times
the computation itself. ``keep_freed_memory`` makes glibc keep it.

Python runs its cycle collector after some hundreds of new objects: twice for every pod that is decoded, although almost none of
a pod's objects are in cycles. ``collect_seldom`` makes it run less often. ``leave_memory_at_exit`` skips the last collection.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
from typing import Final

__all__ = ["collect_seldom", "keep_freed_memory", "leave_memory_at_exit"]

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


def leave_memory_at_exit() -> None:
    """Let the process end without searching its objects for cycles; the operating system frees their memory at once."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
