"""Concise builders of pods, nodes and clusters for tests.

Arguments are spelled as in a manifest (camelCase, nested dicts), so that a test reads like its YAML:

    a_pod("web", nodeSelector={"disk": "ssd"})
    a_node("n1", {"disk": "ssd"}, taints=[{"key": "gpu", "effect": "NoSchedule"}])
    a_cluster([node, ...], {"n1": [pod, ...]}).snapshot
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.api.core import Node, Pod
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import FailedAttempt, Nominated
from moorage.framework.plugin_runner import run_filter, run_pre_filter
from moorage.framework.profile import make_profile, points_of
from moorage.framework.verdicts import Verdicts
from moorage.state.cluster import ClusterState, Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["a_cluster", "a_node", "a_pod", "failed_attempt"]


def a_pod(
    name: str = "pod",
    labels: Mapping[str, str] | None = None,
    *,
    namespace: str = "default",
    uid: str = "",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PodInfo:
    """Return a pod with this spec. Its UID is ``namespace/name`` unless given; ``metadata`` adds other metadata fields."""
    named = {"name": name, "namespace": namespace, "uid": uid or f"{namespace}/{name}", "labels": dict(labels or {})}
    document = {"metadata": {**named, **(metadata or {})}, "spec": spec, "status": dict(status or {})}
    return PodInfo(msgspec.convert(document, Pod))


def a_node(
    name: str = "node",
    labels: Mapping[str, str] | None = None,
    *,
    allocatable: Mapping[str, str | int] | None = None,
    images: Iterable[Any] = (),
    declared_features: Iterable[str] = (),
    **spec: Any,
) -> Node:
    """Return a node with this spec; arguments for the status that kubelet reports are separate."""
    status = {"images": tuple(images), "declaredFeatures": tuple(declared_features), "allocatable": dict(allocatable or {})}
    return msgspec.convert({"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec, "status": status}, Node)


def a_cluster(nodes: Iterable[Node], pods: Mapping[str, Iterable[PodInfo]] | None = None) -> ClusterState:
    """Return a cluster of these nodes, with pods placed on them by node name."""
    cluster = ClusterState()
    for node in nodes:
        cluster.set_node(node)
    for name, placed in (pods or {}).items():
        for pod in placed:
            cluster.place(pod, name)
    return cluster


# -- attempts ----------------------------------------------------------------------------------------------------------
# Build a failed attempt, the input of PostFilter plugins.


def failed_attempt(rules: Iterable[Any], pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None = None) -> FailedAttempt:
    """Return the input of PostFilter for a pod, filtered by these plugins in this order.

    Nodes that admit the pod get no status. PreFilter must not reject the pod.
    """
    plugins = {rule.name: rule for rule in rules}
    points = {point: [name for name, rule in plugins.items() if point in points_of(rule)] for point in ("preFilter", "filter")}
    profile = make_profile("default", plugins, points, {})
    found = run_pre_filter(profile, pod, snapshot)
    verdicts = Verdicts(len(snapshot.table))
    run_filter(profile, found, pod, snapshot.nodes, verdicts)
    return FailedAttempt(FilterInput(profile, found, pod), snapshot, verdicts, nominated or {})
