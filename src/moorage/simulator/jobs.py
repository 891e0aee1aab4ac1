"""Jobs: how many pods a job still starts, and their completion indexes.

Source  kubernetes, pkg/controller/job/job_controller.go, manageJob, and indexed_job_utils.go;
        pkg/registry/batch/job/strategy.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from moorage.api.core import Pod, PodTemplateSpec
from moorage.api.meta import LabelSelector
from moorage.api.workloads import Job
from moorage.controllers.machinery.index_ranges import Indexes, parse_indexes
from moorage.controllers.workloads.missing_pods import (
    COMPLETION_INDEX,
    completion_index,
    free_indexes,
    indexed_base,
    is_ours_to_run,
    wanted_active,
)
from moorage.simulator.owners import Claimed, compiled, is_active, owner_reference
from moorage.simulator.templates import PodFactory

__all__ = ["is_finished", "missing_pods"]


def is_finished(job: Job) -> bool:
    """Return True for a job that is complete or has failed."""
    return any(one.type in {"Complete", "Failed"} and one.status == "True" for one in job.status.conditions)


def missing_pods(job: Job, claimed: Claimed[Pod], taken: set[tuple[str, str]]) -> Iterator[Pod]:
    """Yield the pods that a job would start now: up to its parallelism and its remaining completions."""
    metadata, spec = job.metadata, job.spec
    if spec.suspend or metadata.deletion_timestamp is not None or is_finished(job) or not is_ours_to_run(spec.managed_by):
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
    """Return how many pods must succeed; None for a job without a fixed number, which ends with its first success."""
    spec = job.spec
    return 1 if spec.completions is None and spec.parallelism is None else spec.completions


def _wanted(job: Job, held: Iterable[Pod], active: int) -> int:
    """Return how many pods should be active."""
    completions = _completions(job)
    if job.spec.completion_mode == "Indexed":
        succeeded = len(_succeeded(job, held))
    else:
        succeeded = max(job.status.succeeded, sum(pod.status.phase == "Succeeded" for pod in held))
    lost = len(parse_indexes(job.status.failed_indexes, completions or 0))
    return wanted_active(_parallelism(job), completions, succeeded=succeeded, failed_indexes=lost, active=active)


def _succeeded(job: Job, held: Iterable[Pod]) -> Indexes:
    done = (index for pod in held if pod.status.phase == "Succeeded" and (index := _index_of(pod)) is not None)
    return parse_indexes(job.status.completed_indexes, _completions(job) or 0).with_numbers(done)


def _free_indexes(job: Job, held: Iterable[Pod]) -> Iterator[int]:
    completions = _completions(job) or 0
    running = {_index_of(pod) for pod in held if is_active(pod)}
    return free_indexes(completions, _succeeded(job, held), job.status.failed_indexes, running)


def _index_of(pod: Pod) -> int | None:
    return completion_index(pod.metadata.annotations, pod.labels)


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
    pod = factory.generated(indexed_base(job_name, index), str(index), labels={COMPLETION_INDEX: str(index)})
    annotations = {**pod.metadata.annotations, COMPLETION_INDEX: str(index)}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
