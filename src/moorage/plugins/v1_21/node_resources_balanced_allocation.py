"""NodeResourcesBalancedAllocation, as 1.21 had it: prefer nodes where CPU and memory would be requested in like shares.

With the gate BalanceAttachedNodeVolumes, the volumes that the pod would newly attach count as a third share, for pods that
have volumes of a kind whose number is limited on the node. Then the variance of the three takes the place of the difference
of the two. Of several kinds, the last one counts, in the order of the limits' rules: EBS, GCE PD, Azure disks, Cinder.

Reads     requests of containers and init containers, and overhead; what nodes offer, what the pods on them request; volumes of
          pods, claims and limits, if the gate is open
Scores    100 where the shares are the same, 0 where they could not differ more, or one is used up
Source    kube-scheduler 1.21, plugins/noderesources/balanced_allocation.go
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moorage.framework.points import Depends, Signature
from moorage.plugins.v1_21.allocation import allocation, scored_signature
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["NodeResourcesBalancedAllocation"]

Floats = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """See the module's description."""

    name = "NodeResourcesBalancedAllocation"
    depends = Depends.ROW

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        cpu, memory = (_fraction(*allocation(pod, resource, nodes)) for resource in ("cpu", "memory"))
        scores = ((1.0 - np.abs(cpu - memory)) * 100.0).astype(np.int64)
        return np.where((cpu >= 1.0) | (memory >= 1.0), 0, scores)

    def sign(self, pod: PodInfo) -> Signature:
        return scored_signature(pod, ["cpu", "memory"])


def _fraction(requested: IntArray, capacity: IntArray) -> Floats:
    """Return the share that is requested; all of it where there is no capacity."""
    fraction: Floats = np.where(capacity == 0, 1.0, requested / np.maximum(capacity, 1).astype(np.float64))
    return fraction
