"""Pods of an input that are on nodes which are not: as if those nodes had been deleted, the pods are gone with them.

What they used is given up: devices, and the claims that were made for them. Controllers make other pods: those of workloads in
the input as many as they still want, others one for each, as the pod's owner reference says. Where the input has no node at
all, it says nothing of nodes, and pods stay where they are.

Source  kubernetes, pkg/controller/podgc/gc_controller.go, gcOrphaned
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.meta import OwnerReference
from moorage.plugins.devices.claim_cleanup import owning_pod, without_stale_consumers
from moorage.report.outcome import InputNote
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import controller_of, is_active
from moorage.simulator.replacing import REPLACING_ELSEWHERE, replacement
from moorage.simulator.simulation import PodRecord, State
from moorage.simulator.wording import counted, some

__all__ = ["LostPods", "lose_pods"]

_HASH = "pod-template-hash"
#: The kind, the namespace and the name of the workload that people would name.
_Home = tuple[str, str, str]


class _Homes:
    """Which workload a pod is of: the Deployment rather than its ReplicaSet. ``known``: those that the input describes."""

    def __init__(self, cluster: ClusterInput) -> None:
        self._above: dict[_Home, _Home] = {}
        self.known: set[_Home | None] = {
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
                home = (owner.kind, one.metadata.namespace, owner.name)
                self._above["ReplicaSet", one.metadata.namespace, one.metadata.name] = home
                self.known.add(home)

    def of(self, pod: Pod) -> _Home | None:
        """Return a pod's workload, in the input or not; None for a pod without a controller."""
        owner, mark = controller_of(pod.metadata), pod.labels.get(_HASH)
        if owner is None:
            return None
        direct = (owner.kind, pod.namespace, owner.name)
        if direct in self._above:
            return self._above[direct]
        deployment = ("Deployment", pod.namespace, owner.name.removesuffix(f"-{mark}"))
        return deployment if owner.kind == "ReplicaSet" and mark and deployment in self.known else direct


@dataclass(frozen=True, slots=True)
class LostPods:
    """The pods that are gone, and by UID the name of the pod that a controller made instead, as far as known."""

    pods: tuple[Pod, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)

    def notes(self) -> Iterator[InputNote]:
        """Yield what a reader should know."""
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
        """Yield what became of the pods, as a run that began with them would say."""
        for pod in self.pods:
            name = self.replaced.get(pod.metadata.uid, "")
            yield PodRecord(pod, 0.0, State.DELETED, pod.spec.node_name, replaced=name, ended_s=0.0)

    def with_replacements(self, before: ClusterInput, after: ClusterInput) -> LostPods:
        """Return the same with the pods that workloads of the input have made, one for each that is gone of their own.

        ``after``: what expanding the workloads made of ``before``.
        """
        there = {pod.key for pod in before.pods}
        homes = _Homes(after)
        made: dict[_Home | None, list[str]] = {}
        for pod in after.pods:
            if pod.key not in there:
                made.setdefault(homes.of(pod), []).append(pod.name)
        replaced = dict(self.replaced)
        for pod in self.pods:
            home = homes.of(pod)
            names = made.get(home, []) if home is not None and home[0] != "DaemonSet" else []
            if names and is_active(pod) and pod.metadata.uid not in replaced:
                replaced[pod.metadata.uid] = names.pop(names.index(pod.name) if pod.name in names else 0)
        return with_fields(self, replaced=replaced)


def lose_pods(cluster: ClusterInput) -> tuple[ClusterInput, LostPods]:
    """Return the cluster without the pods whose node is not in it, and those. Best asked before workloads are expanded."""
    nodes = {node.name for node in cluster.nodes}
    lost = tuple([pod for pod in cluster.pods if _is_lost(pod, nodes)]) if nodes else ()
    if not lost:
        return cluster, LostPods()
    gone = {pod.metadata.uid for pod in lost}
    kept = with_fields(
        cluster,
        pods=tuple([pod for pod in cluster.pods if pod.metadata.uid not in gone]),
        persistent_volume_claims=tuple(
            [claim for claim in cluster.persistent_volume_claims if not _belongs_to(claim.metadata.owner_references, gone)]
        ),
        resource_claims=tuple(
            [
                without_stale_consumers(claim, lambda user: user.uid not in gone)
                for claim in cluster.resource_claims
                if (owner := owning_pod(claim)) is None or owner[1] not in gone
            ]
        ),
    )
    homes = _Homes(cluster)
    strays = [pod for pod in lost if is_active(pod) and homes.of(pod) not in homes.known]
    others = {pod.metadata.uid: other for pod in strays if (other := replacement(pod, REPLACING_ELSEWHERE)) is not None}
    kept = with_fields(kept, pods=(*kept.pods, *others.values()))
    return kept, LostPods(lost, {uid: other.name for uid, other in others.items()})


def _is_lost(pod: Pod, nodes: set[str]) -> bool:
    return bool(pod.spec.node_name) and pod.spec.node_name not in nodes and pod.status.phase not in ENDED_PHASES


def _belongs_to(owners: Iterable[OwnerReference], uids: set[str]) -> bool:
    return any(owner.uid in uids for owner in owners)
