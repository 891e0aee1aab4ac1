"""NodeAffinity of 1.21: every node is filtered, and every pod is scored.

The current plugin narrows the search for a pod whose affinity names nodes, and rejects a pod whose terms contradict each other
at PreFilter; in 1.21 Filter rejects each node. A pod without preferred terms scores 0 everywhere.

Reads     nodeSelector, nodeAffinity; labels and names of nodes
Rejects   nodes that do not match; preemption does not help
Scores    the summed weights of the preferred terms that match, scaled so that the best node gets 100
Source    kube-scheduler 1.21, plugins/nodeaffinity/node_affinity.go
"""

from __future__ import annotations

from moorage.framework.points import Reuse, Scope
from moorage.plugins import node_affinity as today
from moorage.plugins.node_affinity import PreferredTerm
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView


class NodeAffinityV121(today.NodeAffinity):
    reuse = Reuse(Scope.NODE, today.signature, signature_reads=())

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo:
        return pod

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[PreferredTerm, ...]:
        return today.preferred_terms(pod)
