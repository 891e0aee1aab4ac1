"""Pods that are on another node in one run than in another, and pods that are pending in one alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moorage.api.core import Node
from moorage.laboratory.compare.paired_metrics import compare_pairs
from moorage.laboratory.node_groups import groups_by_node
from moorage.report.comparison import MoveCount, PodMove
from moorage.report.gates import MetricComparison
from moorage.report.run_values import MeasuredRun, UnplacedPod
from moorage.state.node_orders import zone_of

#: The metrics that gates may name, and the count of each.
_PARTS: Final = {
    "moved": "pods", "moved.withinGroup": "within_group", "moved.toAnotherGroup": "to_another_group",
    "moved.toAnotherZone": "to_another_zone",
}  # fmt: skip


class NodePlaces(NamedTuple):
    """The group and the zone of each node, by its name."""

    groups: Mapping[str, str]
    zones: Mapping[str, str]

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> NodePlaces:
        """Return the places of nodes."""
        return cls(groups_by_node(nodes), {node.name: (zone_of(node.labels) or ("", ""))[1] for node in nodes})


def count_moves(a: Mapping[str, str], b: Mapping[str, str], places: NodePlaces) -> MoveCount:
    """Count the pods that have a node in A and another one in B."""
    both = [(node, b[pod]) for pod, node in a.items() if node and b.get(pod)]
    moved = [(before, after) for before, after in both if before != after]
    same = sum(places.groups.get(before) == places.groups.get(after) for before, after in moved)
    zones = sum(places.zones.get(before) != places.zones.get(after) for before, after in moved)
    return MoveCount(len(moved), len(a), (), same, len(moved) - same, zones)


def moves_of(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[PodMove]:
    """Yield the pods that are on another node in B, or that only one of the two runs places."""
    for pod in dict.fromkeys((*a, *b)):
        before, after = a.get(pod, ""), b.get(pod, "")
        if before != after:
            yield PodMove(pod, before, after)


def moved_metrics(
    pairs: Sequence[tuple[Mapping[str, str], Mapping[str, str]]],
    chance: Sequence[tuple[Mapping[str, str], Mapping[str, str]]],
    places: NodePlaces,
) -> tuple[MoveCount, dict[str, MetricComparison]]:
    """Return the moved pods over all pairs of runs, and the metrics that gates may name; ``chance``: pairs of A alone."""
    found = [count_moves(a, b, places) for a, b in pairs]
    floor = [count_moves(a, b, places) for a, b in chance]
    means = {name: _mean([getattr(one, name) for one in found]) for name in ("of", *_PARTS.values())}
    count = MoveCount(**means, by_chance=tuple(one.pods for one in floor), per_seed=tuple(one.pods for one in found))
    base = floor if len(floor) == len(found) else [MoveCount(0, one.of) for one in found]

    def compared(name: str, part: str, *, share: bool = False) -> MetricComparison:
        a, b = ([getattr(one, part) / (max(one.of, 1) if share else 1) for one in held] for held in (base, found))
        return compare_pairs(name, a, b)

    metrics = {name: compared(name, part) for name, part in _PARTS.items()}
    metrics |= {f"{name}%": compared(f"{name}%", part, share=True) for name, part in _PARTS.items()}
    return count, metrics


def _mean(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return int(mean) if mean == int(mean) else mean


# -- pending -------------------------------------------------------------------------------------------------------------


def new_pending(a: Iterable[UnplacedPod], b: Iterable[UnplacedPod]) -> list[UnplacedPod]:
    """Return the pods that are pending in B and not in A.

    Pods of a workload get other names when its template changes, so pods are matched by count: if a workload has n more pending
    pods in B than in A, n of its pods are new, those with new names first.
    """
    before = list(a)
    names = {one.pod for one in before}
    left = Counter(_owner(one) for one in before)
    found = []
    for one in sorted(b, key=lambda one: one.pod not in names):  # known names first: they are matched first
        if left[_owner(one)] > 0:
            left[_owner(one)] -= 1
        else:
            found.append(one)
    return found


def _owner(pod: UnplacedPod) -> str:
    return f"{pod.pod.partition('/')[0]}/{pod.workload}" if pod.workload else f"pod {pod.pod}"


def new_pending_metric(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> MetricComparison:
    """Return the number of newly pending pods as a metric, which is 0 in A."""
    counts = [float(len(new_pending(one.pending, other.pending))) for one, other in zip(a, b, strict=True)]
    return compare_pairs("newPending", [0.0] * len(counts), counts)
