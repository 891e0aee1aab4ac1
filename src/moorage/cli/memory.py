"""How the process holds on to memory.

Deciding makes and drops arrays as long as the cluster, dozens for a pod. From some 80 kB on (nodes by the thousand) glibc gives
such memory back to the system at once and asks for it again for the next array, which then costs several times what is computed
in it. Told to keep what was freed, it does neither.

Python's cycle collector is run each time some hundreds of objects were made, which is twice for every pod that comes over the
wire, though next to nothing of what a pod brings has cycles. It is run more seldom.
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
    """Let the process keep up to ``kept`` bytes that it has freed. Returns False where the C library cannot be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = {_TRIM_THRESHOLD: kept, _TOP_PAD: kept >> 4, _MMAP_THRESHOLD: kept}
    return all(mallopt(option, value) for option, value in settings.items())


def collect_seldom() -> None:
    """Let the cycle collector wait until some thousands of objects were made; a few MiB of garbage may wait with it."""
    gc.set_threshold(20_000, 10, 20)
