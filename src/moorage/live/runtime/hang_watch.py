"""Watch an event loop from outside: notice when it hangs, and say in which plugin, for which pod, and where.

A plugin that does not return stops everything that shares its event loop. The watch is a thread, which asks the loop for a
sign of life and looks at the loop's thread while there is none. It sees Python code that runs or waits. Code in C that keeps
Python's lock stops this thread, too: then ``faulthandler``, which needs no lock, writes the stacks and ends the process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from moorage.api.core import Pod
from moorage.framework.points import POINTS
from moorage.framework.profile import Profile
from moorage.live.runtime.attempt_metrics import SILENT, Log
from moorage.state.pod_info import PodInfo

#: Seconds without a sign of life until a line says so; until liveness fails; and until the watch ends the process.
SLOW_S: Final = 1.0
LIMIT_S: Final = 30.0
END_S: Final = 60.0
_EVERY_S: Final = 0.5
#: Method → the extension point that it belongs to.
_POINT_OF: Final = {method: point for point, methods in POINTS.items() for method in methods}
#: Lines of a stack in the log.
_MOST_LINES: Final = 40


@dataclass(frozen=True, slots=True)
class Hang:
    """A loop that does not answer. ``plugin``, ``point``, ``profile`` are "" and ``pod`` None if no plugin runs."""

    plugin: str
    point: str
    profile: str
    pod: Pod | None
    stack: str

    @property
    def pod_key(self) -> str:
        return "" if self.pod is None else f"{self.pod.namespace}/{self.pod.name}"


class HangWatch:
    """Watches the running loop. ``profiles``: those whose plugins it can name.

    ``on_hang`` is called once for each hang, on the watch's thread; ``on_limit`` once when it has lasted for ``limit_s``, and
    ``on_end`` when it has lasted for ``end_s``.
    """

    def __init__(
        self, profiles: Callable[[], Iterable[Profile]], log: Log = SILENT, *, slow_s: float = SLOW_S, limit_s: float = LIMIT_S,
        end_s: float = END_S, on_hang: Callable[[Hang], None] = lambda hang: None,
        on_limit: Callable[[Hang], None] = lambda hang: None, on_end: Callable[[Hang], None] = lambda hang: None,
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._main = threading.get_ident()
        self._profiles, self._log = profiles, log
        self._slow_s, self.limit_s, self._end_s = slow_s, limit_s, end_s
        self._on_hang, self._on_limit, self._on_end = on_hang, on_limit, on_end
        self._asked_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hang watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    @property
    def silent_s(self) -> float:
        """For how many seconds the loop has not answered."""
        asked = self._asked_at
        return 0.0 if asked is None else time.monotonic() - asked

    @property
    def fault(self) -> str | None:
        """The reason why liveness fails; None while it does not."""
        silent_s = self.silent_s
        return f"the scheduling loop has not answered for {silent_s:.0f}s" if silent_s >= self.limit_s else None

    def _answer(self) -> None:
        self._asked_at = None

    def _watch(self) -> None:
        armed_at, noticed, limited, hang = 0.0, False, False, None
        while not self._stop.wait(_EVERY_S):
            now = time.monotonic()
            if now - armed_at > self.limit_s / 2:
                armed_at = now
                self._arm()
            if self._asked_at is None:
                if noticed:
                    self._log.info(0, "The scheduling loop goes on")
                noticed = limited = False
                self._asked_at = now
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # the loop is closed
                    return
                continue
            silent_s = now - self._asked_at
            if silent_s >= self._slow_s and not noticed:
                noticed, hang = True, self._look()
                if hang is not None:
                    self._report(hang, silent_s)
                    self._on_hang(hang)
            if silent_s >= self.limit_s and not limited:
                limited, hang = True, self._look() or hang
                if hang is not None:
                    self._report(hang, silent_s)
                    self._on_limit(hang)
            if silent_s >= self._end_s and hang is not None:
                self._report(hang, silent_s)
                self._on_end(hang)
                return

    def _arm(self) -> None:
        """Let the process end with the stacks of its threads if this thread cannot run for as long as a hang may last."""
        if math.isinf(self._end_s):
            return
        try:
            faulthandler.dump_traceback_later(self.limit_s + self._end_s, exit=True)
        except (RuntimeError, ValueError, OSError, AttributeError):  # no standard error
            return

    def _look(self) -> Hang | None:
        frame = sys._current_frames().get(self._main)
        return None if frame is None else described(frame, self._profiles())

    def _report(self, hang: Hang, silent_s: float) -> None:
        what = "A plugin does not return" if hang.plugin else "The scheduling loop does not answer"
        facts = {"plugin": hang.plugin, "extensionPoint": hang.point, "pod": hang.pod_key, "seconds": round(silent_s, 1)}
        self._log.error(None, what, **{name: value for name, value in facts.items() if value}, stack=hang.stack)


def described(frame: FrameType, profiles: Iterable[Profile]) -> Hang:
    """Return what runs in a frame: the innermost call of a plugin, and the pod that it is asked about."""
    owners = {
        id(plugin): (name, profile.scheduler_name) for profile in profiles for name, plugin in profile.plugins.items()
    }  # fmt: skip
    plugin = scheduler_name = point = ""
    pod: Pod | None = None
    for one in _inwards(frame):
        if plugin:
            break
        pod = _pod_in(one) or pod
        plugin, scheduler_name = owners.get(id(one.f_locals.get("self")), ("", ""))
        point = _POINT_OF.get(one.f_code.co_name, one.f_code.co_name)
    stack = "".join(traceback.format_stack(frame)).rstrip("\n").split("\n")
    return Hang(plugin, point if plugin else "", scheduler_name, pod if plugin else None, "\n".join(stack[-_MOST_LINES:]))


def _inwards(frame: FrameType) -> Iterator[FrameType]:
    """Yield the frames of a stack, the outermost first."""
    frames: list[FrameType] = []
    at: FrameType | None = frame
    while at is not None:
        frames.append(at)
        at = at.f_back
    return reversed(frames)


def _pod_in(frame: FrameType) -> Pod | None:
    """Return the pod among the arguments and variables of a frame."""
    for value in frame.f_locals.values():
        held: Any = getattr(value, "pod", value) if type(value).__module__.startswith("moorage.") else value
        held = held.pod if isinstance(held, PodInfo) else held
        if isinstance(held, Pod):
            return held
    return None


def end_now(status: int) -> None:
    """End the process without waiting for anything."""
    sys.stderr.flush()
    os._exit(status)
