"""Changes that make room on a node: a smaller request, a larger node, or evictions. All amounts are exact thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from moorage.framework.changes import Change, Remedies
from moorage.plugins.shared.evictions import FEW, can_be_evicted, evict, evict_any, evict_enough
from moorage.plugins.shared.term_names import PODS
from moorage.state.view import NodeView, PodInfo

#: If the free amount is less than the request divided by this, one eviction and a smaller reduction are offered too.
_MUCH: Final = 4


def remedies_of_full_node(node: NodeView) -> Iterator[Remedies]:
    """Offer changes for a node with as many pods as it allows."""
    one = node.first
    target = f"node/{one.name}"
    yield Change("node", "pods", target, "allocatable.pods", one.allowed_pods, one.pod_count + 1, term=PODS)
    yield from evict_any([(pod, one.name) for pod in one.pods], one.pod_count + 1 - one.allowed_pods, PODS)


def _evict_and_shrink(less: Change, free: int, node: NodeView) -> Iterator[Remedies]:
    """Offer to evict one pod and to reduce the request to what is free without that pod."""
    one, resource = node.first, less.path.removeprefix("requests.")
    held = sorted(((pod.requests.get(resource, 0), pod) for pod in one.pods if can_be_evicted(pod)), key=lambda held: -held[0])
    for amount, pod in held[:FEW]:
        if isinstance(less.old, int) and isinstance(less.new, int) and less.new < free + amount < less.old:
            yield evict(pod, one.name, less.term), replace(less, new=free + amount)


def remedies_of_ignoring(resource: str, pod: PodInfo) -> Iterator[Remedies]:
    """Offer to let Filter ignore an extended resource, which then only an extender counts."""
    target = f"config/{pod.spec.scheduler_name}/NodeResourcesFit"
    yield Change("config", "plugin-argument", target, "ignoredResources", None, resource, term=resource)


def remedies_of_shortage(resource: str, count: int, requested: int, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer changes for a node on which ``count`` of a resource does not fit; ``requested`` is the pod's own request."""
    one = node.first
    offered, taken = one.allocatable(resource), one.requested(resource)
    free = max(0, offered - taken)
    if requested == count:
        less = Change("pod", "request", f"pod/{pod.key}", f"requests.{resource}", count, free, term=resource)
        yield less
        if free * _MUCH < count:
            yield from _evict_and_shrink(less, offered - taken, node)
    yield Change("node", "allocatable", f"node/{one.name}", f"allocatable.{resource}", offered, taken + count, term=resource)
    if count <= offered:
        held = ((other, other.requests.get(resource, 0)) for other in one.pods)
        yield from evict_enough(held, count - (offered - taken), one.name, resource)
