"""NodeResourcesBalancedAllocation: prefer nodes where the pod evens out the requested shares of the resources.

Reads     requests of containers, init containers, sidecars, the pod as a whole, and overhead; the nodes' allocatable and
          requested resources
Scores    50 to 100: 75 if the balance stays the same, more if it improves, less if it worsens; skipped for a pod that
          requests none of the resources
Source    kube-scheduler 1.36, plugins/noderesources/balanced_allocation.go
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec.structs import force_setattr

from moorage.api.devices import DeviceClass
from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_requests import PLACED, PodRequests, RequestOptions
from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.answer_forms import Share
from moorage.framework.args import PluginArgs
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Skip
from moorage.plugins.resources.device_backed_scores import (
    NATIVE,
    DeviceBackedDemands,
    ScoredDemands,
    classes_behind,
    with_devices,
)
from moorage.plugins.resources.scoring_strategies import CPU_AND_MEMORY, Demand, ResourceSpec, are_usual, demands, sub_path
from moorage.plugins.resources.single_node_scores import balance_of
from moorage.plugins.resources.whole_scores import Kind, UsageRuleMaker, Weighs
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, IntArray, KeptColumn, NodeInfo, NodeView, PodInfo, Snapshot

#: The score of a node whose balance the pod does not change.
UNCHANGED = 75

Floats = npt.NDArray[np.float64]
#: How many sets of resources have their balance cached at a time.
_CACHE_SIZE = 16
#: Marks a resource as present on all rows, by broadcasting.
_EVERYWHERE: BoolArray = np.ones(1, dtype=bool)


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """The resources to balance. Their weights must be 1; the field exists for compatibility."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY

    def __post_init__(self) -> None:
        if not self.resources:
            force_setattr(self, "resources", CPU_AND_MEMORY)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        faults: list[Fault] = []
        seen: set[str] = set()
        for i, resource in enumerate(self.resources):
            where = sub_path(path, f"resources[{i}]")
            if resource.name in seen:
                faults.append(Fault("Duplicate value", f"{where}.name", value=resource.name))
            seen.add(resource.name)
            if resource.weight != 1:
                faults.append(Fault("Invalid value", f"{where}.weight", "must be 1", resource.weight))
        return faults


