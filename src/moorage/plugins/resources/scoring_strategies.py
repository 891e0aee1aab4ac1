"""Scoring strategies: map how full a node would be to a score.

A strategy scores each resource of a node by the share that would be requested with the pod, and takes the weighted mean over
the resources that count. These are the configured resources, except extended resources that the pod does not request, and, for
each node, except those the node does not have.

All arithmetic is in int64, as in kube-scheduler: an amount is multiplied by 100 before the division, so scores are right for
nodes of up to 2^56 units of a resource (64 PiB of memory) and wrap around beyond.

Source  kube-scheduler 1.36: noderesources/{resource_allocation,least_allocated,most_allocated,requested_to_capacity_ratio}.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import force_setattr

from moorage.api.pod_requests import is_counted
from moorage.api.releases import CURRENT, Release
from moorage.errors import Fault
from moorage.framework.args import Int32
from moorage.plugins.resources.single_node_scores import least_of, mean_of, most_of, quotient, ratio_of
from moorage.plugins.resources.whole_scores import Kind
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO: Final = "RequestedToCapacityRatio"
#: The points of a shape have scores of 0-10.
_SHAPE_SCALE: Final = 10

# -- arguments ----------------------------------------------------------------------------------------------------------


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the structs inside plugin arguments."""


class ResourceSpec(_Spec, frozen=True):
    """A resource to score and its weight. A weight of 0 means 1."""

    name: str = ""
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            force_setattr(self, "weight", 1)


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class UtilizationPoint(_Spec, frozen=True):
    """A point of a shape: the score (0-10) at a utilization (percent)."""

    utilization: Int32 = 0
    score: Int32 = 0


class RatioShape(_Spec, frozen=True):
    shape: tuple[UtilizationPoint, ...] = ()


class ScoringStrategy(_Spec, frozen=True):
    """How to score nodes. No resources means CPU and memory with equal weight. A strategy that is given needs a type."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RatioShape | None = None

    def __post_init__(self) -> None:
        if not self.resources:
            force_setattr(self, "resources", CPU_AND_MEMORY)

    def faults(self, path: str) -> list[Fault]:
        """Return the validation errors, in kube-scheduler's words."""
        faults: list[Fault] = []
        if self.type not in _SCORERS:
            supported = ", ".join(f'"{name}"' for name in _SCORERS)
            faults.append(Fault("Unsupported value", f"{path}.type", f"supported values: {supported}", self.type))
        for i, resource in enumerate(self.resources):
            if not 0 < resource.weight <= 100:
                detail = f"resource weight of {resource.name} not in valid range (0, 100]"
                faults.append(Fault("Invalid value", f"{path}.resources[{i}].weight", detail, resource.weight))
        ratio, ratio_path = self.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
        if self.type == REQUESTED_TO_CAPACITY_RATIO:
            if ratio is None:
                faults.append(Fault("Required value", ratio_path, f"must be specified when type is {self.type}"))
            else:
                faults += shape_faults(ratio.shape, f"{ratio_path}.shape")
        elif ratio is not None:
            detail = f"must be nil when type is not {REQUESTED_TO_CAPACITY_RATIO}"
            faults.append(Fault("Forbidden", ratio_path, detail))
        return faults


def shape_faults(shape: Sequence[UtilizationPoint], path: str, release: Release = CURRENT) -> list[Fault]:
    """Return the errors that keep the points from being a function of utilization.

    Source  apis/config/validation/validation_pluginargs.go, validateFunctionShape
    """
    if not shape:
        return [Fault("Required value", path, "at least one point must be specified")]
    faults: list[Fault] = []
    for i in range(1, len(shape)):
        if shape[i - 1].utilization >= shape[i].utilization:
            where = f"{path}[{i}].utilization"
            faults.append(Fault("Invalid value", where, release.unsorted_shape, shape[i].utilization))
            break
    for i, point in enumerate(shape):
        for field, value, highest in (("utilization", point.utilization, 100), ("score", point.score, 10)):
            if not 0 <= value <= highest:
                faults.append(Fault("Invalid value", f"{path}[{i}].{field}", f"not in valid range [0, {highest}]", value))
    return faults


def sub_path(path: str, field: str) -> str:
    """Return the path of a field below ``path``."""
    return f"{path}.{field}" if path else field


# -- resources to score -------------------------------------------------------------------------------------------------


