"""Switch off what makes decisions fast, one mechanism at a time, to measure what it earns. Decisions stay the same.

A mechanism is switched off for the whole process: each run of a workload has its own. The table names classes as text, so that
it can be read without them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moorage.core.cycle.sheets import Sheets

__all__ = ["MECHANISMS", "Replacement", "switch_off"]


class Replacement:
    """Replaces methods of a class, given as ``module:Class``, when it is called. ``replaced`` + name is the former method."""

    def __init__(self, where: str, **methods: Callable[..., object]) -> None:
        self.where, self.methods = where, methods

    @property
    def cls(self) -> type:
        """The class.

        Raises  ImportError, AttributeError if the engine has no such class any more
        """
        module, _, name = self.where.partition(":")
        found: type = getattr(importlib.import_module(f"moorage.{module}"), name)
        return found

    def __call__(self) -> None:
        cls = self.cls
        assert all(hasattr(cls, name) for name in self.methods), f"{cls.__name__} has not all of {', '.join(self.methods)}"
        for name, method in self.methods.items():
            setattr(cls, f"replaced{name}", getattr(cls, name))
            setattr(cls, name, method)


def _none(*_: object) -> None:
    """Stand in for a method that finds nothing."""


def _decide_by_signature(cache: Sheets, pod: object, snapshot: object, seed: int, *_: object) -> object:
    return cache.decide_by_keys(pod, snapshot, seed)  # type: ignore[arg-type]


def _sign_without_idle(signer: Any, *given: object) -> None:
    signer.replaced__init__(*given)
    signer._may_idle = []


def _first_of_all(places: Any, start: int) -> object:
    return places._ring.first_best(places._totals, start)


#: The mechanism → what switches it off.
MECHANISMS: Final[Mapping[str, Replacement]] = {
    "fast-lane": Replacement("core.engine.fast_lane:FastLane", find=_none),
    "sheets": Replacement("core.cycle.cycle:Cycle", at_once=_none, _by_class=_none),
    "runs": Replacement("core.cycle.sheets:Sheets", route_of=_none),
    "one-look": Replacement("core.cycle.sheets:Sheets", _look_once=_none),
    "shape-routes": Replacement("core.cycle.sheets:Sheets", decide_known=_decide_by_signature, route_of=_none),
    "counted-places": Replacement("core.cycle.ring_totals:RingTotals", counted_places=_none),
    "summed-places": Replacement("core.cycle.ring_totals:RingTotals", summed_places=_none),
    "tied-places": Replacement("core.cycle.domain_places:TopPlaces", first=_first_of_all),
    "domains": Replacement("core.cycle.domain_verdicts:ByDomain", closed=_none),
    "pinned-pods": Replacement("core.cycle.pinned_pods:PinnedPods", row_of_node=_none),
    "usage": Replacement("state.view:AllRows", usage=_none),
    "distinct-rooms": Replacement("state.distinct_rooms:DistinctRooms", find=_none),
    "idle-plugins": Replacement("core.cycle.pod_signatures:Signer", __init__=_sign_without_idle),
}


def switch_off(mechanism: str) -> None:
    """Switch off a mechanism for good in this process."""
    MECHANISMS[mechanism]()
