"""Profiles in pprof's format, so that ``go tool pprof`` reads them: where threads spend their time, and what is alive.

Source  github.com/google/pprof, proto/profile.proto
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Final

from moorage.api.wire_format import delimited, number, varint

#: A function: its name, its file, and the line in it.
Place = tuple[str, str, int]
_HZ: Final = 100
_DEEPEST: Final = 128


def encoded(
    types: Sequence[tuple[str, str]],
    samples: Mapping[tuple[Place, ...], Sequence[int]],
    *,
    seconds: float = 0.0,
    period: int = 0,
) -> bytes:
    """Return a profile, compressed. ``types`` are names and units of values; ``samples``: a stack, innermost first → values.

    ``period`` is the time between two samples in nanoseconds.
    """
    texts: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    locations: dict[Place, int] = {}
    out = bytearray()

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    def location(place: Place) -> int:
        functions.setdefault(place[:2], len(functions) + 1)
        return locations.setdefault(place, len(locations) + 1)

    for name, unit in types:
        out += delimited(1, number(1, text(name)) + number(2, text(unit)))
    for stack, values in samples.items():
        ids, amounts = map(location, stack), b"".join(map(varint, values))
        out += delimited(2, delimited(1, b"".join(map(varint, ids))) + delimited(2, amounts))
    for place, at in locations.items():
        line = number(1, functions[place[:2]]) + number(2, place[2])
        out += delimited(4, number(1, at) + delimited(4, line))
    for (name, file), at in functions.items():
        out += delimited(5, number(1, at) + number(2, text(name)) + number(3, text(name)) + number(4, text(file)))
    if period:
        out += delimited(11, number(1, text(types[-1][0])) + number(2, text(types[-1][1]))) + number(12, period)
    out += number(9, time.time_ns()) + number(10, int(seconds * 1e9))
    for one in texts:
        out += delimited(6, one.encode("utf-8", "replace"))
    return gzip.compress(bytes(out))


def stack_of(frame: FrameType | None) -> tuple[Place, ...]:
    """Return the places of a frame and its callers, the innermost first."""
    found: list[Place] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append((frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


async def cpu_profile(seconds: float) -> bytes:
    """Return where all other threads were, a hundred times a second. One that waits in C counts where it made the call."""
    own = threading.get_ident()
    counts: Counter[tuple[Place, ...]] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        counts.update(stack_of(frame) for number, frame in sys._current_frames().items() if number != own)
        await asyncio.sleep(1 / _HZ)
    period = 10**9 // _HZ
    samples = {stack: (count, count * period) for stack, count in counts.items()}
    return encoded([("samples", "count"), ("cpu", "nanoseconds")], samples, seconds=seconds, period=period)


def heap_profile() -> bytes:
    """Return how many objects the cycle collector knows of each type, and their bytes without those of what they refer to."""
    sizes = _sizes(gc.get_objects())
    samples: dict[tuple[Place, ...], Sequence[int]] = {((name, "", 0),): amounts for name, amounts in sizes.items()}
    return encoded([("inuse_objects", "count"), ("inuse_space", "bytes")], samples)


def heap_text(most: int = 60) -> str:
    """Return the same as text, the types with the most bytes first."""
    sizes = sorted(_sizes(gc.get_objects()).items(), key=lambda one: -one[1][1])
    lines = [f"{count:>10} {size:>14} {name}" for name, (count, size) in sizes[:most]]
    return "\n".join([f"{'objects':>10} {'bytes':>14} type", *lines, ""])


def _sizes(objects: Iterable[object]) -> dict[str, tuple[int, int]]:
    counts: Counter[type] = Counter()
    sizes: Counter[type] = Counter()
    for one in objects:
        kind = type(one)
        counts[kind] += 1
        try:
            sizes[kind] += sys.getsizeof(one)
        except (TypeError, ValueError, AttributeError, RuntimeError):  # a type that cannot tell
            continue
    return {f"{kind.__module__}.{kind.__qualname__}": (count, sizes[kind]) for kind, count in counts.items()}
