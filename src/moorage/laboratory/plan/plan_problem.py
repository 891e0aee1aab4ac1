"""The pods to place and the nodes that could take them, as the numbers from which bounds and packings are computed.

Pods of one shape need the same and fit on the same nodes. A type of node with several zones is one offer for each set of
zones where the same shapes fit. Rules that count pods (spreading, affinity between pods) are left out: without them more
pods fit, so bounds stay valid, and the engine judges the result.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod
from moorage.framework.verdicts import Code
from moorage.laboratory.capacity.capacity_bound import FIT, room_for
from moorage.laboratory.explain.verdicts import EveryVerdict, free_amount, verdicts_now
from moorage.laboratory.plan.node_types import Offer, TypeLimit, add_nodes
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.simulator.replacements import replacement
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

#: Plugins whose verdicts depend on where other pods are.
COUNTING: Final = frozenset(["PodTopologySpread", "InterPodAffinity", ""])


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Pods with equal needs. ``alone``: a node takes at most one of them."""

    pods: tuple[Pod, ...]
    needs: Mapping[str, int]
    alone: bool = False

    @property
    def count(self) -> int:
        return len(self.pods)


@dataclass(frozen=True, slots=True)
class Held:
    """Existing nodes that accept the same shapes: their number, and the sum of their free amounts."""

    nodes: int
    free: Mapping[str, int]
    fits: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a shape fits on no node of a type: plugin and reason."""

    shape: int
    offer: str
    plugin: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """The shapes to place, and the offers and existing nodes that could take them.

    ``room[o]``     the amounts for pods on an empty node of offer o
    ``fits[o][s]``  whether shape s fits on such a node
    ``held``        the existing nodes. If pods may evict others, the requests of these count as free.
    ``existing``    each existing node that takes a pod as it is, with its really free amounts
    ``spare``       the really free amounts on all existing nodes, by resource
    ``limits``      of the offers' types
    """

    shapes: tuple[PlanShape, ...]
    offers: tuple[Offer, ...]
    room: tuple[Mapping[str, int], ...]
    fits: tuple[tuple[bool, ...], ...]
    held: tuple[Held, ...]
    misfits: tuple[Misfit, ...] = ()
    spare: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[TypeLimit, ...] = ()
    existing: tuple[Held, ...] = ()

    def counted(self, limit: TypeLimit, counts: Sequence[int]) -> float:
        """Return what nodes of these numbers by offer come to for a limit."""
        return sum(limit.weights.get(offer.type.name, 0.0) * n for offer, n in zip(self.offers, counts, strict=True))

    def reached(self, counts: Sequence[int], o: int) -> str:
        """Return the text of the first limit that one more node of an offer would exceed; "" if there is none."""
        for limit in self.limits:
            weight = limit.weights.get(self.offers[o].type.name, 0.0)
            if weight and self.counted(limit, counts) + weight > limit.most:
                return limit.text
        return ""

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for shape in self.shapes for name in shape.needs))

    @property
    def impossible(self) -> list[int]:
        """The shapes that fit on no offer and on no existing node."""
        return [
            s for s in range(len(self.shapes))
            if not any(row[s] for row in self.fits) and not any(held.fits[s] for held in self.held)
        ]  # fmt: skip


def state_problem(
    cluster: AskedCluster, pods: Sequence[Pod], offers: Iterable[Offer], policies: Sequence[Object],
    limits: tuple[TypeLimit, ...] = (),
) -> PlanProblem:  # fmt: skip
    """Return the problem of placing pending pods of a cluster, with nodes of these offers."""
    probes = [(one, zone, one.node(at)) for one in offers for at, zone in enumerate(one.zones or ("",))]
    with cluster.transaction():
        simulation = cluster.simulation
        old = len(simulation.scheduler.snapshot.table)
        taken = {node.name for node in simulation.scheduler.snapshot.table.nodes}
        fresh = [_renamed(node, taken) for _, _, node in probes]
        add_nodes(simulation, fresh, policies)
        table = simulation.scheduler.snapshot.table
        rows = [table.row_of[node.name] for node in fresh]
        groups = _groups(pods)
        judged = [verdicts_now(simulation.scheduler, members[0]) for members in groups]
        shapes = tuple(_shape(members, one) for members, one in zip(groups, judged, strict=True))
        names = tuple(dict.fromkeys(name for shape in shapes for name in shape.needs))
        opens = [_open(one) for one in judged]
        kept = _merged(probes, rows, opens, shapes, names, simulation)
        existing = _existing(range(old), opens, names, simulation)
        held, spare = _held(range(old), pods, judged, names, simulation)
        misfits = tuple(_misfits(judged, shapes, probes, rows, opens, held))
    return PlanProblem(shapes, *kept, held, misfits, spare, limits, existing)


def _renamed(node: Node, taken: set[str]) -> Node:
    name = node.name
    while name in taken:
        name += "-x"
    taken.add(name)
    return node if name == node.name else replace(node, metadata=replace(node.metadata, name=name))


def _groups(pods: Iterable[Pod]) -> list[list[Pod]]:
    held: dict[Hashable, list[Pod]] = {}
    for pod in pods:
        held.setdefault(PodInfo(pod).shape(), []).append(pod)
    return list(held.values())


def _shape(pods: Sequence[Pod], judged: EveryVerdict) -> PlanShape:
    room = room_for(judged)
    info = judged.pod
    labels = judged.snapshot.namespace_labels(info.namespace)
    apart = any(
        term.topology_key == "kubernetes.io/hostname" and term.matches(info, labels) for term in info.required_anti_affinity
    )
    return PlanShape(tuple(pods), room.needs, alone=bool(info.host_ports) or apart)


def _open(judged: EveryVerdict, ignored: Collection[str] = COUNTING) -> Any:
    """Return the rows where a pod fits if some plugins are ignored, except for refusals of these that eviction cannot help."""
    open_rows = judged.open_without(ignored)
    for one in judged.refusing:
        if one.name == FIT and FIT in ignored:
            open_rows[one.verdicts.rows_with(Code.UNRESOLVABLE)] = False
    return open_rows


def _merged(
    probes: Sequence[tuple[Offer, str, Node]], rows: Sequence[int], opens: Sequence[Any], shapes: Sequence[PlanShape],
    names: Sequence[str], simulation: SimulatedCluster,
) -> tuple[tuple[Offer, ...], tuple[Mapping[str, int], ...], tuple[tuple[bool, ...], ...]]:  # fmt: skip
    """Return the offers, with equivalent zones merged into one offer, and the room and the fitting shapes of each."""
    free = {name: free_amount(simulation.scheduler.snapshot.nodes, name) for name in names}
    zones: dict[tuple[str, tuple[bool, ...]], list[str]] = {}
    first: dict[tuple[str, tuple[bool, ...]], tuple[Offer, int]] = {}
    for (offer, zone, _), row in zip(probes, rows, strict=True):
        fits = tuple(bool(opens[s][row]) for s in range(len(shapes)))
        key = offer.type.name, fits
        zones.setdefault(key, []).append(zone)
        first.setdefault(key, (offer, row))
    offers = tuple(Offer(one.type, one.pattern, tuple(filter(None, zones[key]))) for key, (one, _) in first.items())
    room = tuple({name: int(free[name][row]) for name in names} for _, row in first.values())
    return offers, room, tuple(key[1] for key in first)


def _existing(
    rows: Sequence[int], opens: Sequence[Any], names: Sequence[str], simulation: SimulatedCluster
) -> tuple[Held, ...]:  # fmt: skip
    """Return each existing node that takes a pod of some shape without an eviction, with its free amounts."""
    free = {name: free_amount(simulation.scheduler.snapshot.nodes, name) for name in names}
    found = []
    for row in rows:
        fits = tuple(bool(one[row]) for one in opens)
        if any(fits):
            found.append(Held(1, {name: max(0, int(free[name][row])) for name in names}, fits))
    return tuple(found)


def _held(
    rows: Sequence[int], pods: Sequence[Pod], judged: Sequence[EveryVerdict], names: Sequence[str], simulation: SimulatedCluster
) -> tuple[tuple[Held, ...], dict[str, int]]:
    """Return the existing nodes by the shapes that they accept, and the sum of the free amounts on all of them.

    A full node accepts a shape that could evict pods there, and the requests of these pods count as free. In the sum, only the
    requests of pods that no controller replaces count as free.
    """
    table = simulation.scheduler.snapshot.table
    highest = max((pod.spec.priority or 0 for pod in pods), default=0)
    lower = [(row, other) for row in rows for other in table.pods[row].values() if other.priority < highest]
    ignored = {*COUNTING, FIT} if lower else COUNTING
    opens = [_open(one, ignored) for one in judged]
    free = {name: free_amount(simulation.scheduler.snapshot.nodes, name) for name in names}
    spare = {name: int(np.clip(free[name][list(rows)], 0, None).sum()) for name in names}
    for row, other in lower:
        gone = replacement(other.pod) is None
        for name in names:
            request = 1 if name == "pods" else other.requests.get(name, 0)
            free[name][row] += request
            spare[name] += request if gone else 0
    groups: dict[tuple[bool, ...], list[int]] = {}
    for row in rows:
        fits = tuple(bool(one[row]) for one in opens)
        if any(fits):
            groups.setdefault(fits, []).append(row)
    held = tuple(
        Held(len(members), {name: int(np.clip(free[name][members], 0, None).sum()) for name in names}, fits)
        for fits, members in groups.items()
    )
    return held, spare


def _misfits(
    judged: Sequence[EveryVerdict], shapes: Sequence[PlanShape], probes: Sequence[tuple[Offer, str, Node]], rows: Sequence[int],
    opens: Sequence[Any], held: Sequence[Held],
) -> Iterable[Misfit]:  # fmt: skip
    """Yield, for each shape that fits nowhere, why it does not fit on a node of each type."""
    for s in range(len(shapes)):
        if any(opens[s][row] for row in rows) or any(one.fits[s] for one in held):
            continue
        seen = set()
        for (offer, _, _), row in zip(probes, rows, strict=True):
            for status in judged[s].statuses(row):
                for reason in status.reasons:
                    key = offer.type.name, status.plugin, reason
                    if status.plugin not in COUNTING and key not in seen:
                        seen.add(key)
                        yield Misfit(s, offer.type.name, status.plugin or "", reason)
