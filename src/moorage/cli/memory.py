"""Memory settings of the process.

Each decision creates and drops dozens of arrays whose size grows with the number of nodes. From some 80 kB on (thousands of
nodes) glibc returns such memory to the system at once and requests it again for the next array, which costs several times
the computation itself. ``keep_freed_memory`` makes glibc keep it.

Python runs its cycle collector after some hundreds of new objects: twice for every pod that is decoded, although almost none of
a pod's objects are in cycles. ``collect_seldom`` makes it run less often.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

__all__ = ["collect_seldom", "keep_freed_memory"]

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
    """Run the cycle collector once in some thousands of new objects; a few MiB of garbage may wait for it."""
    gc.set_threshold(20_000, 10, 20)
