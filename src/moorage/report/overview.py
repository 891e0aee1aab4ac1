"""The answer of ``moorage report``: how full a cluster is, how evenly, what is pending and why, and what still fits."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from moorage.basis.printable import counted, csv_cell, one_line
from moorage.report.answer import Answer, ending
from moorage.report.queue_report import QueueReport
from moorage.report.short_names import some_pods, without_own
from moorage.report.style import columns, human, item, paragraph

# ``to_dict`` gives the document (``kind: Overview``, ``docs/reference/report.md``).


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


class LostNodes(Struct, frozen=True):
    """The nodes that are not ready.

    ``unreachable``  whether the kubelets of all of them are silent
    ``zones``        the zones that they are in; ``whole``: no other node is in these zones
    ``since``        when the first of them was lost, RFC 3339; "" if that is not known
    ``pods``         on them, without those of DaemonSets and static pods, which stay there
    """

    nodes: tuple[str, ...]
    unreachable: bool
    zones: tuple[str, ...]
    whole: bool
    since: str
    pods: int


class Overview(Answer, frozen=True, kw_only=True):
    """The answer of ``moorage report``. ``whole`` is the use of all nodes; ``skew`` is the mean over the nodes;
    ``lost`` has the nodes that are not ready, if any; ``queues`` are Kueue's, as they are in the input."""

    KIND: ClassVar[str] = "Overview"

    whole: PlaceUse
    groups: tuple[PlaceUse, ...]
    zones: tuple[PlaceUse, ...]
    skew: float
    mix: tuple[ShapeRoom, ...]
    pending: tuple[PendingCause, ...] = ()
    cordoned: int = 0
    lost: LostNodes | None = None
    queues: QueueReport | None = None

    @property
    def holds(self) -> bool | None:
        """Always True: an overview asks no yes-or-no question."""
        return True

    @property
    def not_ready(self) -> int:
        return 0 if self.lost is None else len(self.lost.nodes)

    @property
    def pending_pods(self) -> int:
        return sum(len(cause.pods) for cause in self.pending)

    def _answer(self) -> dict[str, Any]:
        whole = self.whole
        nodes = {"all": whole.nodes, "counted": whole.counted, "cordoned": self.cordoned, "notReady": self.not_ready}
        parts = ("pending", "skew", "groups", "zones", "mix")
        return {
            "nodes": nodes,
            "pods": {
                "placed": whole.pods,
                "pending": self.pending_pods,
                "onNotReady": 0 if self.lost is None else self.lost.pods,
            },
            "all": msgspec.to_builtins(whole),
            **{name: msgspec.to_builtins(getattr(self, name)) for name in parts},
            **({} if self.queues is None else {"queues": self.queues.data()}),
        }

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield "\n".join(_pending(self, wide=wide)) if self.pending else ""
        yield _resources(self.whole.resources)
        yield _places_text("GROUP", self.groups, self.mix, wide=wide)
        if len(self.zones) > 1 or wide:
            yield _places_text("ZONE", self.zones, self.mix, wide=wide)
        yield _mix(self.mix, wide=wide) if self.mix else ""
        yield self.queues.text().rstrip("\n") if self.queues is not None else ""
        yield ending(_counting(self), wide=wide)


_COLUMNS = ("scope", "name", "nodes", "counted", "pods", "dominantShare", "fragmentation")


def overview_csv(found: Overview) -> str:
    """Return one row for each resource of all nodes, of each group and of each zone."""
    names = ResourceUse.__struct_fields__
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_COLUMNS, *names))
    for scope, place in _places(found):
        head = (scope, place.name, place.nodes, place.counted, place.pods, place.dominant_share, place.fragmentation)
        rows = ((*head, *(getattr(one, name) for name in names)) for one in place.resources)
        writer.writerows(map(csv_cell, row) for row in rows)
    return text.getvalue()


def _places(found: Overview) -> Iterator[tuple[str, PlaceUse]]:
    yield "all", found.whole
    yield from (("group", one) for one in found.groups)
    yield from (("zone", one) for one in found.zones)


# -- overview text -----------------------------------------------------------------------------------------------------

#: How many shapes are listed without ``-o wide``.
_SHAPES: Final = 5
_MAIN: Final = ("cpu", "memory")


def overview_summary(found: Overview) -> str:
    """Return the first line."""
    pending = _pending_pods(found.pending_pods)
    waiting = 0 if found.queues is None else len(found.queues.waiting())
    if waiting:
        pending += f", {counted(waiting, 'workload')} wait{'s' * (waiting == 1)} in queues"
    if found.lost is not None:
        pending = f"{_lost(found.lost, found.whole.nodes)} · {pending[0].lower()}{pending[1:]}"
    if not found.whole.counted:
        return f"{pending}; no node takes pods."
    used = ", ".join(f"{name} {_percent(_of(found.whole, name).utilisation)}" for name in _MAIN)
    room = next((shape for shape in found.mix if shape.arithmetic), None)
    full = "" if room is not None or not found.mix else "; no pod of the typical mix fits any more"
    nodes = f"{counted(found.whole.nodes, 'node')} take{'s' * (found.whole.nodes == 1)}"
    return f"{pending}; {found.whole.counted} of {nodes} pods: {used} used{full}."


