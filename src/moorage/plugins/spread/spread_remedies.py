"""Changes that let a pod into a domain that is too full for a spread constraint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from moorage.framework.changes import Change, Owner, Remedies
from moorage.plugins.shared.evictions import evict_any, pods_near
from moorage.plugins.shared.term_names import spread_name
from moorage.plugins.spread.spread_counts import Spread
from moorage.state.taint_matching import DO_NOT_SCHEDULE, rows_tolerated
from moorage.state.view import NodeView, PodInfo

_HOSTNAME: Final = "kubernetes.io/hostname"


class _Field(NamedTuple):
    """Where a constraint is written: in the pod, or in the arguments of the plugin."""

    owner: Owner
    target: str
    path: str
    skew: str
    anyway: str


def remedies_of_spreads(
    spreads: Sequence[Spread], pod: PodInfo, node: NodeView, defaults: Sequence[int] = ()
) -> Iterator[Remedies]:
    """Offer changes for each constraint that rejects the node.

    ``defaults`` are the indices of the default constraints that apply to a pod without constraints of its own
    """
    own = [i for i, one in enumerate(pod.spec.topology_spread_constraints) if one.when_unsatisfiable == "DoNotSchedule"]
    config = f"config/{pod.spec.scheduler_name}/PodTopologySpread"
    fields = [_Field("pod", f"pod/{pod.key}", f"topologySpreadConstraints[{i}]", "max-skew", "schedule-anyway") for i in own]
    if not pod.spec.topology_spread_constraints:
        fields = [_Field("config", config, f"defaultConstraints[{i}]", "plugin-argument", "plugin-argument") for i in defaults]
    for place, spread in enumerate(spreads):
        domain = node.first.domain(spread.constraint.topology_key)
        if not domain or spread.crowded()[domain]:
            yield from _remedies(spread, domain, fields[place] if place < len(fields) else None, pod, node)


def _counts_tainted(spread: Spread, pod: PodInfo, node: NodeView) -> bool:
    """Return whether a constraint that ignores taints counts a node with one that the pod does not tolerate.

    Such a node may be the empty domain that holds the minimum down, or hold pods that no longer count with ``Honor``.
    """
    nodes = node.snapshot.nodes
    counted = nodes.ids(nodes.label(spread.constraint.topology_key)) != 0
    if spread.rows is not None:
        counted &= spread.rows
    return not rows_tolerated(pod, nodes, DO_NOT_SCHEDULE, numeric=False)[counted].all()


def _remedies(spread: Spread, domain: int, at: _Field | None, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    constraint = spread.constraint
    key, term = constraint.topology_key, spread_name(constraint.topology_key, constraint.selector)
    if at is not None:
        path = f"{at.path}.whenUnsatisfiable"
        yield Change(at.owner, at.anyway, at.target, path, "DoNotSchedule", "ScheduleAnyway", term=term)
    if not domain:
        if key == _HOSTNAME:
            yield Change("node", "label", f"node/{node.first.name}", f"labels.{key}", None, node.first.name, term=term)
        return
    skew = int(spread.counts[domain]) + spread.own - spread.least
    if at is not None:
        yield Change(at.owner, at.skew, at.target, f"{at.path}.maxSkew", constraint.max_skew, skew, term=term)
        domains = int(spread.domains.sum())
        if at is not None and at.owner == "pod" and spread.least == 0 and domains < constraint.min_domains:
            # With fewer domains than minDomains, the minimum counts as 0.
            yield Change("pod", "min-domains", at.target, f"{at.path}.minDomains", constraint.min_domains, domains, term=term)
    if at is not None and at.owner == "pod" and not constraint.honors_taints and _counts_tainted(spread, pod, node):
        yield Change("pod", "honor-taints", at.target, f"{at.path}.nodeTaintsPolicy", "Ignore", "Honor", term=term)
    counted = [
        (other, name)
        for other, name in pods_near(node, key)
        if other.namespace == pod.namespace and not other.terminating and constraint.selector.matches(other.labels)
        and (spread.rows is None or spread.rows[node.table.row_of[name]])
    ]  # fmt: skip
    yield from evict_any(counted, skew - constraint.max_skew, term)
