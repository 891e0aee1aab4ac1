"""NodeAffinity up to 1.29: every pod is scored; without preferred terms it scores 0 everywhere.

Source    kube-scheduler 1.29.14, plugins/nodeaffinity/node_affinity.go
"""

from __future__ import annotations

from moorage.framework.verdicts import Skip
from moorage.plugins.node_affinity import NodeAffinity, PreferredTerm
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["NodeAffinityV129"]


class NodeAffinityV129(NodeAffinity):
    """The plugin; see the module docstring."""

    reuse = NodeAffinity.reuse

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[PreferredTerm, ...] | Skip:
        found = super().pre_score(pod, snapshot, feasible)
        return () if isinstance(found, Skip) else found
