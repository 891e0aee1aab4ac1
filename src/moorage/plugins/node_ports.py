"""NodePorts: reject nodes where a host port that the pod requests is in use.

Reads     hostPort of containers and sidecars; the host ports in use on each node
Rejects   nodes with a conflicting port; preempting the pod that uses it helps
Wakes on  a node added; a placed or nominated pod deleted that used a requested port
Source    kube-scheduler 1.36, plugins/nodeports/node_ports.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework import points
from moorage.framework.changes import Change, Detail, RefusingPlugin, Remedies, TermsPlugin, port_text
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.shared.evictions import evict_all
from moorage.plugins.shared.term_names import port_name
from moorage.state.pod_info import HostPort, PodInfo
from moorage.state.view import BoolArray, NodeView, Snapshot

Ports = frozenset[HostPort]
# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't have free ports for the requested pod ports"
NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
POD_DELETED = ClusterEvent(Resource.POD, Action.DELETE)


def _signature(pod: PodInfo) -> points.Signature:
    return {"hostPorts": pod.host_ports} if pod.host_ports else points.NOTHING_TO_DO


class NodePorts(points.PreFilterPlugin[Ports], RefusingPlugin[Ports], TermsPlugin[Ports]):
    name = "NodePorts"
    reuse = points.Reuse(points.Scope.NODE_PODS, _signature, signature_reads=())

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Ports | Skip:
        return pod.host_ports or SKIP

    def filter(self, wanted: Ports, nodes: NodeView) -> Iterator[Reject]:
        taken = nodes.false()
        for port in wanted:
            for address, holders in nodes.host_ports.get((port.protocol, port.port), {}).items():
                if port.clashes(port._replace(ip=address)):
                    taken |= nodes.holding(holders)
        yield Reject(taken, REASON)

    def why(self, wanted: Ports, pod: PodInfo, node: NodeView) -> Detail | None:
        said = [
            (port_name(port.protocol, port.port), f"port {port.port}/{port.protocol} held by {other.key}")
            for port in sorted(wanted)
            for other in node.first.pods
            if clash(frozenset([port]), other.host_ports)
        ]
        return Detail("; ".join(text for _, text in said), tuple(dict(said))) if said else None

    def terms(self, wanted: Ports, pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        for port in sorted(wanted):
            yield port_name(port.protocol, port.port), _rows_taken(port, nodes)

    def remedies(self, wanted: Ports, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one = node.first
        for port in sorted(wanted):
            holders = [other for other in one.pods if clash(frozenset([port]), other.host_ports)]
            if holders:
                term, text = port_name(port.protocol, port.port), port_text(port.protocol, port.ip, port.port)
                yield Change("pod", "drop-port", f"pod/{pod.key}", "hostPorts", text, None, term=term)
                yield from evict_all([(other, one.name) for other in holders], term)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(
            POD_DELETED, when=lambda pod, gone, new: has_place(gone) and clash(pod.host_ports, gone.host_ports), by_shape=True
        )
        yield Wake(NODE_ADDED)


def _rows_taken(port: HostPort, nodes: NodeView) -> BoolArray:
    taken = nodes.false()
    for address, holders in nodes.host_ports.get((port.protocol, port.port), {}).items():
        if port.clashes(port._replace(ip=address)):
            taken |= nodes.holding(holders)
    return taken


def clash(wanted: Ports, held: Ports) -> bool:
    """Return True if a requested port conflicts with one in use."""
    return any(port.clashes(other) for port in wanted for other in held)


def has_place(pod: PodInfo) -> bool:
    """Return True if the pod is on a node or nominated to one; only then do its ports count."""
    return bool(pod.spec.node_name or pod.status.nominated_node_name)
