"""What would let a pod into a domain that is too full for a spread constraint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from moorage.framework.changes import Change, Remedies
from moorage.plugins.evictions import evict_any, pods_near
from moorage.plugins.spread_counts import Spread
from moorage.plugins.term_names import spread_name
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["remedies_of_spreads"]

_HOSTNAME: Final = "kubernetes.io/hostname"
_NO_LEAST: Final = 2**31 - 1


def remedies_of_spreads(spreads: Sequence[Spread], pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer changes for each constraint that rejects the node."""
    own = [i for i, one in enumerate(pod.spec.topology_spread_constraints) if one.when_unsatisfiable == "DoNotSchedule"]
    for place, spread in enumerate(spreads):
        path = f"topologySpreadConstraints[{own[place]}]" if place < len(own) else ""
        domain = node.first.domain(spread.constraint.topology_key)
        if not domain or spread.crowded()[domain]:
            yield from _remedies(spread, domain, path, pod, node)


def _remedies(spread: Spread, domain: int, path: str, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    constraint = spread.constraint
    key, term = constraint.topology_key, spread_name(constraint.topology_key, constraint.selector)
    target = f"pod/{pod.key}"
    if path:
        yield Change(
            "pod", "schedule-anyway", target, f"{path}.whenUnsatisfiable", "DoNotSchedule", "ScheduleAnyway", term=term
        )
    if not domain:
        if key == _HOSTNAME:
            yield Change("node", "label", f"node/{node.first.name}", f"labels.{key}", None, node.first.name, term=term)
        return
    skew = int(spread.counts[domain]) + spread.own - _least(spread)
    if path:
        yield Change("pod", "max-skew", target, f"{path}.maxSkew", constraint.max_skew, skew, term=term)
    counted = [
        (other, name)
        for other, name in pods_near(node, key)
        if other.namespace == pod.namespace and not other.terminating and constraint.selector.matches(other.labels)
        and (spread.rows is None or spread.rows[node.table.row_of[name]])
    ]  # fmt: skip
    yield from evict_any(counted, skew - constraint.max_skew, term)


def _least(spread: Spread) -> int:
    held = spread.counts[spread.domains]
    return int(held.min(initial=_NO_LEAST)) if len(held) >= spread.constraint.min_domains else 0
