"""InterPodAffinity up to 1.35: pods that are only nominated wake no pod, and a deleted pod's anti-affinity does not count.

Source    kube-scheduler 1.35, plugins/interpodaffinity/plugin.go
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.plugins.earlier.placed_pods import WokenByPlacedPods
from moorage.plugins.inter_pod_affinity import InterPodAffinity
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.pod_info import PodInfo

__all__ = ["InterPodAffinityV135"]


class InterPodAffinityV135(WokenByPlacedPods, InterPodAffinity):
    """The plugin; see the module docstring."""

    reuse = InterPodAffinity.reuse

    def _is_matched_by(self, terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
        del terms, pod
        return False
