"""GangScheduling of 1.37: decide while the group is tried whether it can still fit; nothing waits at Permit.

Rejects   a group of which fewer than minCount pods can be placed, as soon as too few are left to try
Wakes on  what wakes it in 1.36; the PodGroup's minCount lowered
Source    kube-scheduler 1.37, plugins/gangscheduling/gangscheduling.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.api.pod_groups import PodGroup
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.group_placement import GroupInfo
from moorage.framework.points import PlacementFeasiblePlugin
from moorage.framework.verdicts import Code, Status
from moorage.plugins.gang_scheduling import GangScheduling
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

__all__ = ["GangSchedulingV137"]

# kube-scheduler's own texts, kept word for word.
CANNOT: Final = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
NOT_YET: Final = "minCount ({}) is not yet satisfied: {} scheduled, {} remaining"

GROUP_CHANGED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE)


class GangSchedulingV137(GangScheduling, PlacementFeasiblePlugin):
    """The plugin; see the module docstring. It does not run at Permit."""

    def placement_feasible(self, info: GroupInfo, scheduled: int, remaining: int) -> Status | None:
        group = None if self._handle is None else self._handle.snapshot.objects(PodGroup).get(info.key)
        needed = (group.min_count if group is not None else None) or 1
        if remaining + scheduled < needed:
            return Status(Code.UNSCHEDULABLE, self.name, (CANNOT.format(needed, scheduled, remaining),))
        if scheduled < needed:
            return Status(Code.WAIT, self.name, (NOT_YET.format(needed, scheduled, remaining),))
        return None

    def wakes_on(self) -> Iterator[Wake]:
        yield from super().wakes_on()
        yield Wake(GROUP_CHANGED, when=_needs_fewer, by_shape=True)


def _needs_fewer(pod: PodInfo, old: Any, new: Any) -> bool:
    if not isinstance(old, PodGroup) or not isinstance(new, PodGroup) or group_key(pod) != new.key:
        return False
    return old.min_count is not None and new.min_count is not None and new.min_count < old.min_count
