"""NodeDeclaredFeatures: reject nodes whose kubelet lacks a feature that the pod needs.

A pod does not list features: its spec implies them. Nodes list theirs in ``status.declaredFeatures``.

Reads     restartPolicyRules of containers, hostNetwork, hostUsers; features that nodes declare
Rejects   nodes that lack a needed feature; preemption does not help
Wakes on  a node added; a node's declared features changed; the pod's needed features changed
Gate      NodeDeclaredFeatures (on by default)
Source    kube-scheduler 1.36, plugins/nodedeclaredfeatures/nodedeclaredfeatures.go;
          component-helpers, nodedeclaredfeatures/features
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moorage.api.core import Node, PodSpec
from moorage.framework import points
from moorage.framework.changes import Change, Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.state.view import NodeView, PodInfo, Snapshot

Features = frozenset[str]
# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't match Pod's required features"
NODE_ADDED_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE)
POD_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE)

RESTARTS = "RestartAllContainers"
_NONE: Final = frozenset[str]()
_RESTART_ALL: Final = frozenset({"RestartAllContainersOnContainerExits"})
_ON_HOST: Final = frozenset({"UserNamespacesHostNetworkSupport"})


def _signature(pod: PodInfo) -> points.Signature:
    needed = needed_features(pod.spec)
    return {"neededFeatures": needed} if needed else points.NOTHING_TO_DO


class NodeDeclaredFeatures(points.PreFilterPlugin[Features], RefusingPlugin[Features], points.Attachable):
    name = "NodeDeclaredFeatures"
    reuse = points.Reuse(points.Scope.NODE, _signature, signature_reads=())

    def __init__(self) -> None:
        self._enabled = True

    def attach(self, handle: Handle) -> None:
        self._enabled = handle.gates["NodeDeclaredFeatures"]

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Features | Skip:
        return (self._enabled and needed_features(pod.spec)) or SKIP

    def filter(self, needed: Features, nodes: NodeView) -> Iterator[Reject]:
        yield Reject(~nodes.features.spread(nodes.ids(nodes.features), needed.issubset), REASON, unresolvable=True)

    def why(self, needed: Features, pod: PodInfo, node: NodeView) -> Detail | None:
        lacking = sorted(needed - set(node.first.node.status.declared_features))
        return Detail(f"does not declare {', '.join(lacking)}") if lacking else None

    def remedies(self, needed: Features, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one = node.first.node
        lacking = sorted(needed - set(one.status.declared_features))
        yield tuple(Change("node", "feature", f"node/{one.name}", f"declaredFeatures.{name}", None, name) for name in lacking)

    def wakes_on(self) -> Iterator[Wake]:
        if self._enabled:
            yield Wake(NODE_ADDED_OR_CHANGED, when=declares_otherwise, by_shape=True)
            yield Wake(POD_CHANGED, when=needs_otherwise, by_shape=True)


def needed_features(spec: PodSpec) -> Features:
    """Return the features that a node must declare to run the pod. Features that matter only to updates are left out."""
    needed = _ON_HOST if spec.host_network and spec.host_users is False else _NONE
    for container in (*spec.containers, *spec.init_containers):
        if container.restart_policy_rules and any(rule.action == RESTARTS for rule in container.restart_policy_rules):
            return needed | _RESTART_ALL
    return needed


def declares_otherwise(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Return True for a new node and for a node whose declared features changed."""
    return old is None or old.status.declared_features != new.status.declared_features


def needs_otherwise(pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
    """Return True if the updated pod is this pod and its needed features changed."""
    return pod.uid == new.uid and needed_features(old.spec) != needed_features(new.spec)
