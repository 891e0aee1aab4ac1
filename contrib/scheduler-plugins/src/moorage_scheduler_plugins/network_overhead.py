"""NetworkOverhead: place the workloads of an application near those that they depend on.

Filter refuses nodes from which more dependencies cost too much than are cheap enough; Score prefers those with the least cost.

Source  scheduler-plugins 903da7df82cb, pkg/networkaware/networkoverhead
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from moorage.api.custom_objects import CustomObject
from moorage.framework import points
from moorage.framework.args import PluginArgs
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import SKIP, Hold, Skip
from moorage.state.view import IntArray, NodeInfo, PodInfo, Snapshot
from moorage_scheduler_plugins.app_groups import APP_GROUPS, NETWORK_TOPOLOGIES, found_in, group_of, workload_of
from moorage_scheduler_plugins.scaling import MOST

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
#: The costs between pods of one node, of one zone, and of places whose cost is not known.
_SAME_NODE, _SAME_ZONE, _UNKNOWN = 0, 1, 100


class NetworkOverheadArgs(PluginArgs, frozen=True):
    namespaces: tuple[str, ...] = ("default",)
    weights_name: str = "UserDefined"
    network_topology_name: str = "nt-default"


class Judged(NamedTuple):
    """A node: how many dependencies are near enough, how many are not, and what all cost together."""

    satisfied: int
    violated: int
    cost: int


#: Node → what PreFilter found of it.
Found = Mapping[str, Judged]
#: Origin and destination, both regions or both zones → cost.
Costs = Mapping[tuple[str, str], int]


class NetworkOverhead(
    points.PreFilterPlugin[Found], points.FilterNodePlugin[Found], points.ScoreNodePlugin[Found], points.ScoreExtensions[Found],
    points.ReservePlugin[Found], points.PodFollower, points.EnqueueExtensions,
):  # fmt: skip
    name = "NetworkOverhead"
    Args = NetworkOverheadArgs

    def __init__(self, args: NetworkOverheadArgs | None = None) -> None:
        self._args = args or NetworkOverheadArgs()
        self._namespaces = self._args.namespaces or ("default",)
        #: Application → UID → workload and node of each placed pod.
        self._placed: dict[str, dict[str, tuple[str, str]]] = {}

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(APP_GROUPS, Action.ALL))
        yield Wake(ClusterEvent(NETWORK_TOPOLOGIES, Action.ALL))

    def pod_changed(self, old: PodInfo | None, new: PodInfo | None) -> None:
        if new is not None and new.spec.node_name:
            self.reserve(None, new, new.spec.node_name)
        elif new is None and old is not None:
            self.unreserve(None, old, "")

    def reserve(self, state: Found | None, pod: PodInfo, node: str) -> None:
        if group_of(pod):
            self._placed.setdefault(group_of(pod), {})[pod.uid] = workload_of(pod), node

    def unreserve(self, state: Found | None, pod: PodInfo, node: str) -> None:
        self._placed.get(group_of(pod), {}).pop(pod.uid, None)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Found | Skip:
        group, placed = group_of(pod), list(self._placed.get(group_of(pod), {}).values())
        app = found_in(snapshot, APP_GROUPS, group, self._namespaces) if group and placed else None
        if app is None:
            return SKIP
        limits = dependencies_of(app, workload_of(pod))
        if not limits:
            return SKIP
        topology = found_in(snapshot, NETWORK_TOPOLOGIES, self._args.network_topology_name, self._namespaces)
        costs = {} if topology is None else costs_of(topology, self._args.weights_name)
        where = {node.name: (node.labels.get(REGION, ""), node.labels.get(ZONE, "")) for node in snapshot.nodes}
        others = [(node, most) for workload, node in placed if node in where for needed, most in limits if needed == workload]
        return {name: _judge(name, others, where, costs) for name in where}

    def filter_node(self, state: Found, node: NodeInfo) -> Hold | None:
        found = state[node.name]
        if found.violated <= found.satisfied:
            return None
        return Hold.because(
            f"Node {node.name} does not meet several network requirements from Workload dependencies:"
            f" Satisfied: {found.satisfied} Violated: {found.violated}"
        )

    def score_node(self, state: Any, node: NodeInfo) -> int:
        return state[node.name].cost if isinstance(state, Mapping) else 0

    def normalize(self, state: Any, scores: IntArray) -> IntArray:
        least, most = (int(scores.min()), int(scores.max())) if len(scores) else (0, 0)
        if least == most == 0:
            return scores
        if least == most:
            return np.full(len(scores), MOST, dtype=np.int64)
        return MOST - (MOST * (scores - least).astype(np.float64) / (most - least)).astype(np.int64)


def dependencies_of(app: CustomObject, workload: str) -> list[tuple[str, int]]:
    """Return the workloads that one depends on, each with the highest cost that it bears."""
    every = app.get("spec", "workloads", default=[]) or []
    own = (one for one in every if one.get("workload", {}).get("selector") == workload)
    found = (needed for one in own for needed in one.get("dependencies") or ())
    return [(needed.get("workload", {}).get("selector", ""), int(needed.get("maxNetworkCost", 0))) for needed in found]


def costs_of(topology: CustomObject, weights: str) -> dict[tuple[str, str], int]:
    """Return the costs between regions and between zones, by the weights of this name."""
    found: dict[tuple[str, str], int] = {}
    for one in topology.get("spec", "weights", default=[]) or []:
        for place in (one.get("topologyList") or ()) if one.get("name") == weights else ():
            for origin in place.get("originList") or ():
                for cost in origin.get("costList") or ():
                    found[origin["origin"], cost["destination"]] = int(cost.get("networkCost", 0))
    return found


def _judge(node: str, others: Sequence[tuple[str, int]], where: Mapping[str, tuple[str, str]], costs: Costs) -> Judged:
    satisfied = violated = total = 0
    for other, most in others:
        near, cost = _near(node, other, most, where, costs)
        satisfied, violated = satisfied + (near is True), violated + (near is False)
        total += cost
    return Judged(satisfied, violated, total)


def _near(node: str, other: str, most: int, where: Mapping[str, tuple[str, str]], costs: Costs) -> tuple[bool | None, int]:
    """Return whether a node is near enough to another, None if that is not known, and the cost between them."""
    if node == other:
        return True, _SAME_NODE
    (region, zone), (other_region, other_zone) = where[node], where[other]
    if not other_region and not other_zone:
        return False, _UNKNOWN
    if region == other_region and zone == other_zone:
        return True, _SAME_ZONE
    cost = costs.get((zone, other_zone) if region == other_region else (region, other_region))
    return (None, _UNKNOWN) if cost is None else (cost <= most, cost)
