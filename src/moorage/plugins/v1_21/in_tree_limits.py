"""EBSLimits, GCEPDLimits, AzureDiskLimits and CinderLimits: reject nodes where in-tree disks would exceed their limit.

The disks in use on a node and those the pod adds must not exceed the limit. The node's allocatable ``attachable-volumes-…``
counts first, then the scheduler's ``max_disks`` for all kinds (kube-scheduler's KUBE_MAX_PD_VOLS), then the default: 39 for EBS
(25 on instances of the families c5, m5, r5, t3 and z1d), 16 for GCE and Azure, and 256 for Cinder.

Reads     disks that the pod mounts directly, its claims and their volumes; the same of the pods on each node; limits, instance
          types, and the migrated plugins of CSINodes
Rejects   nodes at their limit; preemption may help
Wakes on  a node added; a pod deleted
Source    kube-scheduler 1.21, plugins/nodevolumelimits/non_csi.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from moorage.api.feature_gates import FeatureGates
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Attachable, Reuse, Scope
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Reject
from moorage.plugins.v1_21.shared.in_tree_disks import AZURE_DISK, CINDER, EBS, GCE_PD, DiskCounter, DiskKind, disks_of
from moorage.plugins.volumes.csi_volumes import NO_NAME
from moorage.plugins.volumes.pod_claims import volume_signature
from moorage.plugins.volumes.volume_reasons import why_attached
from moorage.plugins.volumes.volume_remedies import remedies_of_full_attachments
from moorage.state.view import NodeView, PodInfo

# kube-scheduler's own text, kept word for word: people search their events for it.
TOO_MANY: Final = "node(s) exceed max volume count"


class DiskLimits(RefusingPlugin[PodInfo], Attachable):
    """The plugin for the kind of disk that a subclass names."""

    name: ClassVar[str]
    kind: ClassVar[DiskKind]
    #: Claims of ephemeral volumes count.
    counts_ephemeral: ClassVar[bool] = False
    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def __init__(self) -> None:
        self._counter = DiskCounter(self.kind, FeatureGates(), ephemeral=self.counts_ephemeral)

    def attach(self, handle: Handle) -> None:
        self._counter = DiskCounter(self.kind, handle.gates, handle.max_disks, ephemeral=self.counts_ephemeral)

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        if pod.volumes is None:
            return
        if any(not use.name for use in pod.volumes.claims):
            yield Reject(~nodes.false(), NO_NAME, error=True)
            return
        disks = disks_of(self.kind, pod, nodes.snapshot, ephemeral=self.counts_ephemeral)
        if disks:
            use = self._counter.use(disks, nodes)
            yield Reject(use.counts & (use.held + use.added > use.limit), TOO_MANY)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        disks = disks_of(self.kind, pod, node.snapshot, ephemeral=self.counts_ephemeral)
        use = self._counter.use(disks, node)
        what = f"{self.name.removesuffix('Limits')} disks"
        return why_attached([(what, int(use.held[0]), int(use.added[0]), int(use.limit[0]))])

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_full_attachments(node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD))
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))


class EBSLimits(DiskLimits):
    """Disks of AWS Elastic Block Store."""

    name = "EBSLimits"
    kind = EBS


class GCEPDLimits(DiskLimits):
    """Persistent disks of Google Compute Engine."""

    name = "GCEPDLimits"
    kind = GCE_PD


class AzureDiskLimits(DiskLimits):
    """Managed and unmanaged disks of Azure."""

    name = "AzureDiskLimits"
    kind = AZURE_DISK


class CinderLimits(DiskLimits):
    """Volumes of OpenStack Cinder."""

    name = "CinderLimits"
    kind = CINDER
