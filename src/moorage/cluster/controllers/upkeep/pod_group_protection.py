"""Keep a deleted pod group until the last of its pods has ended or is deleted.

Admission adds a finalizer to every new group; this controller removes it.

Source  kubernetes, pkg/controller/scheduling/podgroupprotection/podgroup_protection_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.rules.admission.admission_plugins import GROUP_PROTECTION
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Step, Update


class PodGroupProtection:
    name = "pod-group-protection-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.POD_GROUPS and event.new is not None:
            yield k8s.key_of(event.new)
        elif event.kind is k8s.PODS and (event.new is None or k8s.phase_of(event.new) in ENDED_PHASES):
            yield from _group_of(event.latest)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        group = world.find(k8s.POD_GROUPS, key)
        if group is None or not k8s.is_ending(group):
            return
        held = group["metadata"].get("finalizers") or []
        if GROUP_PROTECTION in held and not _is_in_use(key, world):
            yield Update(k8s.POD_GROUPS, k8s.revised(group, finalizers=[one for one in held if one != GROUP_PROTECTION]))


def _group_of(pod: Document) -> Iterator[str]:
    name = (k8s.spec_of(pod).get("schedulingGroup") or {}).get("podGroupName")
    if name:
        yield f"{k8s.namespace_of(pod)}/{name}"


def _is_in_use(key: str, world: ObjectIndex) -> bool:
    pods = world.all(k8s.PODS, key.partition("/")[0])
    return any(key in _group_of(pod) for pod in pods if k8s.phase_of(pod) not in ENDED_PHASES)
