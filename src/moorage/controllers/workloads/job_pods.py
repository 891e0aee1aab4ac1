"""The pods of a job: what they look like, and which numbers they carry where it counts by number.

Source  kubernetes, pkg/controller/job/indexed_job_utils.go and job_controller.go, manageJob
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any, Final

from moorage.api.integers import parse_int64
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.index_ranges import parse_indexes
from moorage.controllers.machinery.kind_names import JOBS
from moorage.controllers.machinery.object_fields import annotations_of, labels_of, name_of, spec_of
from moorage.controllers.machinery.ownership import pod_of_template

__all__ = ["INDEX", "TRACKED", "failures_of", "index_of", "next_indexes", "pod_of_job"]

INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: The finalizer of a pod whose end has not been counted.
TRACKED: Final = "batch.kubernetes.io/job-tracking"
#: How often pods of the same number failed before this one, where each number has a limit of its own.
_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
#: A generated name has room for this much before its suffix.
_MAX_BASE: Final = 58
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def index_of(pod: Document) -> int | None:
    """Return the number of a pod, None where it has none."""
    return parse_int64(annotations_of(pod).get(INDEX) or labels_of(pod).get(INDEX, ""))


def failures_of(pod: Document) -> int:
    """Return how often pods of the same number failed before this one."""
    return parse_int64(annotations_of(pod).get(_FAILURES, "")) or 0


def next_indexes(job: Document, status: dict[str, Any], busy: Collection[int], number: int) -> list[int]:
    """Return the lowest numbers that have neither succeeded nor failed for good, and that no pod has now."""
    completions = int(spec_of(job).get("completions") or 0)
    done = parse_indexes(status.get("completedIndexes") or "", completions)
    failed = parse_indexes(status.get("failedIndexes") or "", completions)
    free = done.with_spans(failed.spans).free_below(completions)
    return list(islice((index for index in free if index not in busy), number))


def pod_of_job(job: Document, index: int | None, failures: int = 0) -> Document:
    """Return a new pod of a job, with a number or without; ``failures`` are those of the number so far."""
    template = spec_of(job).get("template") or {}
    finalizers = [*((template.get("metadata") or {}).get("finalizers") or ()), TRACKED]
    if index is None:
        return pod_of_template(JOBS, job, template, generateName=f"{name_of(job)}-", finalizers=finalizers)
    ending = f"-{index}-"
    base = name_of(job)[: _MAX_BASE - len(ending)] + ending
    pod = pod_of_template(JOBS, job, template, generateName=base, finalizers=finalizers)
    for part in ("labels", "annotations"):
        pod["metadata"][part] = {**pod["metadata"].get(part, {}), INDEX: str(index)}
    if spec_of(job).get("backoffLimitPerIndex") is not None:
        pod["metadata"]["annotations"][_FAILURES] = str(failures)
    pod["spec"].setdefault("hostname", f"{name_of(job)}-{index}")
    for part in ("initContainers", "containers"):
        if part in pod["spec"]:
            pod["spec"][part] = [_told_its_number(one) for one in pod["spec"][part]]
    return pod


def _told_its_number(container: dict[str, Any]) -> dict[str, Any]:
    held = container.get("env") or []
    if any(one.get("name") == _VARIABLE for one in held):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*held, {"name": _VARIABLE, "valueFrom": source}]}
