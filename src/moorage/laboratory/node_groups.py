"""Node groups: nodes that a provider makes alike, such as the nodes of one node pool.

A node belongs to the pool that its labels name. Without such a label, nodes of one machine type (or, without a type, of one
capacity) with equal taints are a group, named after the common beginning of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from moorage.api.core import Node
from moorage.api.pod_requests import amount
from moorage.framework.changes import taint_text
from moorage.laboratory.metrics import PODS, NodeUse
from moorage.report.outcome import PodOutcome, Run
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.node_orders import zone_of
from moorage.state.table import NodeTable

#: Labels by which providers and autoscalers name the pool of a node.
POOL_LABELS: Final = (
    "karpenter.sh/nodepool", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool", "agentpool", "kops.k8s.io/instancegroup",
)  # fmt: skip
_TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
#: Taints with this prefix come and go with a node's condition.
_CONDITION: Final = "node.kubernetes.io/"
_SEPARATORS: Final = "-_. "
_GI: Final = 1 << 30


class GroupOfNodes(NamedTuple):
    """A group by name, with its nodes in the given order."""

    name: str
    nodes: tuple[Node, ...]


def group_nodes(nodes: Iterable[Node]) -> list[GroupOfNodes]:
    """Return the groups of nodes, in the order of their first nodes. Names differ."""
    held: dict[Hashable, list[Node]] = {}
    for node in nodes:
        held.setdefault(_identity(node), []).append(node)
    names: list[str] = []
    for members in held.values():
        names.append(_free(_name(members), names))
    return [GroupOfNodes(name, tuple(members)) for name, members in zip(names, held.values(), strict=True)]


def groups_by_node(nodes: Iterable[Node]) -> Mapping[str, str]:
    """Return the name of the group of each node, by the node's name."""
    return {node.name: group.name for group in group_nodes(nodes) for node in group.nodes}


def pool_of(node: Node) -> str:
    """Return the pool that a node's labels name; "" if they do not."""
    return next((node.labels[key] for key in POOL_LABELS if node.labels.get(key)), "")


def _type(node: Node) -> str:
    return next((node.labels[key] for key in _TYPE_LABELS if node.labels.get(key)), "")


def _identity(node: Node) -> Hashable:
    pool = pool_of(node)
    if pool:
        return ("pool", pool)
    taints = tuple(sorted(taint_text(one) for one in node.spec.taints if not one.key.startswith(_CONDITION)))
    return ("type", _type(node), _size(node), taints)


def _size(node: Node) -> tuple[tuple[str, int], ...]:
    """Return the capacity by resource. Memory and storage in GiB: nodes of one machine type differ by a few MiB."""
    held = node.status.capacity or node.status.allocatable
    sizes = {name: amount(name, held[name]) for name in sorted(held)}
    return tuple((name, round(size / _GI) if name in {"memory", "ephemeral-storage"} else size) for name, size in sizes.items())


def _name(members: Sequence[Node]) -> str:
    pool = pool_of(members[0])
    if pool:
        return pool
    common = _common_start([node.name for node in members])
    if len(members) == 1:
        common = common.rpartition("-")[0]
    elif any(len(node.name) > len(common) and common[-1:] not in _SEPARATORS for node in members):
        common = common[: max((common.rfind(one) for one in _SEPARATORS), default=-1) + 1] or common
    return common.rstrip(_SEPARATORS) or _type(members[0]) or members[0].name


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    return next((first[:at] for at, letter in enumerate(first) if last[at : at + 1] != letter), first)


def _free(name: str, taken: Sequence[str]) -> str:
    """Return the name, with a number appended if another group has it."""
    if name not in taken:
        return name
    return next(free for number in range(2, len(taken) + 3) if (free := f"{name} ({number})") not in taken)


# -- node use ----------------------------------------------------------------------------------------------------------
# ``NodeUse`` of a simulation: at present, and over the time of a run.

_LOST_CONTACT = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
Means = Mapping[str, float]


def counts_for_metrics(node: Node) -> bool:
    """Return True for a node that is ready and schedulable. A node without the condition Ready counts as ready."""
    return node.is_ready and not node.spec.unschedulable and all(taint.key not in _LOST_CONTACT for taint in node.spec.taints)


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
