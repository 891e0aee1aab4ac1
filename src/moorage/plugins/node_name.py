"""NodeName: reject every node but the one the pod names.

Reads     spec.nodeName; the node's name
Rejects   every other node; preemption does not help
Wakes on  a node added
Source    kube-scheduler 1.36, plugins/nodename/node_name.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework import points
from moorage.framework.changes import Change, Detail, RefusingPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold, Reject
from moorage.state.view import NodeInfo, NodeView, PodInfo

# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't match the requested node name"
NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)


def _signature(pod: PodInfo) -> points.Signature:
    return {"spec.nodeName": pod.spec.node_name} if pod.spec.node_name else points.NOTHING_TO_DO


class NodeName(RefusingPlugin[PodInfo], points.FilterNodePlugin[PodInfo]):
    name = "NodeName"
    reuse = points.Reuse(points.Scope.NODE, _signature, signature_reads=())

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        wanted = pod.spec.node_name
        if wanted:
            yield Reject(~nodes.named((wanted,)), REASON, unresolvable=True)

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        wanted = pod.spec.node_name
        return Hold.because(REASON, unresolvable=True) if wanted and wanted != node.name else None

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail:
        return Detail(f"nodeName is {pod.spec.node_name}", (f"nodeName {pod.spec.node_name}",))

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Change]:
        yield Change("pod", "node-name", f"pod/{pod.key}", "nodeName", pod.spec.node_name, None)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(NODE_ADDED)
