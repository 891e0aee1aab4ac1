"""Why nodes lack resources for a pod, and what would make room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from moorage.api.quantity import shown_amount
from moorage.framework.changes import Change, Detail, Remedies
from moorage.plugins.shared.evictions import FEW, can_be_evicted, evict, evict_any, evict_enough
from moorage.plugins.shared.term_names import PODS
from moorage.state.view import BoolArray, NodeView, PodInfo

#: Resource, the amount that is requested, and whether device plugins judge it on nodes that do not offer it.
Wanted = Iterable[tuple[str, int, bool]]


def why_short(wanted: Wanted, node: NodeView) -> Detail | None:
    """Return each resource that is short on one node."""
    here = node.first
    said: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    if here.pod_count >= here.allowed_pods:
        said.append((PODS, f"pods: {here.pod_count} of {here.allowed_pods}"))
        numbers |= {"pods.count": here.pod_count, "pods.allowed": here.allowed_pods}
    for resource, count, by_device in wanted:
        offers = here.allocatable(resource)
        left = offers - here.requested(resource)
        if left < count and (offers > 0 or not by_device):
            said.append((resource, _shortage(resource, count, max(0, left), offers)))
            numbers |= {f"{resource}.needed": count, f"{resource}.free": max(0, left)}
            numbers |= {f"{resource}.allocatable": offers, f"{resource}.short": count - max(0, left)}
    return Detail("; ".join(text for _, text in said), tuple(term for term, _ in said), numbers) if said else None


def _shortage(resource: str, count: int, free: int, offers: int) -> str:
    if not count:
        return f"{resource}: more is requested than the node has"
    needs = shown_amount(resource, count, up=True)
    if not offers:
        return f"{resource}: needs {needs}, none here"
    if count > offers:
        return f"{resource}: needs {needs}, the node has {shown_amount(resource, offers)}"
    return f"{resource}: needs {needs}, {shown_amount(resource, free)} free"


def short_resources(wanted: Wanted, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
    """Yield each resource with the rows on which it is short."""
    yield PODS, np.greater_equal(nodes.pod_count, nodes.allowed_pods)
    for resource, count, by_device in wanted:
        offers = nodes.allocatable(resource)
        lacking = np.less(offers - nodes.requested(resource), count)
        yield resource, lacking & np.greater(offers, 0) if by_device else lacking


def missing_share(wanted: Wanted, nodes: NodeView) -> npt.NDArray[np.float64]:
    """Return for each row the shares of the requests that are missing, added up."""
    short = np.greater_equal(nodes.pod_count, nodes.allowed_pods).astype(np.float64)
    for resource, count, _ in wanted:
        free = nodes.allocatable(resource) - nodes.requested(resource)
        short += np.maximum(0, count - np.maximum(0, free)) / max(1, count)
    return short


# -- fit remedies ------------------------------------------------------------------------------------------------------
# Changes that make room on a node: a smaller request, a larger node, or evictions. All amounts are exact thresholds.

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
