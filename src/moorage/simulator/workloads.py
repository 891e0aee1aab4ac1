"""Expand workloads into pods: the pods that a cluster's controllers would create in addition to the existing ones.

Every controller creates all the pods it lacks, at once. So a stateful set that waits for each pod to be ready has all pods
here, rolling updates are not replayed, and surplus pods are not deleted. Names and hashes are computed from content, so equal
inputs give equal pods. ``moorage.simulator.template_claims`` creates the claims of the new pods.

New pods follow those of the input: those of daemon sets first, then stateful sets, deployments, replica sets, replication
controllers, jobs and cron jobs, each in input order.

Source  kubernetes, pkg/controller: daemon, statefulset, deployment, replicaset, job, cronjob
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields

from msgspec.structs import replace

from moorage.api.core import Pod, PodTemplateSpec, ReplicationController
from moorage.api.meta import LabelSelector, ObjectMeta, OwnerReference
from moorage.api.workloads import CronJob, DaemonSet, Deployment, Job, ReplicaSet
from moorage.controllers.machinery.object_fields import stable_suffix, stable_uid
from moorage.controllers.workloads import daemon_set as daemon_nodes
from moorage.controllers.workloads.missing_pods import POD_TEMPLATE_HASH, content_hash, revision_number
from moorage.simulator import jobs
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import Claimed, compiled, controller_of, is_active, owner_reference
from moorage.simulator.stateful_sets import StatefulPods
from moorage.simulator.template_claims import add_claims
from moorage.simulator.templates import PodFactory, names_of

__all__ = ["expand", "newest_last"]


def expand(cluster: ClusterInput, *, cron_jobs: bool = True) -> ClusterInput:
    """Return the cluster with the pods its workloads lack, and with the objects between workloads and pods.

    ``cron_jobs`` adds the job that each cron job would start next.
    Raises  InputError for a selector or a claim template that cannot be read
    """
    return _Expansion(cluster).run(cron_jobs)


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
        stateful = StatefulPods(self.claimed, self.taken)
        for stateful_set in self.cluster.stateful_sets:
            self.pods += stateful.missing(stateful_set)
        self._scale_deployments()
        for replica_set in self.replica_sets.values():
            self.pods += self._replicas(replica_set)
        for controller in self.cluster.replication_controllers:
            self.pods += self._controller_replicas(controller)
        owned_jobs = Claimed(self.cluster.jobs)
        if cron_jobs:
            self.jobs += (job for one in self.cluster.cron_jobs for job in self._next_job(one, owned_jobs))
        for job in self.jobs:
            self.pods += jobs.missing_pods(job, self.claimed, self.taken)
        pods = (*self.claimed.with_owners(self.cluster.pods), *self.pods)
        report = with_fields(self.cluster.report, notes=(*self.cluster.report.notes, *self.notes))
        return add_claims(
            with_fields(
                self.cluster, pods=pods, replica_sets=tuple(self.replica_sets.values()), jobs=tuple(self.jobs), report=report
            ),
            stateful.claims,
        )

    def _lacking(self, owner: OwnerReference, metadata: ObjectMeta, selector: LabelSelector | None, wanted: int) -> int:
        """Return how many pods a controller lacks, after it has adopted pods without a controller."""
        title = f"{owner.kind} {metadata.namespace}/{metadata.name}"
        held = self.claimed.of(owner.kind, metadata)
        adopted = self.claimed.adopt(owner, metadata.namespace, compiled(selector, title), is_active)
        return max(0, wanted - sum(map(is_active, held)) - len(adopted))

    # -- daemon sets ----------------------------------------------------------------------------------------------------

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
                self._scale_newest(deployment, [self._current(one) for one in own])
            elif deployment.spec.paused and not self._known_hashes(deployment):
                self.notes.append(f"Deployment {metadata.namespace}/{metadata.name} is paused before its first pod: none made")
            else:
                self._add_replica_set(deployment, owner)
        owned = {one.key: one for one in sets.with_owners(self.cluster.replica_sets)}
        for key, one in owned.items():
            replicas = self.replica_sets[key].spec.replicas
            self.replica_sets[key] = one if replicas == one.spec.replicas else _scaled(one, replicas)

    def _current(self, replica_set: ReplicaSet) -> ReplicaSet:
        return self.replica_sets[replica_set.key]

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

    # -- cron jobs ------------------------------------------------------------------------------------------------------

    def _next_job(self, cron_job: CronJob, owned: Claimed[Job]) -> Iterator[Job]:
        """Yield the job that a cron job starts next, if it may start one.

        A real cluster names the job after the minute it is due; here, without a clock, the schedule decides the name.
        """
        metadata, spec = cron_job.metadata, cron_job.spec
        if spec.suspend or metadata.deletion_timestamp is not None:
            return
        running = [job for job in owned.of("CronJob", metadata) if not jobs.is_finished(job)]
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


_REPLICA_SET_SPEC = ReplicaSet().spec


def _hashes_by_deployment(cluster: ClusterInput) -> dict[tuple[str, str], dict[str, int]]:
    """Return, for deployments by namespace and name, the template hashes of active pods and their numbers of pods."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for pod in cluster.pods:
        mark, owner = pod.labels.get(POD_TEMPLATE_HASH), controller_of(pod.metadata)
        if mark and owner is not None and owner.kind == "ReplicaSet" and owner.name.endswith(f"-{mark}") and is_active(pod):
            counts = found.setdefault((pod.namespace, owner.name.removesuffix(f"-{mark}")), {})
            counts[mark] = counts.get(mark, 0) + 1
    return found


def _count(replicas: int | None) -> int:
    """Return a number of replicas; the default is 1."""
    return 1 if replicas is None else replicas


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
