"""``moorage report``: an overview of a cluster, once its pending pods have been placed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Node
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.capacity.capacity_bound import InstanceCounter, Placed
from moorage.laboratory.compare.typical_mix import PodShape, eligible_shapes, typical_mix, unplaced_copy
from moorage.laboratory.metrics import (
    PODS,
    NodeUse,
    WorkShape,
    balance,
    dominant_shares,
    fragmentation,
    fragmented,
    instances,
    mix_fragmentation,
    skews,
    stranded,
    sums,
)
from moorage.laboratory.node_groups import use_of_nodes
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.feasibility import feasibility_of
from moorage.report.answer import AnswerRequest, Proof
from moorage.report.outcome import PodOutcome
from moorage.report.overview import (
    LostNodes,
    Overview,
    PendingCause,
    PlaceUse,
    ResourceUse,
    ShapeRoom,
    overview_summary,
)
from moorage.simulator.owners import controller_kind
from moorage.simulator.simulation import SimulatedCluster, State
from moorage.state.node_orders import zone_of
from moorage.state.pod_info import PodInfo

__all__ = ["Overview", "OverviewSetting", "overview_of"]


@dataclass(frozen=True, slots=True)
class OverviewSetting:
    """``all_nodes``: count nodes that are not ready or not schedulable. ``by_engine``: shapes that the engine counts.

    ``most``  the engine stops counting a shape at so many; ``budget``: and with more shapes when it is spent
    """

    all_nodes: bool = False
    by_engine: int = 3
    most: int = 5000
    budget: TimeBudget = field(default_factory=TimeBudget)


_SETTING = OverviewSetting()
#: Kinds whose pods stay on a lost node.
_STAYING: Final = frozenset({"DaemonSet", "Node"})
_Rows = np.ndarray[Any, np.dtype[np.bool_]]


def overview_of(cluster: AskedCluster, request: AnswerRequest, setting: OverviewSetting = _SETTING) -> Overview:
    """Return an overview of a cluster, once its pending pods have been placed. The cluster itself is unchanged."""
    budget = setting.budget.part()
    with cluster.transaction():
        run = cluster.run()
        simulation = cluster.simulation
        use = use_of_nodes(simulation, all_nodes=setting.all_nodes)
        mix = typical_mix(simulation.pods_in_order())
        shapes = eligible_shapes(simulation, mix)
        counts = dict(_counts(cluster, mix, setting, budget))
        rooms = _rooms(use, mix, shapes, counts)
        found = Overview(
            request=request,
            summary="",
            proof=Proof("run", runs=1 + len(counts)),
            stopped=budget.stopped,
            whole=_place("", use, shapes),
            groups=tuple(_places(use, use.groups, shapes)),
            zones=tuple(_places(use, use.zones, shapes)),
            skew=_mean(skews(use)),
            mix=tuple(rooms),
            pending=tuple(_causes(simulation, run.in_state(State.PENDING))),
            cordoned=int(simulation.scheduler.cluster.table.unschedulable.view.sum()),
            lost=_lost(simulation),
        )
    return replace(found, summary=overview_summary(found))


def _lost(simulation: SimulatedCluster) -> LostNodes | None:
    """Return the nodes that are not ready; None if all are."""
    table = simulation.scheduler.cluster.table
    lost = [(node, pods) for node, pods in zip(table.nodes, table.pods, strict=False) if not node.is_ready]
    if not lost:
        return None
    zones = tuple(dict.fromkeys(_zone(node) for node, _ in lost))
    ready = [one for node, _ in lost for one in node.status.conditions if one.type == "Ready"]
    return LostNodes(
        nodes=tuple(node.name for node, _ in lost),
        unreachable=all(one.status == "Unknown" for one in ready),
        zones=zones,
        whole=all(zones) and not any(node.is_ready and _zone(node) in zones for node in table.nodes),
        since=min((one.last_transition_time for one in ready if one.last_transition_time), default=""),
        pods=sum(controller_kind(pod.pod) not in _STAYING for _, pods in lost for pod in pods.values()),
    )


def _zone(node: Node) -> str:
    return (zone_of(node.labels) or ("", ""))[1]


# -- pending pods --------------------------------------------------------------------------------------------------------


def _causes(simulation: SimulatedCluster, pods: Iterable[PodOutcome]) -> Iterator[PendingCause]:
    """Yield the pending pods grouped by the plugins that refuse them, the largest group first."""
    held: dict[str, list[str]] = {}
    for pod in pods:
        held.setdefault(pod.message, []).append(f"{pod.namespace}/{pod.name}")
    for message, names in sorted(held.items(), key=lambda item: (-len(item[1]), item[1])):
        yield PendingCause(tuple(names), _refusals(simulation, names[0]), message)


def _refusals(simulation: SimulatedCluster, key: str) -> dict[str, int]:
    """Return how many nodes each plugin refuses first, the most first."""
    pod = simulation.pod_named(key)
    if pod is None or pod.spec.scheduling_gates:
        return {}
    verdicts = feasibility_of(simulation, PodInfo(pod), None).verdicts.columns()
    refused: dict[str, set[str]] = {}
    for node, plugin in zip(verdicts["node"].tolist(), verdicts["plugin"].tolist(), strict=True):
        refused.setdefault(plugin, set()).add(node)
    return {name: len(nodes) for name, nodes in sorted(refused.items(), key=lambda item: (-len(item[1]), item[0]))}


# -- places --------------------------------------------------------------------------------------------------------------


def _places(use: NodeUse, names: Sequence[str], shapes: Sequence[WorkShape]) -> Iterator[PlaceUse]:
    labels = np.array(names, dtype=object)
    for name in dict.fromkeys(names):
        rows = labels == name
        yield _place(name, use.only(rows), shapes, rows)


def _place(name: str, use: NodeUse, shapes: Sequence[WorkShape], rows: _Rows | None = None) -> PlaceUse:
    held = use.requested[:, use.resources.index(PODS)]
    return PlaceUse(
        name=name,
        nodes=len(use) if rows is None else int(rows.sum()),
        counted=int(use.counted.sum()),
        pods=int(held.sum() if rows is None else held[rows].sum()),
        dominant_share=_mean(dominant_shares(use)),
        fragmentation=mix_fragmentation(use, shapes),
        resources=tuple(_resources(use, shapes)),
        headroom=tuple(int(instances(use, shape).sum()) for shape in shapes),
    )


def _resources(use: NodeUse, shapes: Sequence[WorkShape]) -> Iterator[ResourceUse]:
    even, lost, pieces = balance(use), stranded(use, shapes), fragmented(use, shapes)
    totals = (map(int, sums(array[use.counted])) for array in (use.allocatable, use.requested, use.free))
    for name, offered, asked, free in zip(use.resources, *totals, strict=True):
        if offered:
            yield ResourceUse(name, offered, asked, free, asked / offered, *even[name], lost[name], pieces[name])


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else 0.0


# -- what still fits -----------------------------------------------------------------------------------------------------


def _rooms(
    use: NodeUse, mix: Sequence[PodShape], shapes: Sequence[WorkShape], counts: Mapping[int, tuple[int, bool]]
) -> Iterator[ShapeRoom]:  # fmt: skip
    for at, (kind, shape) in enumerate(zip(mix, shapes, strict=True)):
        engine, complete = counts.get(at, (None, True))
        yield ShapeRoom(
            kind.pod.key, kind.requests, kind.pods, kind.weight, fragmentation(use, shape), int(instances(use, shape).sum()),
            engine, complete,
        )  # fmt: skip


def _counts(
    cluster: AskedCluster, mix: Sequence[PodShape], setting: OverviewSetting, budget: TimeBudget
) -> Iterator[tuple[int, tuple[int, bool]]]:
    needs = [{name: amount for name, amount in PodInfo(one.pod).requests.items() if amount} for one in mix]
    countable = [at for at, one in enumerate(mix) if needs[at] == one.requests]  # merged rare shapes have no pod to copy
    for at in countable[: setting.by_engine]:
        if budget.is_over():
            budget.leave("how many more pods of the other shapes fit, counted by the engine")
            return
        with cluster.transaction():  # place copies until one finds no node
            counter = InstanceCounter(cluster.simulation)
            copies = (unplaced_copy(mix[at].pod, f"more-{number}") for number in range(setting.most))
            full = next((number for number, pod in enumerate(copies) if not isinstance(counter.place(pod), Placed)), None)
        yield at, (setting.most, False) if full is None else (full, True)
