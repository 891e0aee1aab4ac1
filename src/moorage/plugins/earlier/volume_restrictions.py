"""VolumeRestrictions up to 1.33: the reason for a ReadWriteOncePod claim in use has another text.

Up to 1.28 claims do not matter while the gate ReadWriteOncePod is off. Up to 1.26 a ReadWriteOncePod claim in use is beyond
preemption: PreFilter rejects the pod.

Source    kube-scheduler 1.33.3, 1.28.8 and 1.26.15, plugins/volumerestrictions/volume_restrictions.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Attachable, Reuse, Scope
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.plugins.volume_restrictions import (
    DISK_TAKEN,
    RestrictedVolumes,
    VolumeRestrictions,
    clashing_pods,
    disk_remedies,
    rows_taken,
)
from moorage.plugins.volumes.pod_claims import volume_signature
from moorage.plugins.volumes.volume_reasons import why_held
from moorage.state.view import NodeView, PodInfo, Snapshot

# -- 1.21 --------------------------------------------------------------------------------------------------------------
# VolumeRestrictions of 1.21: reject nodes where a disk that the pod mounts directly is in use.
#
# Claims do not matter: the access mode ReadWriteOncePod came later.
#
# Reads     disks that pods mount directly (GCE, AWS EBS, iSCSI, Ceph RBD)
# Rejects   nodes with a conflicting disk; preemption may help
# Wakes on  a node added; a pod deleted
# Source    kube-scheduler 1.21, plugins/volumerestrictions/volume_restrictions.go


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


# -- 1.22 and later ----------------------------------------------------------------------------------------------------


class VolumeRestrictionsV133(VolumeRestrictions):
    # kube-scheduler's own text, kept word for word: people search their events for it.
    claim_taken = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


class VolumeRestrictionsV128(VolumeRestrictionsV133, Attachable):
    """The plugin up to 1.28."""

    def __init__(self) -> None:
        self._gates = FeatureGates(release="1.28.8")

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip | Hold:
        if self._gates["ReadWriteOncePod"]:
            return super().pre_filter(pod, snapshot)
        disks = pod.volumes.disks if pod.volumes is not None else ()
        return RestrictedVolumes(disks, frozenset(), 0) if disks else SKIP


class VolumeRestrictionsV126(VolumeRestrictionsV128):
    """The plugin up to 1.26."""

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip | Hold:
        found = super().pre_filter(pod, snapshot)
        if isinstance(found, RestrictedVolumes) and found.uses:
            return Hold.because(self.claim_taken, unresolvable=True)
        return found
