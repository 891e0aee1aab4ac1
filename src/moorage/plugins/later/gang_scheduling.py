"""GangScheduling of 1.37: decide while the group is tried whether it can still fit.

Rejects   a group of which fewer than minCount pods can be placed, as soon as too few are left to try; a composite group of
          which fewer than minGroupCount groups can be; at PreEnqueue pods of a tree of which too few groups are complete
Waits     at Permit, as in 1.36, once the group was tried and while its pods go to their nodes one after the other; a pod of a
          tree until enough pods of enough groups are assumed or bound
Wakes on  what wakes it in 1.36, in any group of the tree; the PodGroup's minCount lowered; a CompositePodGroup added
Source    kube-scheduler 1.37, plugins/gangscheduling/gangscheduling.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.errors import AttemptError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import PlacementFeasiblePlugin
from moorage.framework.verdicts import Code, Hold, Status, Wait
from moorage.plugins.gang_scheduling import GROUP_ADDED, PATIENCE_S, POD_ADDED, TOO_FEW, GangScheduling
from moorage.state.group_trees import GroupInfo, entry_key, root_of, tree_of
from moorage.state.pod_groups import group_key
from moorage.state.view import PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word.
CANNOT: Final = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
NO_TREE: Final = "failed to build hierarchy snapshot: {}"
NO_GROUP: Final = "pod group object not found in state for podgroup/{}"
NO_PARENT: Final = "composite pod group object not found in state for compositepodgroup/{}"
CYCLE: Final = "cycle detected in composite pod group hierarchy: compositepodgroup/{}"
NO_QUORUM: Final = 'waiting for composite pod group "{}" tree to meet quorum'
NOT_YET: Final = "minCount ({}) is not yet satisfied: {} scheduled, {} remaining"

#: Levels of a tree, its pods not counted.
MOST_LEVELS: Final = 4

GROUP_CHANGED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE)
TREE_ADDED = ClusterEvent(Resource.COMPOSITE_POD_GROUP, Action.ADD)


class GangSchedulingV137(GangScheduling, PlacementFeasiblePlugin):
    def placement_feasible(self, info: GroupInfo, scheduled: int, remaining: int) -> Status | None:
        needed = 1 if info.tree is None else info.tree.needed
        if remaining + scheduled < needed:
            return Status(Code.UNSCHEDULABLE, self.name, (CANNOT.format(needed, scheduled, remaining),))
        if scheduled < needed:
            return Status(Code.WAIT, self.name, (NOT_YET.format(needed, scheduled, remaining),))
        return None

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        if self._handle is None or not self._knows_trees or pod.spec.scheduling_group is None:
            return super().pre_enqueue(pod)
        snapshot = self._handle.snapshot
        tree = tree_of(pod, snapshot)
        if tree is None:
            return Hold.because(NO_TREE.format(_why_no_tree(pod, snapshot)), unresolvable=True)
        if tree.is_ready(snapshot):
            return None
        why = TOO_FEW if isinstance(tree.group, PodGroup) else NO_QUORUM.format(tree.group.name)
        return Hold.because(why, unresolvable=True)

    def permit(self, state: object, pod: PodInfo, node: str) -> Wait | None:
        if self._handle is None or not self._knows_trees or pod.spec.scheduling_group is None:
            return super().permit(state, pod, node)
        snapshot = self._handle.snapshot
        tree = tree_of(pod, snapshot)
        if tree is None:
            missing = NO_TREE.format(_why_no_tree(pod, snapshot))
            raise AttemptError(self.name, f'running Permit plugin "{self.name}": {missing}')
        if isinstance(tree.group, PodGroup):
            return super().permit(state, pod, node)
        leaves = {leaf.key for leaf in tree.leaves()}
        if not tree.is_ready(snapshot, placed=True):
            for known in tree.pods(snapshot):
                for waiting in list(known.unscheduled)[:1]:
                    self._handle.activate_group(waiting)
            return Wait(PATIENCE_S, (NO_QUORUM.format(tree.group.name),))
        for other in self._handle.waiting():
            if group_key(other.pod) in leaves:
                other.allow(self.name)
        return None

    @property
    def _knows_trees(self) -> bool:
        return self._handle is not None and self._handle.gates.serves("CompositePodGroup")

    def wakes_on(self) -> Iterator[Wake]:
        if self._knows_trees:
            yield Wake(POD_ADDED, when=self._share_a_tree, whom=self._completes_a_group)
            yield Wake(GROUP_ADDED, when=self._share_a_tree)
            yield Wake(TREE_ADDED, when=self._share_a_tree)
            yield Wake(GROUP_CHANGED, when=lambda pod, old, new: _needs_fewer(old, new) and self._share_a_tree(pod, None, new))
        else:
            yield from super().wakes_on()
            own = lambda pod, old, new: _needs_fewer(old, new) and group_key(pod) == new.key  # noqa: E731
            yield Wake(GROUP_CHANGED, when=own, by_shape=True)

    def _share_a_tree(self, pod: PodInfo, old: object, new: Any) -> bool:
        """Return whether a pod or a group that was added belongs to the tree of the pod's group."""
        if self._handle is None:
            return False
        snapshot = self._handle.snapshot
        groups = snapshot.objects(PodGroup)
        of_pod, added = groups.get(group_key(pod) or ""), groups.get(group_key(new) or "") if isinstance(new, PodInfo) else new
        if of_pod is None or added is None:
            return False
        root, other = root_of(of_pod, snapshot), root_of(added, snapshot)
        return root is not None and other is not None and entry_key(root) == entry_key(other)


def _why_no_tree(pod: PodInfo, snapshot: Snapshot) -> str:
    """Return which group above a pod is unknown, or above itself.

    Source  backend/cache/cache.go, BuildHierarchySnapshotFromPod
    """
    key = group_key(pod) or ""
    group = snapshot.objects(PodGroup).get(key)
    above = None if group is None else group.parent_key
    if above is None:
        return NO_GROUP.format(key)
    composites = snapshot.objects(CompositePodGroup)
    for _ in range(MOST_LEVELS - 1):
        known = composites.get(above)
        if known is None or known.parent_key is None:
            return NO_PARENT.format(above)
        above = known.parent_key
    return CYCLE.format(above)


def _needs_fewer(old: Any, new: Any) -> bool:
    return old.min_count is not None and new.min_count is not None and new.min_count < old.min_count
