"""The pods of a job, and the completion indexes of an indexed job.

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
from moorage.controllers.workloads.missing_pods import COMPLETION_INDEX, completion_index, free_indexes, indexed_base

__all__ = ["TRACKED", "failures_of", "index_of", "next_indexes", "pod_of_job"]

#: The finalizer of a pod whose result is not counted yet.
TRACKED: Final = "batch.kubernetes.io/job-tracking"
#: Annotation: the number of earlier failures of the same index, for a backoff limit per index.
_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def index_of(pod: Document) -> int | None:
    """Return the completion index of a pod; None without one."""
    return completion_index(annotations_of(pod), labels_of(pod))


def failures_of(pod: Document) -> int:
    """Return the number of earlier failures of the same index."""
    return parse_int64(annotations_of(pod).get(_FAILURES, "")) or 0


def next_indexes(job: Document, status: dict[str, Any], busy: Collection[int], number: int) -> list[int]:
    """Return the lowest indexes that neither succeeded nor failed permanently, and are not ``busy``."""
    completions = int(spec_of(job).get("completions") or 0)
    done = parse_indexes(status.get("completedIndexes") or "", completions)
    return list(islice(free_indexes(completions, done, status.get("failedIndexes") or "", busy), number))


def pod_of_job(job: Document, index: int | None, failures: int = 0) -> Document:
    """Return a new pod of a job, with an index or without; ``failures``: earlier failures of the index."""
    template = spec_of(job).get("template") or {}
    finalizers = [*((template.get("metadata") or {}).get("finalizers") or ()), TRACKED]
    if index is None:
        return pod_of_template(JOBS, job, template, generateName=f"{name_of(job)}-", finalizers=finalizers)
    pod = pod_of_template(JOBS, job, template, generateName=indexed_base(name_of(job), index), finalizers=finalizers)
    for part in ("labels", "annotations"):
        pod["metadata"][part] = {**pod["metadata"].get(part, {}), COMPLETION_INDEX: str(index)}
    if spec_of(job).get("backoffLimitPerIndex") is not None:
        pod["metadata"]["annotations"][_FAILURES] = str(failures)
    pod["spec"].setdefault("hostname", f"{name_of(job)}-{index}")
    for part in ("initContainers", "containers"):
        if part in pod["spec"]:
            pod["spec"][part] = [_with_index_variable(one) for one in pod["spec"][part]]
    return pod


def _with_index_variable(container: dict[str, Any]) -> dict[str, Any]:
    held = container.get("env") or []
    if any(one.get("name") == _VARIABLE for one in held):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*held, {"name": _VARIABLE, "valueFrom": source}]}
