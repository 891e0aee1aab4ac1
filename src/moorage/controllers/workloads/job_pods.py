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

__all__ = ["INDEX", "TRACKED", "failures_of", "index_of", "next_indexes", "pod_of_job"]

INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: The finalizer of a pod whose result is not counted yet.
TRACKED: Final = "batch.kubernetes.io/job-tracking"
#: Annotation: the number of earlier failures of the same index, for a backoff limit per index.
_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
#: Maximum length of a generated name before its suffix.
_MAX_BASE: Final = 58
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def index_of(pod: Document) -> int | None:
    """Return the completion index of a pod; None without one."""
    return parse_int64(annotations_of(pod).get(INDEX) or labels_of(pod).get(INDEX, ""))


def failures_of(pod: Document) -> int:
    """Return the number of earlier failures of the same index."""
    return parse_int64(annotations_of(pod).get(_FAILURES, "")) or 0


def next_indexes(job: Document, status: dict[str, Any], busy: Collection[int], number: int) -> list[int]:
    """Return the lowest indexes that neither succeeded nor failed permanently, and are not ``busy``."""
    completions = int(spec_of(job).get("completions") or 0)
    done = parse_indexes(status.get("completedIndexes") or "", completions)
    failed = parse_indexes(status.get("failedIndexes") or "", completions)
    free = done.with_spans(failed.spans).free_below(completions)
    return list(islice((index for index in free if index not in busy), number))


def pod_of_job(job: Document, index: int | None, failures: int = 0) -> Document:
    """Return a new pod of a job, with an index or without; ``failures``: earlier failures of the index."""
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
            pod["spec"][part] = [_with_index_variable(one) for one in pod["spec"][part]]
    return pod


def _with_index_variable(container: dict[str, Any]) -> dict[str, Any]:
    held = container.get("env") or []
    if any(one.get("name") == _VARIABLE for one in held):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*held, {"name": _VARIABLE, "valueFrom": source}]}
