"""Nodes, namespaces and limit ranges.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidateNode, ValidateLimitRange
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.core import LimitRange, LimitRangeItem, Namespace, Node, Taint
from moorage.api.names import check_dns1123_label, check_label_value
from moorage.api.validation.affinity import TAINT_EFFECTS
from moorage.api.validation.faults import (
    Faults,
    duplicate,
    forbidden,
    invalid,
    label_name,
    object_meta,
    one_of,
    quantity,
    required,
)
from moorage.api.validation.resources import node_resources


def node_faults(node: Node) -> Faults:
    """Yield the faults of a node. Faults of taints have the path ``metadata.taints``, as in the API server."""
    yield from object_meta(node.metadata, False)
    yield from _taints("metadata.taints", node.spec.taints)
    yield from node_status_faults(node)


def node_status_faults(node: Node) -> Faults:
    """Yield the faults of a node's capacity and allocatable."""
    yield from node_resources("status.capacity", node.status.capacity)
    yield from node_resources("status.allocatable", node.status.allocatable)


def _taints(path: str, taints: Iterable[Taint]) -> Faults:
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        at = f"{path}[{i}]"
        yield from label_name(f"{at}.key", taint.key)
        if faults := check_label_value(taint.value):
            yield invalid(f"{at}.value", taint.value, ";".join(faults))
        if not taint.effect:
            yield required(f"{at}.effect")
        yield from one_of(f"{at}.effect", taint.effect or None, TAINT_EFFECTS)
        if (taint.key, taint.effect) in seen:
            yield duplicate(at, taint, "taints must be unique by key and effect pair")
        seen.add((taint.key, taint.effect))


def namespace_faults(namespace: Namespace) -> Faults:
    """Yield the faults of a namespace, whose name must be a DNS label."""
    return object_meta(namespace.metadata, False, check_dns1123_label)


def limit_range_faults(limit_range: LimitRange) -> Faults:
    """Yield the faults of a limit range's types and amounts. Their relations to each other are not checked."""
    yield from object_meta(limit_range.metadata, True)
    seen: set[str] = set()
    for i, item in enumerate(limit_range.spec.limits):
        at = f"spec.limits[{i}]"
        if item.type in seen:
            yield duplicate(f"{at}.type", item.type)
        seen.add(item.type)
        yield from _limit_item(at, item)


def _limit_item(path: str, item: LimitRangeItem) -> Faults:
    yield from label_name(f"{path}.type", item.type)
    for name, amounts in (
        ("max", item.max),
        ("min", item.min),
        ("default", item.default),
        ("defaultRequest", item.default_request),
        ("maxLimitRequestRatio", item.max_limit_request_ratio),
    ):
        if item.type == "Pod" and amounts and name.startswith("default"):
            yield forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
        for resource, amount in amounts.items():
            yield from quantity(f"{path}.{name}[{resource}]", amount)
