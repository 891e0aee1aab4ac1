"""GangScheduling: schedule the pods of a gang together, at least ``minCount`` of them or none.

Reads     spec.schedulingGroup; the PodGroup's schedulingPolicy.gang; the numbers of pods in the group and of scheduled ones
Rejects   a pod at PreEnqueue until its PodGroup and minCount pods of the group exist
Waits     at Permit, up to five minutes, until minCount pods of the group are assumed or bound; then allows all of them
Wakes on  a pod of the same group added; the PodGroup added
Source    kube-scheduler 1.36, plugins/gangscheduling/gangscheduling.go

The feature gate GangScheduling enables the plugin. It ignores groups whose policy is ``basic``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.api.pod_groups import PodGroup
from moorage.errors import AttemptError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Attachable, EnqueueExtensions, PermitPlugin, PreEnqueuePlugin
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Hold, Wait
from moorage.state.pod_groups import group_key, same_group
from moorage.state.pod_info import PodInfo

# kube-scheduler's own texts, kept word for word: people search for them.
NO_GROUP: Final = 'waiting for pods\'s pod group "{}" to appear in scheduling queue'
TOO_FEW: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
NOT_YET: Final = "waiting for minCount pods from a gang to be scheduled"

PATIENCE_S: Final = 5 * 60.0

POD_ADDED = ClusterEvent(Resource.POD, Action.ADD)
GROUP_ADDED = ClusterEvent(Resource.POD_GROUP, Action.ADD)


class GangScheduling(PreEnqueuePlugin, PermitPlugin[object], EnqueueExtensions, Attachable):
    name = "GangScheduling"

    def __init__(self) -> None:
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        if (key := group_key(pod)) is None or self._handle is None:
            return None
        snapshot = self._handle.snapshot
        group, group_state = snapshot.objects(PodGroup).get(key), snapshot.group(key)
        if group is None:
            return Hold.because(NO_GROUP.format(key.partition("/")[2]), unresolvable=True)
        if group.min_count is not None and (group_state is None or len(group_state) < group.min_count):
            return Hold.because(TOO_FEW, unresolvable=True)
        return None

    def permit(self, state: object, pod: PodInfo, node: str) -> Wait | None:
        if (key := group_key(pod)) is None or self._handle is None:
            return None
        snapshot = self._handle.snapshot
        group = snapshot.objects(PodGroup).get(key)
        if group is None:
            missing = f'podgroup.scheduling.k8s.io "{key.partition("/")[2]}" not found'
            raise AttemptError(self.name, f'running Permit plugin "{self.name}": failed to get podGroup {key}: {missing}')
        needed = group.min_count
        if needed is None:
            return None
        group_state = snapshot.group(key)
        if group_state is None or group_state.scheduled_count < needed:
            self._handle.activate_group(pod)
            return Wait(PATIENCE_S, (NOT_YET,))
        for other in self._handle.waiting():
            if same_group(other.pod, pod):
                other.allow(self.name)
        return None

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(POD_ADDED, when=_is_of_same_group, by_shape=True, whom=self._completes_a_group)
        yield Wake(GROUP_ADDED, when=_is_group_of, by_shape=True)

    def _completes_a_group(self, old: object, new: object) -> bool:
        """Return whether an added pod belongs to a group whose pods pass PreEnqueue now.

        Waking the group's pods earlier would be correct but useless: PreEnqueue would reject each of them again.
        """
        return isinstance(new, PodInfo) and new.spec.scheduling_group is not None and self.pre_enqueue(new) is None


def _is_of_same_group(pod: PodInfo, old: object, new: Any) -> bool:
    return isinstance(new, PodInfo) and same_group(pod, new)


def _is_group_of(pod: PodInfo, old: object, new: Any) -> bool:
    return isinstance(new, PodGroup) and group_key(pod) == new.key
