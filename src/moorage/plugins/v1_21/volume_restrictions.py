"""VolumeRestrictions of 1.21: reject nodes where a disk that the pod mounts directly is in use.

Claims do not matter: the access mode ReadWriteOncePod came later.

Reads     disks that pods mount directly (GCE, AWS EBS, iSCSI, Ceph RBD)
Rejects   nodes with a conflicting disk; preemption may help
Wakes on  a node added; a pod deleted
Source    kube-scheduler 1.21, plugins/volumerestrictions/volume_restrictions.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework.changes import RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.explaining import Detail
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import Reject
from moorage.plugins.volume_restrictions import DISK_TAKEN, clashing_pods, disk_remedies, rows_taken
from moorage.plugins.volumes.pod_claims import volume_signature
from moorage.plugins.volumes.volume_reasons import why_held
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView


class VolumeRestrictionsV121(RefusingPlugin[PodInfo]):
    name = "VolumeRestrictions"
    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        if pod.volumes is not None and pod.volumes.disks:
            yield Reject(rows_taken(pod.volumes.disks, nodes), DISK_TAKEN)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        return why_held(pod, clashing_pods(pod, node), (), node)

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return disk_remedies(pod, node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD))
