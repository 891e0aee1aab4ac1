"""VolumeRestrictions up to 1.33: the reason for a ReadWriteOncePod claim in use has another text.

Up to 1.28 claims do not matter while the gate ReadWriteOncePod is off. Up to 1.26 a ReadWriteOncePod claim in use is beyond
preemption: PreFilter rejects the pod.

Source    kube-scheduler 1.33.3, 1.28.8 and 1.26.15, plugins/volumerestrictions/volume_restrictions.go
"""

from __future__ import annotations

from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Attachable
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Hold, Skip
from moorage.plugins.volume_restrictions import RestrictedVolumes, VolumeRestrictions
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo


class VolumeRestrictionsV133(VolumeRestrictions):
    reuse = VolumeRestrictions.reuse
    # kube-scheduler's own text, kept word for word: people search their events for it.
    claim_taken = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


class VolumeRestrictionsV128(VolumeRestrictionsV133, Attachable):
    """The plugin up to 1.28."""

    reuse = VolumeRestrictions.reuse

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

    reuse = VolumeRestrictions.reuse

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip | Hold:
        found = super().pre_filter(pod, snapshot)
        if isinstance(found, RestrictedVolumes) and found.uses:
            return Hold.because(self.claim_taken, unresolvable=True)
        return found
