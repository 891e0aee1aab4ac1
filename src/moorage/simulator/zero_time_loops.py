"""A loop that takes no simulated time: a pod is tried again and again within one instant, or events make each other.

Between two attempts for a pod lies a backoff, so that time passes, unless a plugin moves the pod to the active queue at once
(``Handle.activate``) or another wakes it. Two plugins, or one at two extension points, can so keep a run busy for good. The
guard counts within an instant, writes down what happens once that is too much, and ends the run with an error that names the
plugins, the pods and one round of the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from moorage.core.cycle.decision import Decision
from moorage.errors import LoopError

#: Attempts for one pod, and replacements of a pod one after the other, within an instant, that no useful run makes.
MOST_ATTEMPTS: Final = 100
#: Events within an instant; each arrival of a trace is one.
MOST_EVENTS: Final = 10_000_000
#: What happens is written down after so many attempts for a pod.
_WRITTEN_AFTER: Final = MOST_ATTEMPTS // 2
#: The longest round that is looked for, and the number of its steps that a message shows.
_LONGEST, _SHOWN = 400, 12


class ZeroTimeLoops:
    """The guard of one run. ``own``: returns the plugins that are not Moorage's own, which are named first."""

    def __init__(self, own: Callable[[], Iterable[str]]) -> None:
        self._own = own
        self._now = -1.0
        self._attempts: Counter[str] = Counter()
        #: The number of pods that a pod replaces, one after the other, within the instant.
        self._replaced: dict[str, int] = {}
        self._events = 0
        self._steps: list[str] = []
        self._keys: dict[str, str] = {}
        self._plugins: Counter[str] = Counter()

    def note_attempt(self, now: float, decision: Decision, held_by: tuple[str, ...] = ()) -> None:
        """Count an attempt; ``held_by``: the plugins for which the pod waits in Permit.

        Raises  LoopError for one attempt too many within the instant
        """
        self._at(now)
        uid = decision.pod.uid
        count = self._attempts[uid] = self._attempts[uid] + 1
        if count < _WRITTEN_AFTER:
            return
        self._keys[uid] = decision.pod.key
        if decision.node is not None and held_by:
            self._write(f"{decision.pod.key} waits in Permit on {decision.node}", held_by)
        elif decision.node is not None:
            self._write(f"{decision.pod.key} gets {decision.node}", ())
        else:
            self._write(f"{decision.pod.key} is not placed", decision.rejected_by)
        if count >= MOST_ATTEMPTS:
            raise LoopError(f"{self._tried(now)}. One round: {self._round()}. {_WAY_OUT}")

    def note_revoked(self, now: float, decision: Decision) -> None:
        """Write down that a pod is no longer to be bound."""
        if self._now == now and self._attempts[decision.pod.uid] >= _WRITTEN_AFTER:
            self._write(f"{decision.pod.key} is rejected while it waits", decision.rejected_by)

    def note_replaced(self, now: float, uid: str, fresh: str, key: str) -> None:
        """Count that a pod is replaced.

        Raises  LoopError for one replacement too many, one after the other, within the instant
        """
        self._at(now)
        count = self._replaced[fresh] = self._replaced.pop(uid, 0) + 1
        if count >= MOST_ATTEMPTS:
            what = f"{key} is the {count}th pod in a row that replaces an evicted or deleted one at {now:g} s"
            raise LoopError(f"a loop that takes no time: {what}{self._named()}. {_WAY_OUT}")

    def note_event(self, now: float) -> None:
        """Count an event.

        Raises  LoopError for one event too many within the instant
        """
        self._at(now)
        self._events += 1
        if self._events > MOST_EVENTS:
            raise LoopError(f"a loop that takes no time: {self._events - 1:,} events at {now:g} s, each due when it is made")

    def _at(self, now: float) -> None:
        if self._now != now:
            self._now, self._events = now, 0
            self._attempts.clear()
            self._replaced.clear()
            self._steps.clear()
            self._plugins.clear()

    def _write(self, what: str, plugins: Iterable[str]) -> None:
        self._plugins.update(plugins)
        names = ", ".join(plugins)
        self._steps.append(f"{what} ({names})" if names else what)
        del self._steps[: -2 * _LONGEST]

    def _tried(self, now: float) -> str:
        often = [(uid, count) for uid, count in self._attempts.most_common(5) if count >= _WRITTEN_AFTER]
        tried = ", ".join(f"{self._keys.get(uid, uid)} {count} times" for uid, count in often)
        return f"a loop that takes no time: at {now:g} s {tried} tried{self._named()}"

    def _named(self) -> str:
        own = [*self._own()]
        named = own or [name for name, _ in self._plugins.most_common(5)]
        return f"; {'plugin' if len(named) == 1 else 'plugins'} {', '.join(named)}" if named else ""

    def _round(self) -> str:
        """Return the steps after which the last ones repeat, or else the last steps."""
        steps = self._steps
        for length in range(1, min(_LONGEST, len(steps) // 2) + 1):
            if steps[-length:] == steps[-2 * length : -length]:
                return _listed(steps[-length:])
        return _listed(steps[-_SHOWN:])


_WAY_OUT: Final = "What a plugin activates, allows, rejects or evicts at once must not lead to the same state again"


def _listed(steps: list[str]) -> str:
    more = f"; and {len(steps) - _SHOWN} more" if len(steps) > _SHOWN else ""
    return "; ".join(steps[:_SHOWN]) + more
