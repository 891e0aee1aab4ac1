"""DefaultPreemption up to 1.33 and in 1.34.7: victims that are being deleted already are deleted once more.

Source    kube-scheduler 1.34.7, framework/preemption/preemption.go, prepareCandidate
"""

from __future__ import annotations

from moorage.cycle.preemption import Candidate
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.state.pod_info import PodInfo

__all__ = ["DefaultPreemptionV1347"]


class DefaultPreemptionV1347(DefaultPreemption):
    """The plugin; see the module docstring."""

    reuse = DefaultPreemption.reuse

    def to_evict(self, best: Candidate) -> tuple[PodInfo, ...]:
        return best.victims.pods
