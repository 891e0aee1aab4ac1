"""PreemptionToleration: preemption that spares pods whose priority class tolerates it, for a time or for good.

Annotations of a PriorityClass say from which priority on its pods may be preempted at once, and for how many seconds after they
were scheduled they are spared by others.

Source  scheduler-plugins 903da7df82cb, pkg/preemptiontoleration
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from moorage.api.custom_objects import CustomObject
from moorage.core.preemption.own_victims import preempt
from moorage.framework import points
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.handle import Handle
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.verdicts import Code
from moorage.plugins.default_preemption import DefaultPreemptionArgs
from moorage.state.view import NodeInfo, PodInfo
from moorage_scheduler_plugins.eligibility import why_not

PRIORITY_CLASSES: Final = "priorityclasses.v1.scheduling.k8s.io"
_PREFIX: Final = "preemption-toleration.scheduling.x-k8s.io/"
LEAST_PRIORITY: Final = f"{_PREFIX}minimum-preemptable-priority"
SECONDS: Final = f"{_PREFIX}toleration-seconds"


class Toleration(NamedTuple):
    """From which priority on pods are preempted at once, and for how many seconds they are spared; for good if negative."""

    least_priority: int
    seconds: int


class PreemptionToleration(points.PostFilterPlugin, points.EnqueueExtensions, points.Attachable):
    name = "PreemptionToleration"
    Args = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def wakes_on(self) -> Iterator[Wake]:
        # It rejects no pod; the kind is named to be watched.
        yield Wake(ClusterEvent(PRIORITY_CLASSES, Action.UPDATE), when=lambda pod, old, new: False)

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
        if text := why_not(pod, attempt):
            return PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {text}",))
        classes = attempt.snapshot.custom(PRIORITY_CLASSES)

        def potential(pod: PodInfo, node: NodeInfo) -> list[PodInfo]:
            lesser = (other for other in node.pods if other.priority < pod.priority)
            return [other for other in lesser if not self._spares(other, pod, classes.get(other.spec.priority_class_name))]

        return preempt(pod, attempt, potential)

    def _spares(self, other: PodInfo, pod: PodInfo, of_other: CustomObject | None) -> bool:
        toleration = None if of_other is None else toleration_of(of_other)
        if toleration is None or pod.priority >= toleration.least_priority:
            return False
        if toleration.seconds < 0:
            return True
        scheduled = next((one for one in other.status.conditions if one.type == "PodScheduled"), None)
        if scheduled is None or scheduled.status != "True":
            return True
        since = scheduled.last_transition_time
        now = 0.0 if self._handle is None else self._handle.unix_s
        return bool(since) and datetime.fromisoformat(str(since)).timestamp() + toleration.seconds > now


def toleration_of(priority_class: CustomObject) -> Toleration | None:
    """Return what a class tolerates; None if an annotation is no number."""
    given = priority_class.metadata.annotations or {}
    try:
        least = int(given.get(LEAST_PRIORITY, int(priority_class.get("value", default=0)) + 1))
        return Toleration(least, int(given.get(SECONDS, 0)))
    except ValueError:
        return None
