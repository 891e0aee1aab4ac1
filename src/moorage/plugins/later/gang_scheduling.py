"""GangScheduling of 1.37: decide while the group is tried whether it can still fit; nothing waits at Permit.

Rejects   a group of which fewer than minCount pods can be placed, as soon as too few are left to try; a composite group of
          which fewer than minGroupCount groups can be; at PreEnqueue pods of a tree of which too few groups are complete
Wakes on  what wakes it in 1.36, in any group of the tree; the PodGroup's minCount lowered; a CompositePodGroup added
Source    kube-scheduler 1.37, plugins/gangscheduling/gangscheduling.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.api.pod_groups import PodGroup
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import PlacementFeasiblePlugin
from moorage.framework.verdicts import Code, Hold, Status
from moorage.plugins.gang_scheduling import GROUP_ADDED, POD_ADDED, GangScheduling
from moorage.state.group_trees import GroupInfo, root_of, tree_of
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

__all__ = ["GangSchedulingV137"]

# kube-scheduler's own texts, kept word for word.
CANNOT: Final = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
NO_QUORUM: Final = 'waiting for composite pod group "{}" tree to meet quorum'
NOT_YET: Final = "minCount ({}) is not yet satisfied: {} scheduled, {} remaining"

GROUP_CHANGED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE)
TREE_ADDED = ClusterEvent(Resource.COMPOSITE_POD_GROUP, Action.ADD)


class GangSchedulingV137(GangScheduling, PlacementFeasiblePlugin):
    """The plugin; see the module docstring. It does not run at Permit."""

    def placement_feasible(self, info: GroupInfo, scheduled: int, remaining: int) -> Status | None:
        needed = 1 if info.tree is None else info.tree.needed
        if remaining + scheduled < needed:
            return Status(Code.UNSCHEDULABLE, self.name, (CANNOT.format(needed, scheduled, remaining),))
        if scheduled < needed:
            return Status(Code.WAIT, self.name, (NOT_YET.format(needed, scheduled, remaining),))
        return None

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        if self._handle is None or not self._handle.gates.serves("CompositePodGroup"):
            return super().pre_enqueue(pod)
        snapshot = self._handle.snapshot
        group = snapshot.objects(PodGroup).get(group_key(pod) or "")
        if group is None or group.parent_key is None:
            return super().pre_enqueue(pod)
        tree = tree_of(pod, snapshot)
        if tree is not None and tree.is_ready(snapshot):
            return None
        name = group.parent_key.partition("/")[2] if tree is None else tree.group.name
        return Hold.because(NO_QUORUM.format(name), unresolvable=True)

    def wakes_on(self) -> Iterator[Wake]:
        if self._handle is not None and self._handle.gates.serves("CompositePodGroup"):
            yield Wake(POD_ADDED, when=self._share_a_tree)
            yield Wake(GROUP_ADDED, when=self._share_a_tree)
            yield Wake(TREE_ADDED, when=self._share_a_tree)
            yield Wake(GROUP_CHANGED, when=lambda pod, old, new: _needs_fewer(old, new) and self._share_a_tree(pod, None, new))
        else:
            yield from super().wakes_on()
            own = lambda pod, old, new: _needs_fewer(old, new) and group_key(pod) == new.key  # noqa: E731
            yield Wake(GROUP_CHANGED, when=own, by_shape=True)

    def _share_a_tree(self, pod: PodInfo, old: object, new: Any) -> bool:
        """Return whether a pod or a group that was added belongs to the tree of the pod's group."""
        del old
        if self._handle is None:
            return False
        snapshot = self._handle.snapshot
        groups = snapshot.objects(PodGroup)
        of_pod, added = groups.get(group_key(pod) or ""), groups.get(group_key(new) or "") if isinstance(new, PodInfo) else new
        if of_pod is None or added is None:
            return False
        root = root_of(of_pod, snapshot)
        return root is not None and root is root_of(added, snapshot)


def _needs_fewer(old: Any, new: Any) -> bool:
    return old.min_count is not None and new.min_count is not None and new.min_count < old.min_count
