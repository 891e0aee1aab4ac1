"""NodeDeclaredFeatures: keep a pod off nodes whose kubelet does not have the features it needs.

A pod does not name features; what it needs follows from its spec. Nodes say what they have in ``status.declaredFeatures``.

Reads     restartPolicyRules of containers, hostNetwork, hostUsers; features that nodes declare
Rejects   nodes that lack a needed feature; evicting pods would not help
Wakes on  a node added; a node declaring other features; the pod needing other features
Gate      NodeDeclaredFeatures (on by default)
Source    kube-scheduler 1.36, plugins/nodedeclaredfeatures/nodedeclaredfeatures.go;
          component-helpers, nodedeclaredfeatures/features
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.core import Node, PodSpec
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Depends, Signature
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["REASON", "NodeDeclaredFeatures", "needed_features"]

Features = frozenset[str]
# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't match Pod's required features"
NODE_CAME_OR_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE)
POD_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE)

RESTART_ALL = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_ON_HOST = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures:
    """The plugin."""

    name = "NodeDeclaredFeatures"
    depends = Depends.NODES
    signs_by = ()

    def __init__(self) -> None:
        self._enabled = True

    def attach(self, handle: Handle) -> None:
        self._enabled = handle.gates["NodeDeclaredFeatures"]

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Features | Skip:
        return (self._enabled and needed_features(pod.spec)) or SKIP

    def filter(self, needed: Features, nodes: NodeView) -> Iterator[Reject]:
        yield Reject(~nodes.features.spread(nodes.ids(nodes.features), needed.issubset), REASON, unresolvable=True)

    def sign(self, pod: PodInfo) -> Signature:
        return {"neededFeatures": needed_features(pod.spec)}

    def wakes_on(self) -> Iterator[Wake]:
        if self._enabled:
            yield Wake(NODE_CAME_OR_CHANGED, when=declares_otherwise)
            yield Wake(POD_CHANGED, when=needs_otherwise)


def needed_features(spec: PodSpec) -> Features:
    """Return the features a node must declare to run such a pod. Features that only matter to updates are not among them."""
    needed = set()
    rules = (rule for container in (*spec.containers, *spec.init_containers) for rule in container.restart_policy_rules)
    if any(rule.action == "RestartAllContainers" for rule in rules):
        needed.add(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        needed.add(USER_NAMESPACES_ON_HOST)
    return frozenset(needed)


def declares_otherwise(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Return True for a node that is new, or declares other features than it did."""
    return old is None or old.status.declared_features != new.status.declared_features


def needs_otherwise(pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
    """Return True when the update is of this very pod and changes what it needs."""
    return pod.uid == new.uid and needed_features(old.spec) != needed_features(new.spec)
