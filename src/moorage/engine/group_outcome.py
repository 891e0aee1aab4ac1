"""What one attempt to place a pod group is about, and what it came to.

Source  kube-scheduler, schedule_one_podgroup.go, algorithmResult and podGroupAlgorithmResult
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from moorage.cycle.decision import Decision
from moorage.errors import PluginError
from moorage.framework.placements import GroupInfo
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from moorage.queue.queued_pod import QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = ["SCHEDULED", "UNSCHEDULABLE", "WAITING", "GroupOutcome", "GroupReport", "MemberAttempt", "QueuedGroup"]

# kube-scheduler's own texts, kept word for word.
_UNSCHEDULABLE: Final = "pod group is unschedulable"
UNSCHEDULABLE: Final = Status(Code.UNSCHEDULABLE, "", (_UNSCHEDULABLE,))
WAITING: Final = Status(Code.UNSCHEDULABLE, "", (_UNSCHEDULABLE, "pod group is waiting for preemption to complete"))
SCHEDULED: Final = Status(Code.SUCCESS)


class QueuedGroup(Struct, eq=False):
    """The pods of one group that are to be placed together, in the order they are tried."""

    info: GroupInfo
    profile: Profile
    pods: tuple[QueuedPod, ...]


class MemberAttempt(Struct, eq=False):
    """One pod's part.

    ``node``      where it could go; None if nowhere
    ``preempts``  only once others are gone
    ``permit``    what Permit said of that node: SUCCESS, or WAIT with reasons; None if it was not asked, or said no
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
    ``preempting`` results of PostFilter, each with its pod, applied whatever the status
    ``victims``    pods to evict for the group as a whole
    """

    tried: tuple[MemberAttempt, ...]
    status: Status
    waiting: bool = False
    preempting: tuple[tuple[PodInfo, PostFilterResult], ...] = ()
    victims: tuple[PodInfo, ...] = ()

    @property
    def done_without(self) -> tuple[PluginError, ...]:
        """Extenders that failed and were passed over."""
        return tuple(fault for one in self.tried for fault in one.decision.done_without)


class GroupReport(Struct, frozen=True):
    """An attempt for a group, for those who look on. ``result`` is as kube-scheduler's metrics name it.

    ``scheduled``, ``unscheduled``  what became of its pods; ``could_go``: how many of them had found a node
    """

    key: str
    profile: str
    result: str
    message: str
    scheduled: int
    unscheduled: int
    could_go: int = 0
