"""GangScheduling of 1.35, which may also be listed under Reserve: there it counts the pods of a gang that have a node.

Here the state of the cluster counts them, so Reserve has nothing to do.

Source    kube-scheduler 1.35.4, plugins/gangscheduling/gangscheduling.go, Reserve and Unreserve
"""

from __future__ import annotations

from moorage.framework.points import ReservePlugin
from moorage.plugins.gang_scheduling import GangScheduling
from moorage.state.pod_info import PodInfo


class GangSchedulingV135(GangScheduling, ReservePlugin[object]):
    def reserve(self, state: object, pod: PodInfo, node: str) -> None:
        """Do nothing; see the module docstring."""

    def unreserve(self, state: object, pod: PodInfo, node: str) -> None:
        """Do nothing; see the module docstring."""
