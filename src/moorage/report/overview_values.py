"""The answer of ``moorage report``: how full a cluster is, how evenly, what is pending and why, and what still fits.

``to_dict`` gives the document (``kind: Overview``, ``docs/reference/report.md``).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from moorage.report.answer import Answer

__all__ = ["OverviewValues", "PendingCause", "PlaceUse", "ResourceUse", "ShapeRoom", "overview_csv"]


class PendingCause(Struct, frozen=True):
    """Pods that stay pending for one reason: how many nodes each plugin refuses, and the event of one of the pods."""

    pods: tuple[str, ...]
    plugins: Mapping[str, int]
    message: str


class ResourceUse(Struct, frozen=True):
    """A resource of some nodes. Amounts are integers (millicores, bytes, counts); the rest are numbers from 0 to 1."""

    resource: str
    allocatable: int
    requested: int
    free: int
    utilisation: float
    sigma: float
    jain: float
    stranded: float
    fragmented: float


class ShapeRoom(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A shape of the typical mix, and how many more such pods fit: by arithmetic and, if counted, by the engine.

    ``complete``  the engine counted until one found no node, not up to a limit
    """

    example: str
    requests: Mapping[str, int]
    pods: int
    weight: float
    fragmentation: float = msgspec.field()
    arithmetic: int = msgspec.field()
    engine: int | None = None
    complete: bool = True


class PlaceUse(Struct, frozen=True, rename="camel"):
    """The use of the nodes of a group or a zone; an empty name stands for nodes without a zone.

    ``counted``   the number of nodes that metrics include; ``headroom`` is by shape, in the order of the mix
    """

    name: str
    nodes: int
    counted: int
    pods: int
    dominant_share: float
    fragmentation: float
    resources: tuple[ResourceUse, ...]
    headroom: tuple[int, ...]


class OverviewValues(Answer, frozen=True, kw_only=True):
    """The values of an overview. ``whole`` is the use of all nodes; ``skew`` is the mean over the nodes."""

    KIND: ClassVar[str] = "Overview"

    whole: PlaceUse
    groups: tuple[PlaceUse, ...]
    zones: tuple[PlaceUse, ...]
    skew: float
    mix: tuple[ShapeRoom, ...]
    pending: tuple[PendingCause, ...] = ()
    cordoned: int = 0
    not_ready: int = 0

    @property
    def holds(self) -> bool | None:
        """Always True: an overview asks no yes-or-no question."""
        return True

    @property
    def pending_pods(self) -> int:
        return sum(len(cause.pods) for cause in self.pending)

    def _answer(self) -> dict[str, Any]:
        return {
            "nodes": {
                "all": self.whole.nodes, "counted": self.whole.counted, "cordoned": self.cordoned, "notReady": self.not_ready,
            },
            "pods": {"placed": self.whole.pods, "pending": self.pending_pods},
            "pending": msgspec.to_builtins(self.pending),
            "skew": self.skew,
            "all": msgspec.to_builtins(self.whole),
            "groups": msgspec.to_builtins(self.groups),
            "zones": msgspec.to_builtins(self.zones),
            "mix": msgspec.to_builtins(self.mix),
        }  # fmt: skip


_COLUMNS = ("scope", "name", "nodes", "counted", "pods", "dominantShare", "fragmentation")


def overview_csv(found: OverviewValues) -> str:
    """Return one row for each resource of all nodes, of each group and of each zone."""
    names = ResourceUse.__struct_fields__
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_COLUMNS, *names))
    for scope, place in _places(found):
        head = (scope, place.name, place.nodes, place.counted, place.pods, place.dominant_share, place.fragmentation)
        writer.writerows((*head, *(getattr(one, name) for name in names)) for one in place.resources)
    return text.getvalue()


def _places(found: OverviewValues) -> Iterator[tuple[str, PlaceUse]]:
    yield "all", found.whole
    yield from (("group", one) for one in found.groups)
    yield from (("zone", one) for one in found.zones)
