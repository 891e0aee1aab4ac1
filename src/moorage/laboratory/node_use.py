"""``NodeUse`` of a simulation: at present, and over the time of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from moorage.api.core import Node
from moorage.laboratory.metrics import PODS, NodeUse
from moorage.laboratory.node_groups import groups_by_node
from moorage.report.outcome import PodOutcome, Run
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.node_tree import zone_of
from moorage.state.table import NodeTable

__all__ = ["counts_for_metrics", "over_time", "time_weighted", "use_of_nodes"]

_LOST_CONTACT = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
Means = Mapping[str, float]


def counts_for_metrics(node: Node) -> bool:
    """Return True for a node that is ready and schedulable. A node without the condition Ready counts as ready."""
    ready = all(one.status == "True" for one in node.status.conditions if one.type == "Ready")
    return ready and not node.spec.unschedulable and all(taint.key not in _LOST_CONTACT for taint in node.spec.taints)


def use_of_nodes(simulation: SimulatedCluster, *, all_nodes: bool = False) -> NodeUse:
    """Return what the nodes offer and what their pods request now, in the order of the node table's rows."""
    table = simulation.scheduler.cluster.table
    nodes = table.nodes
    offered = {name for node in nodes for name in node.status.allocatable} | {"cpu", "memory"}
    resources = (*sorted(offered - {PODS}), PODS)
    groups = groups_by_node(nodes)
    return NodeUse(
        names=tuple(node.name for node in nodes),
        resources=resources,
        allocatable=_columns(table, resources, requested=False),
        requested=_columns(table, resources, requested=True),
        counted=np.array([all_nodes or counts_for_metrics(node) for node in nodes], dtype=np.bool_),
        groups=tuple(groups[node.name] for node in nodes),
        zones=tuple((zone_of(node.labels) or ("", ""))[1] for node in nodes),
    )


def _columns(table: NodeTable, resources: Sequence[str], *, requested: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    found = np.zeros((len(table), len(resources)), dtype=np.int64)
    for at, name in enumerate(resources):
        if name == PODS:
            found[:, at] = (table.pod_count if requested else table.allowed_pods).view
        else:
            found[:, at] = (table.requested(name) if requested else table.allocatable(name)).view
    return found


# -- over time -----------------------------------------------------------------------------------------------------------


def over_time(end: NodeUse, run: Run) -> Iterator[tuple[float, NodeUse]]:
    """Yield the use of the nodes from the start of a run to its end, each with the seconds for which it lasted.

    A run in which no time passed yields its end with 0 seconds. The array of a yielded use is valid until the next one.
    """
    requested = end.requested.copy()
    row_of = {name: row for row, name in enumerate(end.names)}
    later = (event for event in _events(run.pods, row_of, end.resources) if event[0] > 0.0)
    events = sorted(later, key=lambda event: event[0])
    for _, row, held in events:
        requested[row] -= held
    now, use = 0.0, replace(end, requested=requested)
    for time_s, row, held in events:
        if time_s > now:
            yield time_s - now, use
            now = time_s
        requested[row] += held
    yield max(run.ended_s - now, 0.0), use


def _events(
    pods: Sequence[PodOutcome], row_of: Mapping[str, int], resources: Sequence[str]
) -> Iterator[tuple[float, int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]:
    """Yield the times at which pods start and stop using a node."""
    #: By the id of requests, which pods share: their amounts.
    known: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = {}
    for pod in pods:
        row = row_of.get(pod.node)
        if row is None:
            continue
        held = known.get(id(pod.requests))
        if held is None:
            wants = {**pod.requests, PODS: 1}
            held = known[id(pod.requests)] = np.array([wants.get(name, 0) for name in resources], dtype=np.int64)
        if pod.placed_s is not None:
            yield pod.placed_s, row, held
        if pod.ended_s is not None:
            yield pod.ended_s, row, -held


def time_weighted(moments: Iterator[tuple[float, NodeUse]], measure: Callable[[NodeUse], Means]) -> dict[str, float]:
    """Return the time-weighted means of the results of ``measure``: 1/T ∫ m dt; the final values if no time passed."""
    sums: dict[str, float] = {}
    whole, last = 0.0, {}
    for seconds, use in moments:
        last = dict(measure(use))
        whole += seconds
        for name, value in last.items():
            sums[name] = sums.get(name, 0.0) + seconds * value
    return {name: value / whole for name, value in sums.items()} if whole else last
