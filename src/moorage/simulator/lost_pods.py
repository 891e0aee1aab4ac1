"""Pods of the input on nodes that are not in the input: they are deleted, as if those nodes had been deleted.

Their devices are released, and claims generated for them are deleted. Controllers create replacements: for workloads in the
input, as many as these need; for other controllers, one for each pod with an owner reference. If the input has no node at all,
pods stay where they are.

Source  kubernetes, pkg/controller/podgc/gc_controller.go, gcOrphaned
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

from moorage.api.core import ENDED_PHASES, Pod
from moorage.basis.printable import counted, some
from moorage.plugins.devices.claim_cleanup import without_stale_consumers
from moorage.report.outcome import InputNote
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import controller_of, deployment_name, is_active, is_made_for
from moorage.simulator.replacements import REPLACING_ELSEWHERE, replacement
from moorage.simulator.simulation import PodRecord, State

#: Kind, namespace and name of the workload that people name.
_WorkloadKey = tuple[str, str, str]


class _Workloads:
    """Maps pods to workloads: the Deployment instead of its ReplicaSet. ``known``: the workloads in the input."""

    def __init__(self, cluster: ClusterInput) -> None:
        self._above: dict[_WorkloadKey, _WorkloadKey] = {}
        self.known: set[_WorkloadKey | None] = {
            (kind, one.metadata.namespace, one.metadata.name)
            for kind, held in (
                ("Deployment", cluster.deployments), ("ReplicaSet", cluster.replica_sets), ("Job", cluster.jobs),
                ("ReplicationController", cluster.replication_controllers), ("DaemonSet", cluster.daemon_sets),
                ("StatefulSet", cluster.stateful_sets),
            )
            for one in held
        }  # fmt: skip
        for one in cluster.replica_sets:
            owner = controller_of(one.metadata)
            if owner is not None:
                workload = (owner.kind, one.metadata.namespace, owner.name)
                self._above["ReplicaSet", one.metadata.namespace, one.metadata.name] = workload
                self.known.add(workload)

    def of(self, pod: Pod) -> _WorkloadKey | None:
        """Return a pod's workload, whether it is in the input or not; None for a pod without a controller."""
        owner = controller_of(pod.metadata)
        if owner is None:
            return None
        direct = (owner.kind, pod.namespace, owner.name)
        if direct in self._above:
            return self._above[direct]
        deployment = ("Deployment", pod.namespace, deployment_name(pod))
        return deployment if deployment in self.known else direct


@dataclass(frozen=True, slots=True)
class LostPods:
    """The deleted pods and, by UID, the name of the replacement if there is one."""

    pods: tuple[Pod, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)

    def notes(self) -> Iterator[InputNote]:
        """Yield the notes for the report."""
        if not self.pods:
            return
        nodes = sorted({pod.spec.node_name for pod in self.pods})
        one, alone = len(self.pods) == 1, len(nodes) == 1
        text = (
            f"{counted(len(self.pods), 'pod')} {'was' if one else 'were'} on {counted(len(nodes), 'node')} not in the input"
            f" ({some(nodes)}) and {'is' if one else 'are'} gone with {'it' if alone else 'them'}, as pod garbage collection"
            f" would have it; controllers replace {len(self.replaced)}. If the {'node exists' if alone else 'nodes exist'},"
            f" add {'it' if alone else 'them'} to the input"
        )
        yield InputNote("LostPods", text)

    def records(self) -> Iterator[PodRecord]:
        """Yield a record for each pod, deleted at the start of the run."""
        for pod in self.pods:
            name = self.replaced.get(pod.metadata.uid, "")
            yield PodRecord(pod, 0.0, State.DELETED, pod.spec.node_name, replaced=name, ended_s=0.0)

    def with_replacements(self, before: ClusterInput, after: ClusterInput) -> LostPods:
        """Return these pods with the replacements that workloads of the input created, at most one for each pod.

        ``after``: ``before`` with its workloads expanded.
        """
        if not self.pods:
            return self
        there = {pod.key for pod in before.pods}
        workloads = _Workloads(after)
        made: dict[_WorkloadKey | None, list[str]] = {}
        for pod in after.pods:
            if pod.key not in there:
                made.setdefault(workloads.of(pod), []).append(pod.name)
        replaced = dict(self.replaced)
        for pod in self.pods:
            workload = workloads.of(pod)
            names = made.get(workload, []) if workload is not None and workload[0] != "DaemonSet" else []
            if names and is_active(pod) and pod.metadata.uid not in replaced:
                replaced[pod.metadata.uid] = names.pop(names.index(pod.name) if pod.name in names else 0)
        return with_fields(self, replaced=replaced)


def lose_pods(cluster: ClusterInput) -> tuple[ClusterInput, LostPods]:
    """Return the cluster without the pods whose node it lacks, and these pods. Call it before expanding workloads."""
    nodes = {node.name for node in cluster.nodes}
    lost = tuple([pod for pod in cluster.pods if _is_lost(pod, nodes)]) if nodes else ()
    if not lost:
        return cluster, LostPods()
    kept = without_pods(cluster, {pod.metadata.uid for pod in lost})
    workloads = _Workloads(cluster)
    strays = [pod for pod in lost if is_active(pod) and workloads.of(pod) not in workloads.known]
    others = {pod.metadata.uid: other for pod in strays if (other := replacement(pod, REPLACING_ELSEWHERE)) is not None}
    kept = with_fields(kept, pods=(*kept.pods, *others.values()))
    return kept, LostPods(lost, {uid: other.name for uid, other in others.items()})


def without_pods(cluster: ClusterInput, gone: Collection[str]) -> ClusterInput:
    """Return the cluster without the pods of these UIDs, and without the claims that were made for them."""
    return with_fields(
        cluster,
        pods=tuple([pod for pod in cluster.pods if pod.metadata.uid not in gone]),
        persistent_volume_claims=tuple([one for one in cluster.persistent_volume_claims if not is_made_for(one, gone)]),
        resource_claims=tuple(
            [
                without_stale_consumers(claim, lambda user: user.uid not in gone)
                for claim in cluster.resource_claims
                if not is_made_for(claim, gone)
            ]
        ),
    )


def _is_lost(pod: Pod, nodes: set[str]) -> bool:
    return bool(pod.spec.node_name) and pod.spec.node_name not in nodes and pod.status.phase not in ENDED_PHASES
