"""Fail an attempt whose plugin runs for too long.

Python can interrupt its own code and what waits in the kernel, such as ``time.sleep`` and a read from a socket. It cannot
interrupt a computation in a library written in C: then the attempt fails once that returns.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from moorage.framework.profile import Profile, Step, is_built_in

#: The steps inside a step that are calls of the plugin, too.
_INNER: Final = ("single", "by_domain", "normalize", "add_pod", "remove_pod", "unreserve")


class TimeLimit:
    """Raises TimeoutError in a custom plugin that runs longer than ``seconds``, again and again until it returns.

    Takes the signal SIGALRM of the process. Without that signal, as on Windows, and in other threads than the main one, nothing
    is limited.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_running = False
        self._can = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if self._can:
            signal.signal(signal.SIGALRM, self._expired)

    def limited(self, profile: Profile) -> Profile:
        """Return a profile that behaves the same, and whose custom plugins are limited."""
        if not self._can:
            return profile
        steps = {point: tuple(map(self._step, in_point)) for point, in_point in profile.steps.items()}
        return replace(profile, steps=steps)

    def _step(self, given: Step) -> Step:
        if is_built_in(given.plugin):
            return given
        inner: dict[str, Any] = {name: self._step(one) for name in _INNER if (one := getattr(given, name)) is not None}
        return replace(given, call=self._call(given.call), **inner)

    def _call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*args: Any) -> Any:
            if self._is_running or threading.current_thread() is not threading.main_thread():
                return call(*args)
            self._is_running = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds, self._seconds)
            try:
                answer = call(*args)
                # A generator works while its values are taken.
                return list(answer) if isinstance(answer, Iterator) else answer
            finally:
                self._is_running = False
                signal.setitimer(signal.ITIMER_REAL, 0.0)

        return limited

    def _expired(self, number: int, frame: FrameType | None) -> None:
        if self._is_running:
            raise TimeoutError(f"still running after {self._seconds:g} s, the limit of --plugin-timeout")
