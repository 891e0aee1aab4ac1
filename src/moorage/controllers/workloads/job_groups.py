"""Gang scheduling of jobs: a workload and a pod group for each eligible job, which its pods refer to.

A job is eligible if it must be a gang: indexed, with as many parallel pods as completions. A job that has already started
without a group gets none, nor does one whose workload another client created.

Source  kubernetes, pkg/controller/job/job_scheduling_manager.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.generated_names import SAFE_ALPHABET
from moorage.controllers.machinery.kind_names import JOBS, POD_GROUPS, WORKLOADS
from moorage.controllers.machinery.object_fields import (
    condition_of,
    controller_of,
    copied,
    name_of,
    namespace_of,
    reference_to,
    spec_of,
    status_of,
    uid_of,
)
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.steps import Create, EventStep, Step

__all__ = ["JobGrouping", "group_for", "keys_of_groups"]

_MAX_NAME: Final = 253


class JobGrouping(NamedTuple):
    """The pod group of a job, if any. If there are ``steps``, they are executed first and the job is reconciled again."""

    group: str = ""
    steps: tuple[Step, ...] = ()


def keys_of_groups(event: ObjectChange) -> Iterator[str]:
    """Yield the keys of jobs that own the workload or pod group of an event."""
    if event.kind is WORKLOADS or event.kind is POD_GROUPS:
        owner = controller_of(event.latest)
        if owner is not None and owner["kind"] == "Job":
            yield f"{namespace_of(event.latest)}/{owner['name']}"


def group_for(job: Document, pods: list[Document], world: ObjectIndex) -> JobGrouping:
    """Return the pod group for a job's new pods, or the steps that create it."""
    if not _is_gang(spec_of(job)):
        return JobGrouping()
    workloads = [one for one in world.all(WORKLOADS, namespace_of(job)) if _is_about(one, job)]
    if not workloads:
        return JobGrouping(steps=tuple(_make_workload(job))) if _is_new(job, pods) else JobGrouping()
    if len(workloads) > 1 or not _is_owned(workloads[0], job) or len(spec_of(workloads[0])["podGroupTemplates"]) != 1:
        return JobGrouping()
    groups = [one for one in world.all(POD_GROUPS, namespace_of(job)) if _origin(one) == name_of(workloads[0])]
    if not groups:
        return JobGrouping(steps=(_make_group(job, workloads[0]),))
    return JobGrouping(name_of(groups[0])) if len(groups) == 1 and _is_owned(groups[0], job) else JobGrouping()


def _is_gang(spec: Document) -> bool:
    number = spec.get("parallelism") or 0
    return (
        number > 1
        and spec.get("completionMode") == "Indexed"
        and spec.get("completions") == number
        and (spec["template"].get("spec") or {}).get("schedulingGroup") is None
    )


def _is_new(job: Document, pods: list[Document]) -> bool:
    """Return True for a job that has not started yet."""
    status = status_of(job)
    has_begun = pods or any(status.get(name) for name in ("startTime", "succeeded", "failed"))
    return not has_begun and condition_of(job, "Suspended") is None


def _is_about(workload: Document, job: Document) -> bool:
    ref = spec_of(workload).get("controllerRef") or {}
    return (ref.get("apiGroup"), ref.get("kind"), ref.get("name")) == ("batch", "Job", name_of(job))


def _is_owned(one: Document, job: Document) -> bool:
    owner = controller_of(one)
    return owner is not None and owner["uid"] == uid_of(job)


def _origin(group: Document) -> str:
    found: str = ((spec_of(group).get("podGroupTemplateRef") or {}).get("workload") or {}).get("workloadName", "")
    return found


# -- creating them ------------------------------------------------------------------------------------------------------


def _make_workload(job: Document) -> Iterable[Step]:
    name = _workload_name(job)
    template = {
        "name": f"{name_of(job)}-pgt-0",
        "schedulingPolicy": {"gang": {"minCount": spec_of(job)["parallelism"]}},
    }
    metadata = {"name": name, "namespace": namespace_of(job), "ownerReferences": [reference_to(JOBS, job)]}
    spec = {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": name_of(job)},
        "podGroupTemplates": [template],
    }
    yield Create(WORKLOADS, _document(WORKLOADS.api_version, "Workload", metadata, spec))
    yield EventStep(JOBS, job, "Normal", "WorkloadCreated", f"Created Workload {name} for Job {name_of(job)}")


def _make_group(job: Document, workload: Document) -> Step:
    template = spec_of(workload)["podGroupTemplates"][0]
    origin = {
        "apiVersion": WORKLOADS.api_version, "kind": "Workload", "name": name_of(workload), "uid": uid_of(workload),
    }  # fmt: skip
    metadata = {
        "name": _group_name(name_of(workload), template["name"]),
        "namespace": namespace_of(job),
        "ownerReferences": [reference_to(JOBS, job), origin],
    }
    named = {"workloadName": name_of(workload), "podGroupTemplateName": template["name"]}
    spec = {"podGroupTemplateRef": {"workload": named}, "schedulingPolicy": copied(template["schedulingPolicy"])}
    return Create(POD_GROUPS, _document(POD_GROUPS.api_version, "PodGroup", metadata, spec))


def _document(api_version: str, kind: str, metadata: Document, spec: Document) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


# -- names: deterministic, as upstream's --------------------------------------------------------------------------------


def _workload_name(job: Document) -> str:
    mark = _mark(f"(types.UID){uid_of(job)}")
    return f"{name_of(job)[: _MAX_NAME - len(mark) - 1]}-{mark}"


def _group_name(workload: str, template: str) -> str:
    mark = _mark(workload + template)
    room = _MAX_NAME - len(mark) - 2
    half = room // 2
    if len(workload) + len(template) > room:
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{mark}"


def _mark(text: str) -> str:
    """Return the 32-bit FNV-1a hash of a text, in an alphabet that forms no words."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(SAFE_ALPHABET[ord(digit) % len(SAFE_ALPHABET)] for digit in str(value))
