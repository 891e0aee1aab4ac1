"""DefaultPreemption up to 1.33 and in 1.34.7: victims that are being deleted already are deleted once more.

Up to 1.28 victims are listed in the order in which the search tried them, and the choice of node compares the first ones: a
victim beyond its disruption budget can hide a more important one behind it. Up to 1.26 a pod that preempted waits for every
terminating pod of lower priority on its nominated node, whatever deletes it.

Source    kube-scheduler 1.34.7 and 1.28.8, framework/preemption/preemption.go, prepareCandidate; 1.26.15,
          defaultpreemption/default_preemption.go
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.cycle.preemption import Candidate
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.post_filter import Consult
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.v1_21.default_preemption import in_search_order
from moorage.state.pod_info import PodInfo

__all__ = ["DefaultPreemptionV126", "DefaultPreemptionV128", "DefaultPreemptionV1347"]


class DefaultPreemptionV1347(DefaultPreemption):
    """The plugin; see the module docstring."""

    reuse = DefaultPreemption.reuse

    def to_evict(self, best: Candidate) -> tuple[PodInfo, ...]:
        return best.victims.pods


class DefaultPreemptionV128(DefaultPreemptionV1347):
    """The plugin up to 1.28."""

    reuse = DefaultPreemption.reuse

    def nominate_best(
        self, pod: PodInfo, attempt: Attempt, candidates: Sequence[Candidate]
    ) -> PostFilterResult | Consult[Candidate]:
        return super().nominate_best(pod, attempt, [in_search_order(candidate) for candidate in candidates])


class DefaultPreemptionV126(DefaultPreemptionV128):
    """The plugin up to 1.26."""

    reuse = DefaultPreemption.reuse

    @staticmethod
    def is_leaving(other: PodInfo) -> bool:
        return other.terminating
