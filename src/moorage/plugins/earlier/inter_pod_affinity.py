"""InterPodAffinity up to 1.35: pods that are only nominated wake no pod, and a deleted pod's anti-affinity does not count.

Up to 1.33 the namespace selector of an incoming pod's term selects the namespaces that it matches, and no others. Up to 1.27
every pod is scored; one that no term concerns scores 0. Up to 1.26 Filter always runs, so the anti-affinity of a nominated pod
counts even if no placed pod has any, and ``hardPodAffinityWeight`` is the only argument. In 1.21 a rejection has two reasons,
and any event wakes the pods.

Source    kube-scheduler 1.35, 1.33.3, 1.27.16, 1.26.15 and 1.21.2, plugins/interpodaffinity/plugin.go and filtering.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from moorage.api.feature_gates import FeatureGates
from moorage.errors import Fault
from moorage.framework.args import Int32, PluginArgs
from moorage.framework.events import ANY_EVENT, Wake
from moorage.framework.points import Reuse
from moorage.framework.verdicts import Hold, Reject, Skip
from moorage.plugins.affinity.affinity_counts import AffinityCounts, AffinityWeights
from moorage.plugins.affinity.selected_namespaces import SelectingNamespaces
from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods
from moorage.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs, refusals, signature_of
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.view import NodeView, PodInfo, Snapshot


class InterPodAffinityArgsV121(PluginArgs, frozen=True):
    """``hardPodAffinityWeight`` is the weight of a placed pod's required affinity to the incoming pod."""

    hard_pod_affinity_weight: Int32 = 1

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return InterPodAffinityArgs(hard_pod_affinity_weight=self.hard_pod_affinity_weight).faults(path, gates)


class InterPodAffinityV135(WokenByPlacedPods, InterPodAffinity):
    def _is_matched_by(self, terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
        return False


class InterPodAffinityV133(SelectingNamespaces, InterPodAffinityV135):
    pass


class InterPodAffinityV127(InterPodAffinityV133):
    reuse = Reuse(signature=signature_of, signature_reads=(), signature_reads_metadata=True)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> AffinityWeights:
        found = super().pre_score(pod, snapshot, feasible)
        return {} if isinstance(found, Skip) else found


class InterPodAffinityV126(InterPodAffinityV127):
    Args = InterPodAffinityArgsV121  # type: ignore[assignment]  # without an argument that came later

    def __init__(self, args: InterPodAffinityArgsV121 | None = None) -> None:
        given = args or InterPodAffinityArgsV121()
        super().__init__(InterPodAffinityArgs(hard_pod_affinity_weight=given.hard_pod_affinity_weight))

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> AffinityCounts | Hold:
        found = super().pre_filter(pod, snapshot)
        return AffinityCounts(snapshot, (), (), False, {}, {}, {}) if isinstance(found, Skip) else found


# kube-scheduler's own text, kept word for word: people search their events for it.
REASON = "node(s) didn't match pod affinity/anti-affinity rules"


class InterPodAffinityV121(InterPodAffinityV126):
    def filter(self, state: AffinityCounts, nodes: NodeView) -> Iterator[Reject]:
        for reject in refusals(state, nodes):
            yield replace(reject, reason=REASON)
            yield reject

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ANY_EVENT)
