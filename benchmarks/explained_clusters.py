"""Clusters of which pods are explained, as manifests: a plain one, and a mixed one, whose pods have priorities and rules.

Both have pods that stay pending. A third of the nodes have the label that these pods select; no such node has enough cpu free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["CLUSTERS", "mixed_cluster", "plain_cluster"]

_Manifest: TypeAlias = dict[str, Any]

_CREATED: Final = "2026-01-01T00:00:00Z"
_HOST: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
#: The priorities of the ten pods of each node of the mixed cluster.
_PRIORITIES: Final = (0, 0, 0, 100, 100, 100, 100, 1000, 1000, 1000)
_APPS: Final = 200


def plain_cluster(nodes: int, pods: int) -> Iterator[_Manifest]:
    """Yield nodes, pods of one priority without rules, and the pod ``pending``."""
    for at in range(nodes):
        yield _node(at)
    for at in range(pods):
        yield _placed(at, nodes)
    yield _pod("pending", "6", "search", nodeSelector={"disk": "ssd"})


def mixed_cluster(nodes: int, pods: int) -> Iterator[_Manifest]:
    """Yield nodes with images, pods with priorities, spreading and affinity, and two pending pods.

    ``waiting`` finds victims; ``stuck`` has pods of lower priority on every node, and preemption finds no node for it.
    """
    for at in range(nodes):
        yield _node(at, images=[{"names": [f"example.com/x:{n}"], "sizeBytes": 10**8 + n} for n in range(at % 7, 40, 7)])
    for at in range(pods):
        yield _placed(at, nodes, priority=_PRIORITIES[at // nodes % len(_PRIORITIES)], **_rules(f"app-{at % _APPS}", at % 5))
    rules = {**_spread("search", "DoNotSchedule"), **_apart("search"), "nodeSelector": {"disk": "ssd"}}
    yield _pod("waiting", "6", "search", priority=10_000, **rules)
    yield _pod("stuck", "13", "search", priority=500, **rules)


#: The clusters by name, with the pods to explain.
CLUSTERS: Final[Mapping[str, tuple[Callable[[int, int], Iterator[_Manifest]], tuple[str, ...]]]] = {
    "plain": (plain_cluster, ("pending",)),
    "mixed": (mixed_cluster, ("waiting", "stuck")),
}


def _node(at: int, **status: Any) -> _Manifest:
    offered = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    name = f"n{at}"
    labels = {_HOST: name, _ZONE: "abc"[at % 3], "pool": f"pool-{at % 8}"} | ({"disk": "ssd"} if at % 3 == 0 else {})
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if at % 40 == 1 else []
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"unschedulable": at % 50 == 0, "taints": taints},
        "status": {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}], **status},
    }  # fmt: skip


def _placed(at: int, nodes: int, **spec: Any) -> _Manifest:
    app = f"app-{at % _APPS}"
    return _pod(f"{app}-{at}", f"{1200 + 100 * (at % 5)}m", app, nodeName=f"n{at % nodes}", **spec)


def _pod(name: str, cpu: str, app: str, **spec: Any) -> _Manifest:
    container = {"name": "c", "image": "example.com/x:1", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}, "creationTimestamp": _CREATED}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], "priority": 0, **spec}}


def _rules(app: str, kind: int) -> _Manifest:
    """Return one of five kinds of rules: required or preferred spreading, anti-affinity or affinity, or none."""
    preferred = {_PREFERRED: [{"weight": 10, "podAffinityTerm": _term(app, _ZONE)}]}
    kinds: tuple[_Manifest, ...] = (
        {}, _spread(app, "DoNotSchedule"), _spread(app, "ScheduleAnyway"), _apart(app), {"affinity": {"podAffinity": preferred}}
    )  # fmt: skip
    return kinds[kind]


def _spread(app: str, otherwise: str) -> _Manifest:
    constraint = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": otherwise}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": {"matchLabels": {"app": app}}}]}


def _apart(app: str) -> _Manifest:
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [_term(app, _HOST)]}}}


def _term(app: str, key: str) -> _Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
