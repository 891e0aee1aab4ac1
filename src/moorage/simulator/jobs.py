"""Jobs: how many pods a job still starts, and their completion indexes.

Source  kubernetes, pkg/controller/job/job_controller.go, manageJob, and indexed_job_utils.go;
        pkg/registry/batch/job/strategy.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod, PodTemplateSpec
from moorage.api.integers import parse_int64
from moorage.api.meta import LabelSelector
from moorage.api.workloads import Job
from moorage.controllers.machinery.index_ranges import Indexes, parse_indexes
from moorage.simulator.owners import Claimed, compiled, is_active, owner_reference
from moorage.simulator.templates import PodFactory

__all__ = ["is_finished", "missing_pods"]

_BUILTIN_CONTROLLER: Final = "kubernetes.io/job-controller"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: The maximum length of a generated name before its suffix.
_MAX_BASE: Final = 58


def is_finished(job: Job) -> bool:
    """Return True for a job that is complete or has failed."""
    return any(one.type in {"Complete", "Failed"} and one.status == "True" for one in job.status.conditions)


def missing_pods(job: Job, claimed: Claimed[Pod], taken: set[tuple[str, str]]) -> Iterator[Pod]:
    """Yield the pods that a job would start now: up to its parallelism and its remaining completions."""
    metadata, spec = job.metadata, job.spec
    if (
        spec.suspend
        or metadata.deletion_timestamp is not None
        or is_finished(job)
        or (spec.managed_by or _BUILTIN_CONTROLLER) != _BUILTIN_CONTROLLER
    ):
        return
    job = _selecting(job)
    owner = owner_reference("batch/v1", "Job", metadata)
    selector = compiled(job.spec.selector, f"Job {metadata.namespace}/{metadata.name}")
    held = [*claimed.of("Job", metadata), *claimed.adopt(owner, metadata.namespace, selector)]
    active = [pod for pod in held if is_active(pod)]
    lacking = max(0, _wanted(job, held, len(active)) - len(active))
    factory = PodFactory(job.spec.template, metadata.namespace, owner, taken)
    if spec.completion_mode != "Indexed":
        yield from factory.several(lacking, f"{metadata.name}-")
        return
    for index in islice(_free_indexes(job, held), lacking):
        yield _with_index(factory, metadata.name, index)


def _parallelism(job: Job) -> int:
    return 1 if job.spec.parallelism is None else job.spec.parallelism


def _completions(job: Job) -> int | None:
    """Return how many pods must succeed; None for a job that ends with its first success."""
    spec = job.spec
    return 1 if spec.completions is None and spec.parallelism is None else spec.completions


def _wanted(job: Job, held: Iterable[Pod], active: int) -> int:
    """Return how many pods should be active."""
    completions, parallelism = _completions(job), _parallelism(job)
    if job.spec.completion_mode == "Indexed":
        succeeded = len(_succeeded(job, held))
    else:
        succeeded = max(job.status.succeeded, sum(pod.status.phase == "Succeeded" for pod in held))
    if completions is None:
        return active if succeeded else parallelism
    return max(0, min(completions - succeeded, parallelism))


def _succeeded(job: Job, held: Iterable[Pod]) -> Indexes:
    done = (index for pod in held if pod.status.phase == "Succeeded" and (index := _index_of(pod)) is not None)
    return parse_indexes(job.status.completed_indexes, _completions(job) or 0).with_numbers(done)


def _free_indexes(job: Job, held: Iterable[Pod]) -> Iterator[int]:
    completions = _completions(job) or 0
    running = {_index_of(pod) for pod in held if is_active(pod)}
    succeeded, failed = _succeeded(job, held), parse_indexes(job.status.failed_indexes, completions)
    free = succeeded.with_spans(failed.spans).free_below(completions)
    return (index for index in free if index not in running)


def _index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(_INDEX, pod.labels.get(_INDEX, ""))
    return parse_int64(text)


def _selecting(job: Job) -> Job:
    """Return the job with the selector and the labels that the API server adds to a new job."""
    if job.spec.manual_selector or job.spec.selector is not None:
        return job
    marks = {"batch.kubernetes.io/controller-uid": job.metadata.uid, "batch.kubernetes.io/job-name": job.metadata.name}
    legacy = {"controller-uid": job.metadata.uid, "job-name": job.metadata.name}
    template = job.spec.template
    labels = {**template.metadata.labels, **marks, **legacy}
    selector = LabelSelector(match_labels={"batch.kubernetes.io/controller-uid": job.metadata.uid})
    made = PodTemplateSpec(metadata=replace(template.metadata, labels=labels), spec=template.spec)
    return replace(job, spec=replace(job.spec, selector=selector, template=made))


def _with_index(factory: PodFactory, job_name: str, index: int) -> Pod:
    ending = f"-{index}-"
    base = f"{job_name}{ending}"
    if len(base) > _MAX_BASE:
        base = job_name[: _MAX_BASE - len(ending)] + ending
    pod = factory.generated(base, str(index), labels={_INDEX: str(index)})
    return replace(pod, metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, _INDEX: str(index)}))