class NodeResourcesBalancedAllocation(
    points.PreScorePlugin[ScoredDemands],
    points.ScorePlugin[ScoredDemands],
    points.ScoreNodePlugin[ScoredDemands],
    points.Attachable,
    points.Reusable,
):
    name = "NodeResourcesBalancedAllocation"
    Args = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None = None) -> None:
        self._resources = (args or NodeResourcesBalancedAllocationArgs()).resources
        self._extended = [resource.name for resource in self._resources if resource.name not in NATIVE]
        self._options = PLACED
        self._gates = FeatureGates()
        self._handle: Handle | None = None
        self._current: WeakKeyDictionary[NodeTable, dict[tuple[str, ...], KeptColumn]] = WeakKeyDictionary()

    def attach(self, handle: Handle) -> None:
        gates = self._gates = handle.gates
        self._handle = handle
        self._options = RequestOptions(
            use_status=gates["InPlacePodVerticalScaling"],
            pod_level=gates["PodLevelResources"],
            pod_level_status=gates["InPlacePodLevelResourcesVerticalScaling"],
        )

    def _needs(self, pod: PodInfo) -> PodRequests:
        return pod.needs_under(self._options)

    @property
    def reuse(self) -> points.Reuse:
        is_of_today = type(self) is NodeResourcesBalancedAllocation  # earlier releases score otherwise
        share = Share(UsageRuleMaker, self._share) if is_of_today and are_usual(self._resources) else None
        return points.Reuse(points.Scope.USAGE, self._signature, signature_reads=(DeviceClass,), share=share)

    def _share(self, point: str, weight: int) -> Weighs:
        """Return this plugin's part in the rule of CPU, memory and places. PreScore skips pods that request neither."""
        return Weighs(Kind.BALANCED, self._amounts, weight)

    def _amounts(self, pod: PodInfo) -> tuple[int, int]:
        requests = self._needs(pod).requests
        return requests.get("cpu", 0), requests.get("memory", 0)

    def _signature(self, pod: PodInfo) -> points.Signature | None:
        needs = self._needs(pod)
        wanted = [name for name in self._extended if needs.requests.get(name)]
        if wanted and self._handle is not None and classes_behind(wanted, self._handle.snapshot, self._gates):
            return None
        return {"requests on a node": needs.key}

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands | Skip:
        requests = self._needs(pod).requests
        if not any(requests.get(resource.name) for resource in self._resources):
            return SKIP
        return self.pre_score_disabled(pod, snapshot, feasible)

    def pre_score_disabled(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        """Score pods without requests, too."""
        return with_devices(demands(self._resources, self._needs(pod).requests), snapshot, self._gates)

    def score(self, scored: ScoredDemands, nodes: NodeView) -> IntArray:
        if isinstance(scored, DeviceBackedDemands):
            return self._balanced(scored.demands, scored.among(nodes))
        return self._balanced(scored, nodes)

    def _balanced(self, scored: tuple[Demand, ...], nodes: NodeView) -> IntArray:
        if len(scored) < 2:
            return np.full(len(nodes), UNCHANGED, dtype=np.int64)
        scores = balance_with(scored, nodes)
        scores -= self._balance_now(scored, nodes.table).of(nodes)
        scores += 150
        scores >>= 1  # 50, plus half of (50 + the difference)
        return scores

    def _balance_now(self, scored: tuple[Demand, ...], table: NodeTable) -> KeptColumn:
        """Return the nodes' balance without the pod, cached: it depends on which resources count, not on the pod's amounts."""
        cached = self._current.setdefault(table, {})
        resources = tuple(demand.resource for demand in scored)
        found = cached.get(resources)
        if found is None:
            nothing = tuple(Demand(resource, 0, 1) for resource in resources)
            if len(cached) >= _CACHE_SIZE:
                cached.clear()
            found = cached[resources] = KeptColumn(
                lambda nodes: balance_with(nothing, nodes), lambda node: _balance_of_node(resources, node)
            )
        return found

    def score_node(self, scored: ScoredDemands, node: NodeInfo) -> int:
        if isinstance(scored, DeviceBackedDemands):
            return int(self._balanced(scored.demands, scored.on(node))[0])
        if len(scored) < 2:
            return UNCHANGED
        shares, shares_with_pod = [], []
        for resource, amount, _ in scored:
            capacity = node.allocatable(resource)
            if capacity:
                requested = node.requested(resource)
                divisor = float(capacity) if capacity > 1 else 1.0
                share, with_pod = requested / divisor, (requested + amount) / divisor
                shares.append(share if share < 1.0 else 1.0)  # noqa: FURB136 (min() takes several times as long)
                shares_with_pod.append(with_pod if with_pod < 1.0 else 1.0)  # noqa: FURB136
        return 50 + (50 + balance_of(shares_with_pod) - balance_of(shares)) // 2


def balance_with(scored: tuple[Demand, ...], nodes: NodeView) -> IntArray:
    """Return the balance of each node with the pod's requests added, in a new array."""
    shares: list[Floats] = []
    counts: list[BoolArray] = []
    for resource, amount, _ in scored:
        requested = nodes.requested(resource)
        share = np.divide(requested + amount, nodes.divisors(resource))
        if len(share) and share.item(share.argmax()) > 1.0:  # several times faster than np.minimum
            np.minimum(share, 1.0, out=share)
        shares.append(share)
        counts.append(_EVERYWHERE if nodes.is_offered_everywhere(resource) else nodes.allocatable(resource) != 0)
    return balance(shares, counts)


def _balance_of_node(resources: tuple[str, ...], node: NodeInfo) -> int:
    """Return the current balance of one node."""
    both = [(node.requested(resource), node.allocatable(resource)) for resource in resources]
    return balance_of([min(requested / float(max(capacity, 1)), 1.0) for requested, capacity in both if capacity])


def balance(shares: Sequence[Floats], counts: Sequence[BoolArray]) -> IntArray:
    """Score nodes higher the closer the requested shares of their resources are to each other.

    Shapes  for each of two or more resources: shares (..., n), at most 1, and whether the node has the resource, (n,) or (1,);
            returns (..., n) int64, 50-100
    Rounds  down, after (1 - standard deviation) x 100 in float64, in kube-scheduler's order of operations. With more than two
            resources, Go may fuse a multiplication and an addition on machines other than amd64; Moorage does not
    """
    deviation = _of_two(shares, counts) if len(shares) == 2 else _of_many(shares, counts)
    np.subtract(1.0, deviation, out=deviation)
    deviation *= 100.0
    return deviation.astype(np.int64)


def _of_two(shares: Sequence[Floats], counts: Sequence[BoolArray]) -> Floats:
    """Return half the distance of two shares where both resources count, else 0."""
    deviation: Floats = np.subtract(shares[0], shares[1])
    deviation *= 0.5
    np.abs(deviation, out=deviation)
    if counts[0] is counts[1] is _EVERYWHERE:
        return deviation
    both = counts[0] & counts[1]
    return deviation if both.all() else deviation * both


def _of_many(shares: Sequence[Floats], counts: Sequence[BoolArray]) -> Floats:
    """Return the standard deviation over the resources that count; half the distance where only two count."""
    number: IntArray = np.sum(np.broadcast_arrays(*counts), axis=0)
    shares = [share * there for share, there in zip(shares, counts, strict=True)]
    mean = reduce(np.add, shares) / np.maximum(number, 1)
    squares = [(share - mean) * (share - mean) * there for share, there in zip(shares, counts, strict=True)]
    deviation: Floats = np.sqrt(reduce(np.add, squares) / np.maximum(number, 1))
    if number.min(initial=3) > 2:
        return deviation
    least = reduce(np.minimum, [np.where(there, share, 1.0) for share, there in zip(shares, counts, strict=True)])
    half: Floats = (reduce(np.maximum, shares) - least) / 2
    return np.where(number > 2, deviation, np.where(number == 2, half, 0.0))