def _lost(lost: LostNodes, of: int) -> str:
    """Return how many nodes are lost, where, since when and with how many pods; the map of the page says the same."""
    number, where = len(lost.nodes), ""
    if lost.whole and number < of:
        where = f" (all of {' and '.join(lost.zones) if len(lost.zones) < 3 else counted(len(lost.zones), 'zone')})"
    elif number == 1:
        where = f" ({lost.nodes[0]})"
    elif len(lost.zones) == 1 and lost.zones[0] and number < of:
        where = f" (in {lost.zones[0]})"
    since = f" since {lost.since}" if lost.since else ""
    pods = f" · {counted(lost.pods, 'pod')}" if lost.pods else ""
    return one_line(
        f"{number} of {counted(of, 'node')} {'unreachable' if lost.unreachable else 'not ready'}{where}{since}{pods}"
    )


def _pending_pods(number: int) -> str:
    if not number:
        return "No pod is pending"
    return f"{counted(number, 'pod')} {'is' if number == 1 else 'are'} pending"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _of(place: PlaceUse, resource: str) -> ResourceUse:
    return next((one for one in place.resources if one.resource == resource), ResourceUse(resource, *(0,) * 3, *(0.0,) * 5))


def _indented(table: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in table.splitlines())


def _pending(found: Overview, *, wide: bool) -> Iterator[str]:
    for cause in found.pending:
        names = one_line(", ".join(cause.pods) if wide else some_pods(cause.pods))
        yield paragraph(f"✗ {names}", indent="  ", hanging="    ")
        plugins = ", ".join(f"{name} {count}" for name, count in cause.plugins.items())
        yield paragraph(f"nodes refused by {plugins}" if plugins else one_line(cause.message), indent="    ", hanging="      ")
        if wide and plugins:
            yield item(cause.message, "    ")
    yield "  What to do: moorage explain --pending"


def _resources(resources: Sequence[ResourceUse]) -> str:
    rows = [
        [
            one.resource, human(one.resource, one.allocatable), human(one.resource, one.requested), _percent(one.utilisation),
            f"{one.sigma:.3f}", human(one.resource, one.free), _percent(one.stranded), _percent(one.fragmented),
        ]
        for one in resources
    ]  # fmt: skip
    header = ["RESOURCE", "ALLOCATABLE", "REQUESTED", "USED", "BALANCE σ", "FREE", "STRANDED", "FRAGM."]  # noqa: RUF001
    return _indented(columns(header, rows, right=range(1, 8), indent=2))


def _places_text(title: str, places: Sequence[PlaceUse], mix: Sequence[ShapeRoom], *, wide: bool) -> str:
    main = _MAIN if wide else ()
    rows = [
        [
            place.name or "-", f"{place.counted}/{place.nodes}", str(place.pods),
            *(_percent(_of(place, name).utilisation) for name in _MAIN), _percent(place.dominant_share),
            *(_percent(_of(place, name).stranded) for name in main), _percent(place.fragmentation),
            str(place.headroom[0]) if place.headroom else "-",
        ]
        for place in places
    ]  # fmt: skip
    header = [
        title, "NODES", "PODS", "CPU", "MEMORY", "DOMINANT", *(["CPU STR.", "MEM. STR."] if wide else []), "FRAGM.",
        "FIT" if mix else "",
    ]  # fmt: skip
    return _indented(columns(header, rows, right=range(1, len(header)), gap="  ", indent=2))


def _mix(mix: Sequence[ShapeRoom], *, wide: bool) -> str:
    shown = mix if wide else mix[:_SHAPES]
    rows = [
        [
            one.example if wide else without_own(one.example),
            ", ".join(f"{human(name, amount)}{'' if name == 'memory' else f' {name}'}" for name, amount in one.requests.items())
            or "-",
            _percent(one.weight), _percent(one.fragmentation), str(one.arithmetic), _engine(one),
        ]
        for one in shown
    ]  # fmt: skip
    table = columns(["LIKE", "REQUESTS", "OF PODS", "FRAGM.", "FIT", "BY ENGINE"], rows, right=(2, 3, 4, 5), indent=2)
    more = f"\nand {counted(len(mix) - len(shown), 'more shape')}" if len(mix) > len(shown) else ""
    return _indented(table + more)


def _engine(one: ShapeRoom) -> str:
    if one.engine is None:
        return "-"
    return str(one.engine) if one.complete else f"{one.engine}+"


def _counting(found: Overview) -> str:
    """Return what was counted."""
    aside = [f"{found.cordoned} cordoned"] if found.cordoned else []
    aside += [f"{found.not_ready} not ready"] if found.not_ready else []
    is_less = found.whole.counted < found.whole.nodes
    said = [f"{', '.join(aside) or 'Some nodes'} not counted; --all-nodes counts all."] if is_less else []
    said += ["FIT in groups and zones is for the first shape, by arithmetic."] if found.mix else []
    return " ".join([*said, "moorage help metrics explains the figures."])