#: The resources that are scored even for a pod that does not request them; all others that count are extended or such.
_ALWAYS_SCORED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


class Demand(NamedTuple):
    """A resource to score for one pod: the amount the pod adds to the requested amount, and the weight."""

    resource: str
    amount: int
    weight: int


def kind_of(strategy: ScoringStrategy) -> Kind | None:
    """Return the score of a ``UsageRule`` that is this strategy's; None if there is none."""
    return Kind(strategy.type) if are_usual(strategy.resources) and strategy.type in {LEAST_ALLOCATED, MOST_ALLOCATED} else None


def are_usual(resources: Sequence[ResourceSpec]) -> bool:
    """Return whether a ``UsageRule`` scores these resources: CPU and memory, with equal weights."""
    return [spec.name for spec in resources] == ["cpu", "memory"] and resources[0].weight == resources[1].weight


def demands(resources: Iterable[ResourceSpec], amounts: Mapping[str, int]) -> tuple[Demand, ...]:
    """Return the resources to score for a pod that requests ``amounts``, in the configured order."""
    found: list[Demand] = []
    for spec in resources:
        name = spec.name
        amount = amounts.get(name, 0)
        if name in _ALWAYS_SCORED or (amount and is_counted(name)):
            found.append(Demand(name, amount, spec.weight))
    return tuple(found)


# -- scores -------------------------------------------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
#: ``score(requested, capacity, exact)``: scores one resource of each node. Shapes (n,), returns (n,), whole numbers 0-100.
#: Capacity is above zero; ``exact`` is the capacity as float64, or None where it is too large for floats to be exact. The array
#: ``requested`` may be overwritten.
Scores = Callable[[IntArray, IntArray, Floats | None], IntArray | Floats]
#: ``scorer(demands, nodes)``: returns the score of each node of the view.
Scorer = Callable[[Sequence[Demand], NodeView], IntArray]
#: ``scorer(demands, node)``: returns the score of one node.
OneRowScorer = Callable[[Sequence[Demand], NodeInfo], int]


def least_allocated(requested: IntArray, capacity: IntArray, exact: Floats | None) -> IntArray | Floats:
    """Score a resource by the share that stays free, rounded down; 0 if requests exceed the capacity."""
    free = np.subtract(capacity, requested, out=requested)
    return _percent(np.maximum(free, 0, out=free), capacity, exact)


def most_allocated(requested: IntArray, capacity: IntArray, exact: Floats | None) -> IntArray | Floats:
    """Score a resource by the requested share, rounded down; 100 if requests exceed the capacity."""
    return _percent(np.minimum(requested, capacity, out=requested), capacity, exact)


def _percent(part: IntArray, capacity: IntArray, exact: Floats | None) -> IntArray | Floats:
    """Return ``part`` as a percentage of the capacity, rounded down. Float division is several times faster than integer."""
    if exact is None:
        return _quotients(part * 100, capacity)
    share: Floats = np.multiply(part, 100.0)
    share /= exact
    np.floor(share, out=share)
    return share


def requested_to_capacity_ratio(table: IntArray) -> Scores:
    """Return the scorer that looks up the utilization (percent, rounded down) in ``table``, shape (101,)."""

    def score(requested: IntArray, capacity: IntArray, exact: Floats | None) -> IntArray:
        scores: IntArray = table[np.clip(most_allocated(requested, capacity, exact), 0, 100).astype(np.intp)]
        return scores

    return score


def utilization_table(shape: Sequence[UtilizationPoint]) -> IntArray:
    """Return the score, 0-100, of each utilization from 0 to 100 percent: linear between the points, flat outside them.

    Rounds  towards zero from the point on the left, as Go divides: a falling line rounds up
    Source  framework/plugins/helper/shape_score.go
    """
    return np.array([_on_the_line(shape, p) for p in range(101)], dtype=np.int64)


def _on_the_line(shape: Sequence[UtilizationPoint], p: int) -> int:
    right = next((i for i, point in enumerate(shape) if p <= point.utilization), None)
    if right is None:
        return shape[-1].score * _SHAPE_SCALE
    if right == 0:
        return shape[0].score * _SHAPE_SCALE
    a, b = shape[right - 1], shape[right]
    rise = (b.score - a.score) * _SHAPE_SCALE * (p - a.utilization)
    run = b.utilization - a.utilization
    return a.score * _SHAPE_SCALE + quotient(rise, run)


