"""VolumeRestrictions up to 1.33: the reason for a ReadWriteOncePod claim in use has another text.

Up to 1.28 claims do not matter while the gate ReadWriteOncePod is off. Up to 1.26 a ReadWriteOncePod claim in use is beyond
preemption: PreFilter rejects the pod. In 1.21 only disks matter that pods mount directly.

Source    kube-scheduler 1.33.3, 1.28.8, 1.26.15 and 1.21, plugins/volumerestrictions/volume_restrictions.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Resource, Wake
from moorage.framework.points import Attachable
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Hold, Skip
from moorage.plugins.volume_restrictions import RestrictedVolumes, VolumeRestrictions
from moorage.state.view import PodInfo, Snapshot


class VolumeRestrictionsV133(VolumeRestrictions):
    # kube-scheduler's own text, kept word for word: people search their events for it.
    claim_taken = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


class VolumeRestrictionsV128(VolumeRestrictionsV133, Attachable):
    def __init__(self) -> None:
        self._gates = FeatureGates(release="1.28.8")

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip | Hold:
        return super().pre_filter(pod, snapshot) if self._gates["ReadWriteOncePod"] else self.of_disks(pod)

    @staticmethod
    def of_disks(pod: PodInfo) -> RestrictedVolumes | Skip:
        """Return the disks that the pod mounts directly."""
        disks = pod.volumes.disks if pod.volumes is not None else ()
        return RestrictedVolumes(disks, frozenset(), 0) if disks else SKIP


class VolumeRestrictionsV126(VolumeRestrictionsV128):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip | Hold:
        found = super().pre_filter(pod, snapshot)
        if isinstance(found, RestrictedVolumes) and found.uses:
            return Hold.because(self.claim_taken, unresolvable=True)
        return found


class VolumeRestrictionsV121(VolumeRestrictionsV126):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip:
        return self.of_disks(pod)

    def wakes_on(self) -> Iterator[Wake]:
        return (wake for wake in super().wakes_on() if wake.event.resource is not Resource.PERSISTENT_VOLUME_CLAIM)
