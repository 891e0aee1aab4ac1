"""Switch off what makes decisions fast, one mechanism at a time, to measure what it earns. Decisions stay the same.

A mechanism is switched off for the whole process: each run of a workload has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moorage.cycle.cached_scores import KeptScores
from moorage.cycle.cycle import Cycle
from moorage.cycle.domain_verdicts import ByDomain
from moorage.cycle.narrowed_nodes import NarrowLook
from moorage.cycle.pinned_pods import PinnedPods
from moorage.cycle.pod_classes import ClassCache
from moorage.cycle.pod_signatures import Signer
from moorage.cycle.top_places import TopPlaces
from moorage.engine.fast_lane import FastLane
from moorage.state.distinct_rooms import DistinctRooms

__all__ = ["MECHANISMS"]


def _replace(cls: type, **methods: Callable[..., object]) -> Callable[[], None]:
    def switch_off() -> None:
        for name, method in methods.items():
            setattr(cls, name, method)

    return switch_off


def _none(*_: object) -> None:
    """Stand in for a method that finds nothing."""


def _decide_by_signature(cache: ClassCache, pod: object, snapshot: object, seed: int) -> object:
    return cache.decide(pod, snapshot, {}, seed)  # type: ignore[arg-type]


#: The mechanism → what switches it off.
MECHANISMS: Final[Mapping[str, Callable[[], None]]] = {
    "fast-lane": _replace(FastLane, find=_none),
    "classes": _replace(Cycle, decide_fast=_none, _by_class=_none),
    "runs": _replace(Cycle, route_of=_none),
    "shape-routes": _replace(ClassCache, decide_known=_decide_by_signature, route_of=_none),
    "counted-places": _replace(KeptScores, counted_places=_none),
    "summed-places": _replace(KeptScores, summed_places=_none),
    "tied-places": _replace(TopPlaces, _find=_none),
    "domains": _replace(ByDomain, closed=_none),
    "narrowing": _replace(NarrowLook, concerns=_none),
    "pinned-pods": _replace(PinnedPods, decide=_none),
    "distinct-rooms": _replace(DistinctRooms, find=_none),
    "idle-plugins": _replace(Signer, _idle=lambda *_: (set(), [])),
}
