"""Keep a deleted pod group until the last of its pods has ended or is deleted.

Admission adds a finalizer to every new group; this controller removes it.

Source  kubernetes, pkg/controller/scheduling/podgroupprotection/podgroup_protection_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.api.core import ENDED_PHASES
from moorage.apiserver.admission.admission_plugins import GROUP_PROTECTION
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.kind_names import POD_GROUPS, PODS
from moorage.controllers.machinery.object_fields import is_ending, key_of, namespace_of, phase_of, revised, spec_of
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.steps import Step, Update

__all__ = ["PodGroupProtection"]


class PodGroupProtection:
    name = "pod-group-protection-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is POD_GROUPS and event.new is not None:
            yield key_of(event.new)
        elif event.kind is PODS and (event.new is None or phase_of(event.new) in ENDED_PHASES):
            yield from _group_of(event.latest)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        group = world.find(POD_GROUPS, key)
        if group is None or not is_ending(group):
            return
        held = group["metadata"].get("finalizers") or []
        if GROUP_PROTECTION in held and not _is_in_use(key, world):
            yield Update(POD_GROUPS, revised(group, finalizers=[one for one in held if one != GROUP_PROTECTION]))


def _group_of(pod: Document) -> Iterator[str]:
    name = (spec_of(pod).get("schedulingGroup") or {}).get("podGroupName")
    if name:
        yield f"{namespace_of(pod)}/{name}"


def _is_in_use(key: str, world: ObjectIndex) -> bool:
    pods = world.all(PODS, key.partition("/")[0])
    return any(key in _group_of(pod) for pod in pods if phase_of(pod) not in ENDED_PHASES)
