"""Edits of workloads: ``deployment/web replicas=5``, ``statefulset/shop/db cpu=500m``.

A field of the pod template is edited like the field of a pod. All pods of the workload are then created again, as after its
rollout, even where a real cluster would keep old pods.
"""

from __future__ import annotations

import re
from dataclasses import replace as with_fields
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Pod, PodSpec, PodTemplateSpec
from moorage.api.meta import ObjectMeta
from moorage.api.workloads import CronJob
from moorage.errors import InputError
from moorage.laboratory.asked import WORKLOAD_KINDS
from moorage.laboratory.changes import apply_all
from moorage.laboratory.edits import parse_field
from moorage.laboratory.replaced_objects import rolled_out
from moorage.laboratory.scaling import Scaled, found_workload, parse_scaled, scale, without_jobs
from moorage.printable import one_line
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import controller_of

__all__ = ["WorkloadEdit", "edit_workload", "is_workload_edit", "parse_workload_edit"]

_HEAD: Final = re.compile(r"\s*([A-Za-z]+)/([^\s=]+)\s+(\S.*?)\s*", re.DOTALL)
_SLOTS: Final = {
    "Deployment": "deployments",
    "ReplicaSet": "replica_sets",
    "StatefulSet": "stateful_sets",
    "DaemonSet": "daemon_sets",
    "Job": "jobs",
    "CronJob": "cron_jobs",
    "ReplicationController": "replication_controllers",
}
#: Fields of a pod that its template does not have, or that admission sets.
_OF_PODS_ONLY: Final = frozenset({"nodeName", "priority", "evict"})
#: Fields of the template's spec that are set as they are.
_PLAIN: Final = {"priorityClassName": "priority_class_name", "runtimeClassName": "runtime_class_name"}
_INSTEAD: Final = {"priority": "; set priorityClassName"}
_SELECTOR: Final = re.compile(r"nodeSelector\.([^=]+)=(.*)")


class WorkloadEdit(Struct, frozen=True):
    """A workload and one field to set. An empty ``namespace`` stands for any."""

    kind: str
    namespace: str
    name: str
    field: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.lower()}/{where}{self.name} {self.field}"


def is_workload_edit(text: str) -> bool:
    """Return True for text that begins like an edit of a workload."""
    found = _HEAD.fullmatch(text)
    return found is not None and "\n" not in text and found[1].lower() in WORKLOAD_KINDS


def parse_workload_edit(text: str) -> WorkloadEdit:
    """Read an edit, and check its field.

    Raises  InputError
    """
    found = _HEAD.fullmatch(text)
    kind = WORKLOAD_KINDS.get(found[1].lower(), "") if found else ""
    names = found[2].split("/") if found else []
    if found is None or not kind or len(names) not in {1, 2} or not all(names):
        raise InputError(one_line(f"edit {text!r}: write 'KIND/NAME FIELD=VALUE', such as 'deployment/web replicas=5'"))
    edit = WorkloadEdit(kind, names[0] if len(names) == 2 else "", names[-1], found[3])
    if (asked := _scaled(edit)) is None:
        _edited(PodTemplateSpec(spec=PodSpec()), edit, check_only=True)
    else:
        parse_scaled(str(asked))
    return edit


def edit_workload(cluster: ClusterInput, edit: WorkloadEdit) -> ClusterInput:
    """Return the cluster with a workload changed, and without the pods of its earlier template.

    Raises  InputError
    """
    asked = _scaled(edit)
    if asked is not None:
        return scale(cluster, asked)
    found = found_workload(getattr(cluster, _SLOTS[edit.kind]), edit.kind, edit.namespace, edit.name, str(edit))
    owner = controller_of(found.metadata)
    if owner is not None and owner.kind in _SLOTS:
        raise InputError(one_line(f"{edit}: {owner.kind} {owner.name} decides on its pods; edit that"))
    changed = _with_template(found, _edited(_template(found), edit))
    fields: dict[str, Any] = {
        _SLOTS[edit.kind]: tuple(changed if one is found else one for one in getattr(cluster, _SLOTS[edit.kind]))
    }
    kept = without_jobs(cluster, found) if isinstance(found, CronJob) else rolled_out(cluster, found)
    return with_fields(kept, **fields)


def _scaled(edit: WorkloadEdit) -> Scaled | None:
    field, _, number = edit.field.partition("=")
    if field not in {"replicas", "parallelism"} or (field == "parallelism") != (edit.kind in {"Job", "CronJob"}):
        return None
    return parse_scaled(f"{edit.kind}/{edit.namespace + '/' if edit.namespace else ''}{edit.name}={number}")


def _template(found: Any) -> PodTemplateSpec:
    template: PodTemplateSpec = found.spec.job_template.spec.template if isinstance(found, CronJob) else found.spec.template
    return template


def _with_template(found: Any, template: PodTemplateSpec) -> Any:
    if not isinstance(found, CronJob):
        return replace(found, spec=replace(found.spec, template=template))
    job = found.spec.job_template
    return replace(found, spec=replace(found.spec, job_template=replace(job, spec=replace(job.spec, template=template))))


def _edited(template: PodTemplateSpec, edit: WorkloadEdit, *, check_only: bool = False) -> PodTemplateSpec:
    field, equals, value = edit.field.partition("=")
    if equals and field in _PLAIN:
        return replace(template, spec=replace(template.spec, **{_PLAIN[field]: value}))
    selected = _SELECTOR.fullmatch(edit.field)
    if selected:
        more = {**template.spec.node_selector, selected[1]: selected[2]}
        return replace(template, spec=replace(template.spec, node_selector=more))
    if field in _OF_PODS_ONLY:
        raise InputError(one_line(f"edit '{edit}': {field} is of a pod, not of a template{_INSTEAD.get(field, '')}"))
    target = f"pod/{edit.namespace or 'default'}/{edit.name}"
    change = parse_field("pod", target, edit.field, str(edit), also=("replicas=VALUE", *(f"{one}=VALUE" for one in _PLAIN)))
    if check_only:
        return template
    pod = Pod(metadata=ObjectMeta(name=edit.name, namespace=edit.namespace or "default"), spec=template.spec)
    (changed,) = apply_all([pod], [change])
    assert isinstance(changed, Pod)
    return replace(template, spec=changed.spec)
