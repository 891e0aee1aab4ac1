"""What gates add to pod groups: groups of Jobs, and claims that a group requests.

With the gate WorkloadWithJob the Job controller makes a group for a Job since 1.37.

A Job without a controller gets a group by its ``spec.scheduling``: a gang, or a basic group if that names no policy. A Job
that has started without one gets none, nor does one whose pod template names a group, or whose owner (a CronJob, a JobSet)
decides.

Source  kubernetes 1.37, pkg/controller/job/job_scheduling_manager.go
"""

from __future__ import annotations

from dataclasses import replace as with_fields

from msgspec.structs import replace

from moorage.api.core import ObjectMeta, Pod, PodSchedulingGroup
from moorage.api.decode import decode
from moorage.api.documents.object_fields import stable_uid
from moorage.api.pod_groups import PodGroup
from moorage.api.workloads import Job
from moorage.rules.workloads.job import group_name, group_template, workload_name
from moorage.rules.workloads.missing_pods import is_ours_to_run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import Claimed, controller_of, owner_reference
from moorage.simulator.pod_creation import CreatedPods, create_pods
from moorage.simulator.simulate import Options, load_options


def create_for(given: ClusterInput, options: Options) -> CreatedPods:
    """Return a cluster with the pods that its controllers and its users create under these options.

    Raises  ConfigError, InputError
    """
    asked = any(group.spec.resource_claims for group in given.pod_groups)
    if asked and not load_options(options).gates["DRAWorkloadResourceClaims"]:
        given = with_fields(given, pod_groups=tuple(map(_without_claims, given.pod_groups)))
    if given.jobs and options.feature_gates:
        gates = load_options(options).gates
        if gates.emulated.groups_as_one and gates["WorkloadWithJob"]:
            given = _in_groups(given)
    return create_pods(given, quota=options.quota)


def _without_claims(group: PodGroup) -> PodGroup:
    return replace(group, spec=replace(group.spec, resource_claims=()))


def _in_groups(given: ClusterInput) -> ClusterInput:
    """Return the cluster with the groups of its Jobs, which their pod templates name."""
    pods, groups = Claimed(given.pods), Claimed(given.pod_groups)
    made: list[PodGroup] = []
    jobs: list[Job] = []
    for job in given.jobs:
        if _is_root(job):
            own = groups.of("Job", job.metadata)
            if not own and not _has_begun(job, pods):
                own = [_group(job)]
                made += own
            if len(own) == 1:
                job = _referring(job, own[0].metadata.name)  # noqa: PLW2901
        jobs.append(job)
    return with_fields(given, jobs=tuple(jobs), pod_groups=(*given.pod_groups, *made))


def _is_root(job: Job) -> bool:
    """Return True for a job whose controller makes a group."""
    spec = job.spec
    named = spec.template.spec.scheduling_group
    return named is None and controller_of(job.metadata) is None and is_ours_to_run(spec.managed_by)


def _has_begun(job: Job, pods: Claimed[Pod]) -> bool:
    status = job.status
    known = any(one.type == "Suspended" for one in status.conditions)
    return known or bool(status.active or status.succeeded or status.failed or pods.of("Job", job.metadata))


def _group(job: Job) -> PodGroup:
    metadata = job.metadata
    workload, template = workload_name(metadata.name, metadata.uid), f"{metadata.name}-pgt-0"
    spec = {
        **group_template(job.spec.scheduling or {}, job.spec.parallelism, job.spec.template.spec.priority_class_name),
        "workloadRef": {"workloadName": workload, "templateName": template},
    }
    title = f"Job {metadata.namespace}/{metadata.name}: spec.scheduling"
    made: PodGroup = decode({"metadata": {}, "spec": spec}, PodGroup, title)
    name = group_name(workload, template)
    owners = (owner_reference("batch/v1", "Job", metadata),)
    return replace(
        made,
        metadata=ObjectMeta(
            name=name,
            namespace=metadata.namespace,
            uid=stable_uid("PodGroup", metadata.namespace, name),
            owner_references=owners,
        ),
    )


def _referring(job: Job, group: str) -> Job:
    template = job.spec.template
    spec = replace(template.spec, scheduling_group=PodSchedulingGroup(pod_group_name=group))
    return replace(job, spec=replace(job.spec, template=replace(template, spec=spec)))
