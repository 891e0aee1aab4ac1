"""Why nodes lack resources for a pod, and what would make room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from moorage.api.quantity_amounts import shown_amount
from moorage.framework.changes import Detail
from moorage.plugins.shared.term_names import PODS
from moorage.state.view import BoolArray, NodeView

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
