"""NodeAffinity, as 1.21 had it: as today, but every node is looked at, and every pod is scored.

Today a pod whose affinity names nodes is looked for on those alone, and one whose terms contradict each other is turned down
as a whole; in 1.21 each node refuses it. A pod without preferences scored 0 everywhere.

Reads     nodeSelector, nodeAffinity; labels and names of nodes
Rejects   nodes that do not match; evicting pods would not help
Scores    the weights of the preferred terms that match, summed, then scaled so that the best node gets 100
Source    kube-scheduler 1.21, plugins/nodeaffinity/node_affinity.go
"""

from __future__ import annotations

from moorage.plugins import node_affinity as today
from moorage.plugins.node_affinity import PreferredTerm
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["NodeAffinityV121"]


class NodeAffinityV121(today.NodeAffinity):
    """See the module's description."""

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo:
        del snapshot
        return pod

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[PreferredTerm, ...]:
        return today.preferred_terms(pod)
