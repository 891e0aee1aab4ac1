"""Expand workloads into pods: the pods that a cluster's controllers would create in addition to the existing ones.

Every controller creates all the pods it lacks, at once. So a stateful set that waits for each pod to be ready has all pods
here, rolling updates are not replayed, and surplus pods are not deleted. Names and hashes are computed from content, so equal
inputs give equal pods. ``moorage.simulator.claim_controller`` creates the claims of the new pods.

New pods follow those of the input: those of daemon sets first, then stateful sets, deployments, replica sets, replication
controllers, jobs and cron jobs, each in input order.

Source  kubernetes, pkg/controller: daemon, statefulset, deployment, replicaset, job, cronjob
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace as with_fields
from itertools import islice

from msgspec.structs import replace

from moorage.api.core import ClaimSource, Pod, PodTemplateSpec, ReplicationController, Volume
from moorage.api.decode import decode
from moorage.api.defaults import default_pod
from moorage.api.documents.object_fields import stable_suffix, stable_uid
from moorage.api.meta import LabelSelector, ObjectMeta, OwnerReference
from moorage.api.storage import PersistentVolumeClaim
from moorage.api.workloads import CronJob, DaemonSet, Deployment, Job, ReplicaSet, StatefulSet
from moorage.basis.printable import some
from moorage.rules.workloads import daemon_set as daemon_nodes
from moorage.rules.workloads.missing_pods import (
    COMPLETION_INDEX,
    POD_TEMPLATE_HASH,
    Indexes,
    completion_index,
    content_hash,
    free_indexes,
    indexed_base,
    is_ours_to_run,
    ordinal_of,
    parse_indexes,
    revision_number,
    stateful_claim_name,
    stateful_labels,
    wanted_active,
)
from moorage.simulator.claim_controller import add_claims
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_kinds import is_over, is_suspended, kind_of, new_pods, title_of
from moorage.simulator.owners import Claimed, compiled, controller_of, deployment_name, is_active, owner_reference
from moorage.simulator.pod_factory import PodFactory, names_of

# Stateful sets: numbered pods, each with its own claims that outlive it.
#
# Source  kubernetes, pkg/controller/statefulset/stateful_set_utils.go


class StatefulPods:
    """Creates the pods that stateful sets lack; ``claims`` collects the claims of their volumes that are not ``known``."""

    def __init__(self, claimed: Claimed[Pod], taken: set[tuple[str, str]], known: Container[str]) -> None:
        self.claims: list[PersistentVolumeClaim] = []
        self._claimed = claimed
        self._taken = taken
        self._known = known

    def missing(self, stateful_set: StatefulSet) -> Iterator[Pod]:
        """Yield a pod for each number without one, lowest first."""
        metadata, spec = stateful_set.metadata, stateful_set.spec
        if metadata.deletion_timestamp is not None:
            return
        title = f"StatefulSet {metadata.namespace}/{metadata.name}"
        owner = owner_reference("apps/v1", "StatefulSet", metadata)
        first = spec.ordinals.start if spec.ordinals else 0
        numbers = range(first, first + _count(spec.replicas))

        def is_ours(pod: Pod) -> bool:
            return ordinal_of(metadata.name, pod.name) in numbers

        held = self._claimed.of("StatefulSet", metadata)
        selector = compiled(spec.selector, title)
        held = [*held, *self._claimed.adopt(owner, metadata.namespace, selector, is_ours)]
        there = {pod.name for pod in held}
        templates = [
            decode(template, PersistentVolumeClaim, f"{title}: spec.volumeClaimTemplates[{index}]")
            for index, template in enumerate(spec.volume_claim_templates)
        ]
        revision = content_hash(spec.template)
        factory = PodFactory(spec.template, metadata.namespace, owner, self._taken)
        for number in numbers:
            name = f"{metadata.name}-{number}"
            claim_names = (stateful_claim_name(one.metadata.name, metadata.name, number) for one in templates)
            if name in there and all(f"{metadata.namespace}/{one}" in self._known for one in claim_names):
                continue
            claims = [_numbered(claim, stateful_set, number) for claim in templates]
            self.claims += claims
            if name in there:
                continue
            pod = factory.named(name, stateful_labels(name, number, revision))
            yield default_pod(_with_claims(pod, templates, claims))


def _count(replicas: int | None) -> int:
    """Return a number of replicas; the default is 1."""
    return 1 if replicas is None else replicas


def _numbered(template: PersistentVolumeClaim, stateful_set: StatefulSet, number: int) -> PersistentVolumeClaim:
    """Return the claim that a pod of the set gets from a template."""
    namespace = stateful_set.metadata.namespace
    name = stateful_claim_name(template.metadata.name, stateful_set.metadata.name, number)
    selector = stateful_set.spec.selector
    labels = {**template.metadata.labels, **(selector.match_labels if selector else {})}
    uid = stable_uid("PersistentVolumeClaim", namespace, name)
    metadata = replace(template.metadata, name=name, namespace=namespace, uid=uid, labels=labels)
    return replace(template, metadata=metadata)


def _with_claims(pod: Pod, templates: list[PersistentVolumeClaim], claims: list[PersistentVolumeClaim]) -> Pod:
    """Return the pod with its claims as volumes, which replace volumes of the same name."""
    if not claims:
        return pod
    volumes = [
        Volume(name=template.metadata.name, persistent_volume_claim=ClaimSource(claim_name=claim.metadata.name))
        for template, claim in zip(templates, claims, strict=True)
    ]
    names = {volume.name for volume in volumes}
    kept = (volume for volume in pod.spec.volumes if volume.name not in names)
    return replace(pod, spec=replace(pod.spec, volumes=(*volumes, *kept)))


# -- jobs --------------------------------------------------------------------------------------------------------------
# Jobs: how many pods a job still starts, and their completion indexes.
#
# Source  kubernetes, pkg/controller/job/job_controller.go, manageJob, and indexed_job_utils.go;
#         pkg/registry/batch/job/strategy.go


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


def expand(cluster: ClusterInput, *, cron_jobs: bool = True) -> ClusterInput:
    """Return the cluster with the pods its workloads lack, and with the objects between workloads and pods.

    ``cron_jobs`` adds the job that each cron job would start next.
    Raises  InputError for a selector or a claim template that cannot be read
    """
    return _Expansion(cluster).run(cron_jobs)


def next_jobs(cluster: ClusterInput) -> Iterator[tuple[CronJob, Job]]:
    """Yield the job that each cron job starts next, of those that may start one."""
    owned = Claimed(cluster.jobs)
    return ((one, job) for one in cluster.cron_jobs for job in _next_job(one, owned))


def _next_job(cron_job: CronJob, owned: Claimed[Job]) -> Iterator[Job]:
    """Yield the job that a cron job starts next, if it may start one.

    A real cluster names the job after the minute it is due; here, without a clock, the schedule decides the name.
    """
    metadata, spec = cron_job.metadata, cron_job.spec
    if spec.suspend or metadata.deletion_timestamp is not None:
        return
    running = [job for job in owned.of("CronJob", metadata) if not is_finished(job)]
    if running and spec.concurrency_policy != "Allow":
        return
    name = f"{metadata.name[:52]}-{stable_suffix(metadata.namespace, metadata.name, spec.schedule)}"
    made = ObjectMeta(
        name=name,
        namespace=metadata.namespace,
        uid=stable_uid("Job", metadata.namespace, name),
        labels=spec.job_template.metadata.labels,
        annotations=spec.job_template.metadata.annotations,
        owner_references=(owner_reference("batch/v1", "CronJob", metadata),),
    )
    yield Job(metadata=made, spec=spec.job_template.spec)


class _Expansion:
    """One pass over the workloads; collects the new pods and the notes for the report."""

    def __init__(self, cluster: ClusterInput) -> None:
        self.cluster = cluster
        self.claimed = Claimed(cluster.pods)
        self.taken = names_of(cluster.pods)
        self.pods: list[Pod] = []
        self.replica_sets = {one.key: one for one in cluster.replica_sets}
        self.jobs = list(cluster.jobs)
        self.notes: list[str] = []
        self._hashes: dict[tuple[str, str], dict[str, int]] | None = None

    def run(self, cron_jobs: bool) -> ClusterInput:
        for daemon_set in self.cluster.daemon_sets:
            self.pods += self._daemon_pods(daemon_set)
        stateful = StatefulPods(self.claimed, self.taken, {claim.key for claim in self.cluster.persistent_volume_claims})
        for stateful_set in self.cluster.stateful_sets:
            self.pods += stateful.missing(stateful_set)
        self._scale_deployments()
        for replica_set in self.replica_sets.values():
            self.pods += self._replicas(replica_set)
        for controller in self.cluster.replication_controllers:
            self.pods += self._controller_replicas(controller)
        if cron_jobs:
            self.jobs += (job for _, job in next_jobs(self.cluster))
        for job in self.jobs:
            self.pods += missing_pods(job, self.claimed, self.taken)
        self._run_job_objects()
        self._note_suspended()
        pods = (*self.claimed.with_owners(self.cluster.pods), *self.pods)
        report = with_fields(self.cluster.report, notes=(*self.cluster.report.notes, *self.notes))
        return add_claims(
            with_fields(
                self.cluster, pods=pods, replica_sets=tuple(self.replica_sets.values()), jobs=tuple(self.jobs), report=report
            ),
            stateful.claims,
        )

    def _run_job_objects(self) -> None:
        """Create the pods of jobs of other kinds, unless their controller has created a part of them already."""
        if not self.cluster.job_objects:
            return
        cluster = self.cluster
        holders = (*cluster.pods, *self.jobs, *cluster.stateful_sets, *cluster.deployments, *cluster.job_objects)
        owners = (controller_of(one.metadata) for one in holders)
        begun = {(one.metadata.namespace, owner.kind, owner.name) for one, owner in zip(holders, owners, strict=True) if owner}
        for obj in cluster.job_objects:
            if not is_suspended(obj) and not is_over(obj) and (obj.namespace, kind_of(obj), obj.name) not in begun:
                self.pods += new_pods(obj, self.taken)

    def _note_suspended(self) -> None:
        """Note the jobs that wait to be resumed: they have no pods."""
        cluster = self.cluster
        waiting = [
            *(f"CronJob {one.key}" for one in cluster.cron_jobs if one.spec.suspend),
            *(f"Job {one.key}" for one in self.jobs if one.spec.suspend and not is_finished(one)),
            *(title_of(one) for one in cluster.job_objects if is_suspended(one) and not is_over(one)),
        ]
        if waiting:
            what = "suspended job starts no pods" if len(waiting) == 1 else "suspended jobs start no pods"
            self.notes.append(f"{len(waiting)} {what}: {some(waiting)}")

    def _lacking(self, owner: OwnerReference, metadata: ObjectMeta, selector: LabelSelector | None, wanted: int) -> int:
        """Return how many pods a controller lacks, after it has adopted pods without a controller."""
        title = f"{owner.kind} {metadata.namespace}/{metadata.name}"
        held = self.claimed.of(owner.kind, metadata)
        adopted = self.claimed.adopt(owner, metadata.namespace, compiled(selector, title), is_active)
        return max(0, wanted - sum(map(is_active, held)) - len(adopted))

    def _daemon_pods(self, daemon_set: DaemonSet) -> Iterator[Pod]:
        metadata = daemon_set.metadata
        if metadata.deletion_timestamp is not None:
            return
        owner = owner_reference("apps/v1", "DaemonSet", metadata)
        selector = compiled(daemon_set.spec.selector, f"DaemonSet {metadata.namespace}/{metadata.name}")
        held = [*self.claimed.of("DaemonSet", metadata), *self.claimed.adopt(owner, metadata.namespace, selector)]
        template = daemon_nodes.pod_template(daemon_set, content_hash(daemon_set.spec.template))
        factory = PodFactory(template, metadata.namespace, owner, self.taken)
        for node in daemon_nodes.nodes_in_need(daemon_set, self.cluster.nodes, held):
            yield daemon_nodes.tied_to(factory.generated(f"{metadata.name}-", node.name), node.name)

    # -- deployments and replica sets -----------------------------------------------------------------------------------

    def _scale_deployments(self) -> None:
        """Scale each deployment's replica sets to its replicas, and create a replica set if there is none."""
        sets = Claimed(self.cluster.replica_sets)
        for deployment in self.cluster.deployments:
            if deployment.metadata.deletion_timestamp is not None:
                continue
            metadata = deployment.metadata
            owner = owner_reference("apps/v1", "Deployment", metadata)
            selector = compiled(deployment.spec.selector, f"Deployment {metadata.namespace}/{metadata.name}")
            own = [*sets.of("Deployment", metadata), *sets.adopt(owner, metadata.namespace, selector)]
            if own:
                self._scale_newest(deployment, [self.replica_sets[one.key] for one in own])
            elif deployment.spec.paused and not self._known_hashes(deployment):
                self.notes.append(f"Deployment {metadata.namespace}/{metadata.name} is paused before its first pod: none made")
            else:
                self._add_replica_set(deployment, owner)
        owned = {one.key: one for one in sets.with_owners(self.cluster.replica_sets)}
        for key, one in owned.items():
            replicas = self.replica_sets[key].spec.replicas
            self.replica_sets[key] = one if replicas == one.spec.replicas else _scaled(one, replicas)

    def _scale_newest(self, deployment: Deployment, own: list[ReplicaSet]) -> None:
        wanted = _count(deployment.spec.replicas)
        short = wanted - sum(_count(one.spec.replicas) for one in own)
        if short <= 0:
            return
        newest = max(own, key=newest_last)
        key = newest.key
        self.replica_sets[key] = _scaled(newest, _count(newest.spec.replicas) + short)

    def _add_replica_set(self, deployment: Deployment, owner: OwnerReference) -> None:
        """Create the replica set of a deployment. If pods of the input name their replica sets, create those."""
        metadata, spec = deployment.metadata, deployment.spec
        marks = self._known_hashes(deployment) or [content_hash(spec.template)]
        shares = [len(self._pods_of_hash(deployment, mark)) for mark in marks]
        shares[-1] += max(0, _count(spec.replicas) - sum(shares))
        for mark, replicas in zip(marks, shares, strict=True):
            name = f"{metadata.name}-{mark}"
            labels = {**spec.template.metadata.labels, POD_TEMPLATE_HASH: mark}
            template = replace(spec.template, metadata=replace(spec.template.metadata, labels=labels))
            self.replica_sets[f"{metadata.namespace}/{name}"] = ReplicaSet(
                metadata=ObjectMeta(
                    name=name,
                    namespace=metadata.namespace,
                    uid=self._uid_of(metadata.namespace, name),
                    labels=labels,
                    owner_references=(owner,),
                ),
                spec=replace(_REPLICA_SET_SPEC, replicas=replicas, selector=_narrowed(spec.selector, mark), template=template),
            )

    def _known_hashes(self, deployment: Deployment) -> list[str]:
        """Return the template hashes of a deployment's pods whose replica sets are not in the input, fewest pods first."""
        if self._hashes is None:
            self._hashes = _hashes_by_deployment(self.cluster)
        found = self._hashes.get((deployment.metadata.namespace, deployment.metadata.name), {})
        return sorted(found, key=lambda mark: (found[mark], mark))

    def _pods_of_hash(self, deployment: Deployment, mark: str) -> list[Pod]:
        name = f"{deployment.metadata.name}-{mark}"
        return [pod for pod in self.claimed.by_owner_name("ReplicaSet", deployment.metadata.namespace, name) if is_active(pod)]

    def _uid_of(self, namespace: str, name: str) -> str:
        """Return the UID that pods have for their replica set, or a new one."""
        for pod in self.claimed.by_owner_name("ReplicaSet", namespace, name):
            owner = controller_of(pod.metadata)
            if owner is not None and owner.uid:
                return owner.uid
        return stable_uid("ReplicaSet", namespace, name)

    def _replicas(self, replica_set: ReplicaSet) -> Iterator[Pod]:
        metadata, spec = replica_set.metadata, replica_set.spec
        if metadata.deletion_timestamp is not None:
            return iter(())
        owner = owner_reference("apps/v1", "ReplicaSet", metadata)
        lacking = self._lacking(owner, metadata, spec.selector, _count(spec.replicas))
        return PodFactory(spec.template, metadata.namespace, owner, self.taken).several(lacking, f"{metadata.name}-")

    def _controller_replicas(self, controller: ReplicationController) -> Iterator[Pod]:
        metadata, spec = controller.metadata, controller.spec
        if metadata.deletion_timestamp is not None:
            return iter(())
        owner = owner_reference("v1", "ReplicationController", metadata)
        selector = LabelSelector(match_labels=spec.selector) if spec.selector else None
        lacking = self._lacking(owner, metadata, selector, _count(spec.replicas))
        template = spec.template or PodTemplateSpec()
        return PodFactory(template, metadata.namespace, owner, self.taken).several(lacking, f"{metadata.name}-")


_REPLICA_SET_SPEC = ReplicaSet().spec


def _hashes_by_deployment(cluster: ClusterInput) -> dict[tuple[str, str], dict[str, int]]:
    """Return, for deployments by namespace and name, the template hashes of active pods and their numbers of pods."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for pod in cluster.pods:
        name = deployment_name(pod)
        if name and is_active(pod):
            counts, mark = found.setdefault((pod.namespace, name), {}), pod.labels[POD_TEMPLATE_HASH]
            counts[mark] = counts.get(mark, 0) + 1
    return found


def _scaled(replica_set: ReplicaSet, replicas: int | None) -> ReplicaSet:
    return replace(replica_set, spec=replace(replica_set.spec, replicas=replicas))


def newest_last(replica_set: ReplicaSet) -> tuple[int, str, str]:
    """Return a sort key for the replica sets of a deployment, newest last: by revision, then by time and name."""
    metadata = replica_set.metadata
    return revision_number(metadata.annotations), metadata.creation_timestamp or "", metadata.name


def _narrowed(selector: LabelSelector | None, mark: str) -> LabelSelector | None:
    if selector is None:
        return None
    return replace(selector, match_labels={**selector.match_labels, POD_TEMPLATE_HASH: mark})