def weighted_mean(
    score: Scores, demands: Iterable[Demand], nodes: NodeView, *, used_only: bool = False, half_up: bool = False
) -> IntArray:
    """Return the weighted mean of the resources' scores; 0 for nodes that have none of the resources.

    Requested CPU and memory include the defaults of containers without requests.
    Rounds  down, or to the nearest with ``half_up``
    ``used_only``  leave out resources that score 0
    """
    total: IntArray | Floats | None = None
    weights: IntArray | int = 0
    for resource, amount, weight in demands:
        capacity = nodes.allocatable(resource)
        requested = _requested(nodes, resource) + amount
        counts: BoolArray | None = None
        if not nodes.is_offered_everywhere(resource):
            counts, capacity = capacity != 0, np.maximum(capacity, 1)
        scores = score(requested, capacity, nodes.exact_divisors(resource))
        if used_only:
            counts = scores > 0 if counts is None else counts & (scores > 0)
        share = weight if counts is None else counts * weight
        weighed = scores if isinstance(share, int) and share == 1 else scores * share
        total = weighed if total is None else total + weighed
        weights = weights + share
    if total is None:
        return nodes.zeros()
    weights = np.maximum(weights, 1)
    if half_up:
        total, weights = 2 * total + weights, 2 * weights
    if total.dtype.kind == "f":  # whole numbers, so the quotients round down correctly
        return (total / weights).astype(np.int64)
    return _quotients(total.astype(np.int64, copy=False), weights)


def _quotients(parts: IntArray, wholes: IntArray) -> IntArray:
    """Do the same as ``quotient`` for arrays."""
    found: IntArray = parts // wholes
    if (parts < 0).any():
        found += (parts < 0) & (found * wholes != parts)
    return found


def fullness(demands: Iterable[Demand], nodes: NodeView) -> int:
    """Return how full all nodes of the view would be together, 0-100: the weighted mean of the requested shares.

    Rounds  down per resource, then the mean
    Source  resource_allocation.go, scorePlacement; most_allocated.go
    """
    total, weights = 0, 0
    for resource, amount, weight in demands:
        offered = nodes.allocatable(resource)
        capacity = int(offered.sum())
        if capacity:
            requested = int(_requested(nodes, resource)[offered != 0].sum()) + amount
            total += min(requested, capacity) * 100 // capacity * weight
            weights += weight
    return total // weights if weights else 0


def _requested(nodes: NodeView, resource: str) -> IntArray:
    if resource == "cpu":
        return nodes.nonzero_cpu
    return nodes.nonzero_memory if resource == "memory" else nodes.requested(resource)


def _table(strategy: ScoringStrategy) -> IntArray:
    return utilization_table((strategy.requested_to_capacity_ratio or RatioShape()).shape)


def _ratio(strategy: ScoringStrategy) -> Scorer:
    score = requested_to_capacity_ratio(_table(strategy))
    return lambda demands, nodes: weighted_mean(score, demands, nodes, used_only=True, half_up=True)


def _one_row_ratio(strategy: ScoringStrategy) -> OneRowScorer:
    score = ratio_of(_table(strategy).tolist())
    return lambda demands, node: mean_of(score, demands, node, used_only=True, half_up=True)


_SCORERS: Final[Mapping[str, Callable[[ScoringStrategy], Scorer]]] = {
    LEAST_ALLOCATED: lambda strategy: partial(weighted_mean, least_allocated),
    MOST_ALLOCATED: lambda strategy: partial(weighted_mean, most_allocated),
    REQUESTED_TO_CAPACITY_RATIO: _ratio,
}
_ONE_ROW_SCORERS: Final[Mapping[str, Callable[[ScoringStrategy], OneRowScorer]]] = {
    LEAST_ALLOCATED: lambda strategy: lambda demands, node: mean_of(least_of, demands, node),
    MOST_ALLOCATED: lambda strategy: lambda demands, node: mean_of(most_of, demands, node),
    REQUESTED_TO_CAPACITY_RATIO: _one_row_ratio,
}


def scorer_of(strategy: ScoringStrategy) -> Scorer:
    """Return the scorer of a valid strategy, for views."""
    return _SCORERS[strategy.type](strategy)


def one_row_scorer_of(strategy: ScoringStrategy) -> OneRowScorer:
    """Return the scorer of a valid strategy, for single nodes; it gives the same scores as ``scorer_of``."""
    return _ONE_ROW_SCORERS[strategy.type](strategy)
