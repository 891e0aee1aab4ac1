"""Scale a workload of an input: add or delete pods as its controller would.

New pods are created with all other missing pods of workloads. A deployment grows by its newest replica set, and shrinks by its
oldest first. Pods are deleted in the order of the replica set controller, those of a stateful set by their numbers, and without
a grace period.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.documents.object_fields import seconds
from moorage.api.quantity import parse_int64
from moorage.api.workloads import CronJob, Deployment, Job, JobSpec, ReplicaSet, StatefulSet
from moorage.basis.printable import close_to, one_line
from moorage.errors import InputError
from moorage.laboratory.edit.edits import WORKLOAD_KINDS
from moorage.rules.workloads.deletion_order import deletion_order
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.lost_pods import without_pods
from moorage.simulator.owners import Claimed, controller_of, is_active
from moorage.simulator.quotas import without_usage
from moorage.simulator.workloads import expand, is_finished, newest_last

#: Kind → the field of the input that has its objects.
_SLOTS: Final = {
    "Deployment": "deployments",
    "ReplicaSet": "replica_sets",
    "StatefulSet": "stateful_sets",
    "ReplicationController": "replication_controllers",
    "Job": "jobs",
    "CronJob": "cron_jobs",
}
#: The most replicas of one workload, far above what a cluster can hold.
_MOST: Final = 500_000


@dataclass(frozen=True, slots=True)
class Scaled:
    """A workload and the number of its replicas. An empty ``namespace`` stands for any."""

    kind: str
    namespace: str
    name: str
    replicas: int

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.lower()}/{where}{self.name}={self.replicas}"


def parse_scaled(text: str) -> Scaled:
    """Read ``KIND/NAME=N`` or ``KIND/NAMESPACE/NAME=N``; kinds are named as for kubectl.

    Raises  InputError
    """
    named, equals, number = text.rpartition("=")
    short, *names = named.split("/")
    kind = WORKLOAD_KINDS.get(short.lower(), "")
    if not equals or len(names) not in {1, 2} or not all(names) or not re.fullmatch(r"[0-9]{1,6}", number):
        raise InputError(one_line(f"{text!r}: write KIND/NAME=N or KIND/NAMESPACE/NAME=N, such as deployment/web=5"))
    if kind == "DaemonSet":
        raise InputError(one_line(f"{text!r}: a DaemonSet has a pod on each node; --add-nodes and --remove-nodes change that"))
    if kind not in _SLOTS:
        raise InputError(one_line(f"{text!r}: {short or 'nothing'} cannot be scaled; kinds: {', '.join(_SLOTS)}"))
    if int(number) > _MOST:
        raise InputError(one_line(f"{text!r}: at most {_MOST} replicas"))
    return Scaled(kind, names[0] if len(names) == 2 else "", names[-1], int(number))


def scale(cluster: ClusterInput, asked: Scaled) -> ClusterInput:
    """Return the cluster with a workload of another size.

    Raises  InputError if there is no such workload, or several, or if another one decides on its size
    """
    found = found_workload(getattr(cluster, _SLOTS[asked.kind]), asked.kind, asked.namespace, asked.name, str(asked))
    owner = controller_of(found.metadata)
    if owner is not None:
        raise InputError(one_line(f"{asked}: {owner.kind} {owner.name} decides on its replicas; scale that"))
    return scale_object(cluster, found, asked.replicas)


def found_workload(among: Iterable[Any], kind: str, namespace: str, name: str, text: str) -> Any:
    """Return the workload of this name; ``text`` is the request, for error messages.

    Raises  InputError if there is none, or several
    """
    held = list(among)
    named = [one for one in held if one.metadata.name == name and namespace in {"", one.metadata.namespace}]
    if not named:
        close = close_to(name, {one.metadata.name for one in held})
        raise InputError(one_line(f"{text}: the input has no such workload{close}"))
    if len(named) > 1:
        spaces = ", ".join(f"{kind.lower()}/{one.metadata.namespace}/{name}" for one in named)
        raise InputError(one_line(f"{text}: in several namespaces; write one of {spaces}"))
    return named[0]


def scale_object(cluster: ClusterInput, found: Any, replicas: int) -> ClusterInput:
    """Return the cluster with a workload object of another size."""
    if isinstance(found, StatefulSet):
        return _scale_stateful(_resized(cluster, found, replicas), found, replicas)
    if isinstance(found, Deployment):  # if it shrinks, so do its replica sets, which are created if they do not exist
        before = expand(cluster, cron_jobs=False)
        own = sorted(Claimed(before.replica_sets).of("Deployment", found.metadata), key=newest_last)
        surplus = sum(_count(one) for one in own) - replicas
        if surplus <= 0:
            return _resized(cluster, found, replicas)
        shrunk = _resized(before, found, replicas)
        for one in own:
            taken = min(_count(one), surplus)
            surplus -= taken
            if taken:
                shrunk = _shrunk(_resized(shrunk, one, _count(one) - taken), one, _count(one) - taken)
        return shrunk
    if isinstance(found, CronJob):
        template = found.spec.job_template
        job = replace(template, spec=_job_of_size(template.spec, replicas))
        return _with(without_jobs(cluster, found), found, replace(found.spec, job_template=job))
    if isinstance(found, Job):
        return _shrunk(_with(cluster, found, _job_of_size(found.spec, replicas)), found, replicas)
    return _shrunk(_resized(expand(cluster, cron_jobs=False), found, replicas), found, replicas)


def _resized(cluster: ClusterInput, found: Any, replicas: int) -> ClusterInput:
    return _with(cluster, found, replace(found.spec, replicas=replicas))


def _with(cluster: ClusterInput, found: Any, spec: Any) -> ClusterInput:
    """Return the cluster with another spec of a workload."""
    slot, uid = _SLOTS[type(found).__name__], found.metadata.uid
    fresh = (replace(one, spec=spec) if one.metadata.uid == uid else one for one in getattr(cluster, slot))
    fields: dict[str, Any] = {slot: tuple(fresh)}
    return with_fields(cluster, **fields)


def _job_of_size(spec: JobSpec, pods: int) -> JobSpec:
    """Return a job that runs so many pods at a time; one that runs all of its completions at once gets as many of those."""
    at_once = 1 if spec.parallelism is None else spec.parallelism
    completions = spec.completions if spec.completions is None or spec.completions > at_once else pods
    return replace(spec, parallelism=pods, completions=completions)


def _scale_stateful(cluster: ClusterInput, found: StatefulSet, replicas: int) -> ClusterInput:
    first = found.spec.ordinals.start if found.spec.ordinals else 0
    kept = range(first, first + replicas)
    held = Claimed(cluster.pods).of("StatefulSet", found.metadata)
    return without_running(cluster, [pod for pod in held if parse_int64(pod.name.rpartition("-")[2]) not in kept])


def _count(replica_set: ReplicaSet) -> int:
    return 1 if replica_set.spec.replicas is None else replica_set.spec.replicas


def _shrunk(cluster: ClusterInput, found: Any, replicas: int) -> ClusterInput:
    """Delete the surplus pods of a replica set or a replication controller."""
    kind = type(found).__name__
    claimed = Claimed(cluster.pods)
    held = [pod for pod in claimed.of(kind, found.metadata) if is_active(pod)]
    if len(held) <= replicas:
        return cluster
    related = (
        held if kind != "ReplicaSet" else [pod for one in _siblings(cluster, found) for pod in claimed.of(kind, one.metadata)]
    )
    now = max((seconds(pod.metadata.creation_timestamp or "") for pod in cluster.pods), default=0.0)
    order = deletion_order(map(msgspec.to_builtins, held), [msgspec.to_builtins(pod) for pod in related if is_active(pod)], now)
    gone = {document["metadata"]["uid"] for document in order[: len(held) - replicas]}
    return without_running(cluster, [pod for pod in held if pod.metadata.uid in gone])


def _siblings(cluster: ClusterInput, found: ReplicaSet) -> Iterable[ReplicaSet]:
    """Return the replica sets of the same deployment."""
    owner = controller_of(found.metadata)
    if owner is None:
        return [found]
    return [
        one
        for one in cluster.replica_sets
        if one.metadata.namespace == found.metadata.namespace and controller_of(one.metadata) == owner
    ]


def without_jobs(cluster: ClusterInput, found: CronJob) -> ClusterInput:
    """Return the cluster without the jobs of a cron job that still run; the next one takes their place."""
    own = [one for one in Claimed(cluster.jobs).of("CronJob", found.metadata) if not is_finished(one)]
    gone = {one.metadata.uid for one in own}
    claimed = Claimed(cluster.pods)
    pods = [pod for one in own for pod in claimed.of("Job", one.metadata)]
    kept = tuple(one for one in cluster.jobs if one.metadata.uid not in gone)
    return without_running(with_fields(cluster, jobs=kept), pods)


def without_running(cluster: ClusterInput, pods: Collection[Pod]) -> ClusterInput:
    """Return the cluster without these pods, and without the objects that they use."""
    return without_usage(without_pods(cluster, {pod.metadata.uid for pod in pods}), pods)
