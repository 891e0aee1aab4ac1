"""Switch off what makes decisions fast, one mechanism at a time, to measure what it earns. Decisions stay the same.

A mechanism is switched off for the whole process: each run of a workload has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moorage.cycle.cached_scores import KeptScores
from moorage.cycle.cycle import Cycle
from moorage.cycle.domain_verdicts import ByDomain
from moorage.cycle.joined_rooms import JoinedRooms
from moorage.cycle.narrowed_nodes import NarrowLook
from moorage.cycle.pinned_pods import PinnedPods
from moorage.cycle.pod_classes import ClassCache
from moorage.cycle.pod_signatures import Signer
from moorage.cycle.top_places import TopPlaces
from moorage.engine.fast_lane import FastLane
from moorage.state.distinct_rooms import DistinctRooms
from moorage.state.view import AllRows

__all__ = ["MECHANISMS", "Replacement"]


class Replacement:
    """Replaces methods of a class when it is called."""

    def __init__(self, cls: type, **methods: Callable[..., object]) -> None:
        assert all(hasattr(cls, name) for name in methods), f"{cls.__name__} has not all of {', '.join(methods)}"
        self.cls, self.methods = cls, methods

    def __call__(self) -> None:
        for name, method in self.methods.items():
            setattr(self.cls, name, method)


def _none(*_: object) -> None:
    """Stand in for a method that finds nothing."""


def _decide_by_signature(cache: ClassCache, pod: object, snapshot: object, seed: int) -> object:
    return cache.decide(pod, snapshot, {}, seed)  # type: ignore[arg-type]


_sign_for: Final = Signer.__init__


def _sign_without_idle(signer: Signer, *given: object) -> None:
    _sign_for(signer, *given)  # type: ignore[arg-type]
    signer._may_idle = []


#: The mechanism → what switches it off.
MECHANISMS: Final[Mapping[str, Replacement]] = {
    "fast-lane": Replacement(FastLane, find=_none),
    "classes": Replacement(Cycle, decide_fast=_none, _by_class=_none),
    "runs": Replacement(Cycle, route_of=_none),
    "shape-routes": Replacement(ClassCache, decide_known=_decide_by_signature, route_of=_none),
    "counted-places": Replacement(KeptScores, counted_places=_none),
    "summed-places": Replacement(KeptScores, summed_places=_none),
    "tied-places": Replacement(TopPlaces, _find=_none),
    "domains": Replacement(ByDomain, closed=_none),
    "narrowing": Replacement(NarrowLook, concerns=_none),
    "pinned-pods": Replacement(PinnedPods, decide=_none),
    "joined-rooms": Replacement(JoinedRooms, learn=_none),
    "usage": Replacement(AllRows, usage=_none),
    "distinct-rooms": Replacement(DistinctRooms, find=_none),
    "idle-plugins": Replacement(Signer, __init__=_sign_without_idle),
}
