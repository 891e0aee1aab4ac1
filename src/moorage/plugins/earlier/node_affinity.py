"""NodeAffinity up to 1.29: every pod is scored; without preferred terms it scores 0 everywhere.

Up to 1.26 one required term that names no node, by contradicting itself, rejects the pod; other terms do not matter.
Up to 1.23 PreFilter narrows nothing and rejects no pod, and in 1.21 skips none.

Source    kube-scheduler 1.29.14, 1.26.15, 1.23.5 and 1.21, plugins/nodeaffinity/node_affinity.go
"""

from __future__ import annotations

from moorage.api.core import NodeSelector
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import SKIP, Hold, Narrow, Skip
from moorage.plugins.node_affinity import REASON_CONFLICT, NodeAffinity, PreferredTerm, nodes_named, signature
from moorage.state.view import NodeView, PodInfo, Snapshot


class NodeAffinityV129(NodeAffinity):
    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> tuple[PreferredTerm, ...] | Skip:
        found = super().pre_score(pod, snapshot, feasible)
        return () if isinstance(found, Skip) else found


class NodeAffinityV126(NodeAffinityV129):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo | Skip | Hold | Narrow[PodInfo]:
        found = super().pre_filter(pod, snapshot)
        return Hold.because(REASON_CONFLICT, unresolvable=True) if _contradicts_itself(pod) else found


class NodeAffinityV123(NodeAffinityV126):
    reuse = Reuse(Scope.NODE, signature, signature_reads=())

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo | Skip:
        return SKIP if super().pre_filter(pod, snapshot) is SKIP else pod


class NodeAffinityV121(NodeAffinityV123):
    """The plugin of 1.21, whose Filter runs for every pod."""

    reuse = NodeAffinityV123.reuse

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo:
        return pod


def _contradicts_itself(pod: PodInfo) -> bool:
    """Return whether a required term names no node, and each term before it names some."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required is not None else ():
        names = nodes_named(NodeSelector(node_selector_terms=(term,)))
        if not names:
            return names is not None
    return False
