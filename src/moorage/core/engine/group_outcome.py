"""The pods and the result of one attempt to place a pod group.

Source  kube-scheduler, schedule_one_podgroup.go, algorithmResult and podGroupAlgorithmResult
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from moorage.core.cycle.decision import Decision
from moorage.core.queue.queued_pod import QueuedPod
from moorage.errors import PluginError
from moorage.framework.placements import GroupInfo
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from moorage.state.pod_info import PodInfo

__all__ = ["SCHEDULED", "UNSCHEDULABLE", "WAITING", "GroupOutcome", "GroupReport", "MemberAttempt", "QueuedGroup", "refused"]

# kube-scheduler's own texts, kept word for word.
_UNSCHEDULABLE: Final = "pod group is unschedulable"
UNSCHEDULABLE: Final = Status(Code.UNSCHEDULABLE, "", (_UNSCHEDULABLE,))
WAITING: Final = Status(Code.UNSCHEDULABLE, "", (_UNSCHEDULABLE, "pod group is waiting for preemption to complete"))
SCHEDULED: Final = Status(Code.SUCCESS)


def refused(status: Status) -> Status:
    """Return the status of a group that is refused for the reasons of ``status``."""
    return Status(Code.UNSCHEDULABLE, status.plugin, (_UNSCHEDULABLE, *status.reasons))


class QueuedGroup(Struct, eq=False):
    """The pods of one group that are to be placed together, in the order they are tried."""

    info: GroupInfo
    profile: Profile
    pods: tuple[QueuedPod, ...]


class MemberAttempt(Struct, eq=False):
    """The result for one pod of a group.

    ``node``      a node that the pod fits on; None if there is none
    ``preempts``  the pod fits there only after victims are deleted
    ``permit``    Permit's answer for that node: SUCCESS, or WAIT with reasons; None if Permit did not run, or rejected the pod
    """

    queued: QueuedPod
    decision: Decision
    node: str | None = None
    preempts: bool = False
    permit: Status | None = None

    @property
    def fits(self) -> bool:
        """True if the pod can be bound to its node at once."""
        return self.node is not None and not self.preempts


class GroupOutcome(Struct, eq=False):
    """The result of an attempt to schedule a pod group.

    ``tried``      attempts in the order of the pods; fewer if the group's attempt ended early
    ``status``     SUCCESS: the pods that fit are bound; else no pod is bound now
    ``waiting``    the group can be scheduled when the preemption in progress has ended
    ``preempting`` results of PostFilter, each with its pod; they are applied even if the group fails
    ``victims``    pods to evict for the group as a whole
    ``nominated``  UID → the node that a pod gets once they are gone
    ``untried``    the status of pods that were not tried: that of the group, since 1.37 before preemption
    """

    tried: tuple[MemberAttempt, ...]
    status: Status
    waiting: bool = False
    preempting: tuple[tuple[PodInfo, PostFilterResult], ...] = ()
    victims: tuple[PodInfo, ...] = ()
    nominated: dict[str, str] = {}
    untried: Status = UNSCHEDULABLE

    @property
    def done_without(self) -> tuple[PluginError, ...]:
        """The errors of extenders that failed and were skipped."""
        return tuple(fault for one in self.tried for fault in one.decision.done_without)


class GroupReport(Struct, frozen=True):
    """An attempt for a group, for logs and metrics. ``result`` is the label that kube-scheduler's metrics have for it.

    ``scheduled``, ``unscheduled``  how many of its pods were placed and not placed; ``could_go``: how many had found a node
    """

    key: str
    profile: str
    result: str
    message: str
    scheduled: int
    unscheduled: int
    could_go: int = 0
