"""A plugin that violates its contract: it raises, returns invalid values, waits and rejects, as its seeded ``Mood`` decides.

Its calls at Reserve, Unreserve and PostBind are recorded, so that the oracle can check that they match.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from moorage.errors import ClusterError
from moorage.framework.effects import Call, Effect
from moorage.framework.events import ANY_EVENT, Wake
from moorage.framework.verdicts import Hold, Reject, Wait
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView
from tools.simtest.recording import Called, Recording

__all__ = ["RAISED", "Mood", "Unruly", "unruly"]

RAISED = (RuntimeError, ValueError, KeyError, TypeError, RecursionError, MemoryError, AssertionError, OSError, ClusterError)
_NONSENSE = (object(), "yes", 3.7, float("nan"), [1, 2], {"a": 1}, True, -1, Reject, [Reject], [None])
_ANSWERS_NOTHING = frozenset(["unreserve", "post_bind", "pre_filter"])


@dataclass
class Mood:
    """The probability of each misbehaviour, from 0 to 1. All zero is calm."""

    rng: random.Random
    recording: Recording
    raises: dict[str, float] = field(default_factory=dict)
    nonsense: dict[str, float] = field(default_factory=dict)
    refuses: float = 0.0
    waits: float = 0.0
    calls: float = 0.0
    calls_fail: float = 0.0

    def calm(self) -> None:
        self.raises, self.nonsense = {}, {}
        self.refuses = self.waits = self.calls = self.calls_fail = 0.0

    def happens(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def at(self, point: str) -> Any:
        """Raise, or return an invalid value; None to behave."""
        if self.happens(self.raises.get(point, 0.0)):
            kind = self.rng.choice(RAISED)
            raise kind(f"unruly in {point}")
        if point not in _ANSWERS_NOTHING and self.happens(self.nonsense.get(point, 0.0)):
            return self.rng.choice(_NONSENSE)
        return None

    async def call(self) -> None:
        """Sleep, then fail or not. When cancelled, it stops at once, stops after a cleanup, or raises another error."""
        try:
            await asyncio.sleep(self.rng.choice([0.0, 0.1, 1.0, 4.0]))
        except asyncio.CancelledError:
            mood = self.rng.choice(["in a hurry", "tidying up", "cross"])
            if mood == "in a hurry":
                raise
            await asyncio.sleep(0.5 if mood == "tidying up" else 0.0)
            if mood == "cross":
                raise self.rng.choice(RAISED)("unruly while broken off") from None
        if self.happens(self.calls_fail):
            raise self.rng.choice(RAISED)("unruly while calling")


class Unruly:
    """Implements every point except QueueSort. Subclasses set a name, an actor and a mood."""

    name = "Unruly"
    actor = ""
    mood: Mood

    def wakes_on(self) -> Iterable[Wake]:
        yield Wake(ANY_EVENT, when=self.hint)

    def hint(self, pod: PodInfo, old: Any, new: Any) -> bool:
        self.mood.at("hint")
        return True

    def pre_enqueue(self, pod: PodInfo) -> Any:
        return self.mood.at("pre_enqueue")

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Any:
        return self.mood.at("pre_filter")

    def filter(self, state: Any, nodes: NodeView) -> Any:
        answer = self.mood.at("filter")
        return () if answer is None else answer

    def score(self, state: Any, nodes: NodeView) -> Any:
        answer = self.mood.at("score")
        return nodes.zeros() if answer is None else answer

    def reserve(self, state: Any, pod: PodInfo, node: str) -> Any:
        self._note("reserve", pod)
        answer = self.mood.at("reserve")
        return self._refusal() if answer is None else answer

    def unreserve(self, state: Any, pod: PodInfo, node: str) -> None:
        self._note("unreserve", pod)
        self.mood.at("unreserve")

    def permit(self, state: Any, pod: PodInfo, node: str) -> Any:
        answer = self.mood.at("permit")
        if answer is None and self.mood.happens(self.mood.waits):
            return Wait(self.mood.rng.choice([0.0, 0.5, 5.0, 15.0]))
        return self._refusal() if answer is None else answer

    def pre_bind(self, state: Any, pod: PodInfo, node: str) -> Any:
        answer = self.mood.at("pre_bind")
        if answer is not None:
            return answer
        effects: list[Effect] = []
        while self.mood.happens(self.mood.calls) and len(effects) < 3:
            effects.append(Call(self.mood.call, stand_in=lambda: None))
        return effects

    def post_bind(self, state: Any, pod: PodInfo, node: str) -> None:
        self._note("post_bind", pod)
        self.mood.at("post_bind")

    def _note(self, point: str, pod: PodInfo) -> None:
        recording = self.mood.recording
        recording.add(Called(recording.clock(), self.actor, self.name, point, pod.uid))

    def _refusal(self) -> Hold | None:
        return Hold.because("unruly") if self.mood.happens(self.mood.refuses) else None


def unruly(its_name: str, whose: str, its_mood: Mood) -> type[Unruly]:
    """Return a plugin class with a name, for one scheduler."""

    class Named(Unruly):
        name, actor, mood = its_name, whose, its_mood

    return Named
