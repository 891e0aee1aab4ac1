"""VolumeRestrictions: reject nodes where a disk the pod needs is in use, and the pod while its ReadWriteOncePod claim is.

Reads     disks that pods mount directly (GCE, AWS EBS, iSCSI, Ceph RBD); claims with access mode ReadWriteOncePod
Rejects   nodes with a conflicting disk; every node while another pod uses the claim. Preemption may help
Wakes on  a node added; a pod of the namespace deleted that used the disk or the claim; a claim of the pod added
Source    kube-scheduler 1.36, plugins/volumerestrictions/volume_restrictions.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moorage.api.storage import PersistentVolumeClaim
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import (
    PreFilterExtensions,
    PreFilterPlugin,
    Reuse,
    Scope,
)
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.plugins.volumes.pod_claims import claim_not_found, names_claim, volume_signature
from moorage.plugins.volumes.volume_reasons import why_held
from moorage.plugins.volumes.volume_remedies import remedies_of_holders
from moorage.state.pod_volumes import Disk
from moorage.state.view import BoolArray, NodeInfo, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
DISK_TAKEN: Final = "node(s) had no available disk"
CLAIM_TAKEN: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

_FOR_ONE_POD: Final = "ReadWriteOncePod"


class RestrictedVolumes(NamedTuple):
    """The volumes of a pod that no other pod may use: disks, and ReadWriteOncePod claims; ``uses``: their number of users."""

    disks: tuple[Disk, ...]
    claims: frozenset[str]
    uses: int


class VolumeRestrictions(
    PreFilterPlugin[RestrictedVolumes], PreFilterExtensions[RestrictedVolumes], RefusingPlugin[RestrictedVolumes]
):
    name = "VolumeRestrictions"
    #: The reason while another pod uses a claim that allows a single pod.
    claim_taken: str = CLAIM_TAKEN
    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> RestrictedVolumes | Skip | Hold:
        if pod.volumes is None:
            return SKIP
        claims = snapshot.objects(PersistentVolumeClaim)
        alone: dict[str, str] = {}
        for use in pod.volumes.claims:
            if use.ephemeral:
                continue
            claim = claims.get(use.key)
            if claim is None:
                return Hold.because(claim_not_found(use.name), unresolvable=True)
            if _FOR_ONE_POD in claim.spec.access_modes:
                alone[use.name] = use.key
        taken, unheard = snapshot.table.volume_use, snapshot.unheard
        uses = sum(taken.claim_uses(key) > unheard.claim_uses(key) for key in alone.values())
        return RestrictedVolumes(pod.volumes.disks, frozenset(alone), uses) if pod.volumes.disks or uses else SKIP

    def add_pod(self, wanted: RestrictedVolumes, pod: PodInfo, other: PodInfo, node: NodeInfo) -> RestrictedVolumes:
        return wanted._replace(uses=wanted.uses + _uses(wanted, other))

    def remove_pod(self, wanted: RestrictedVolumes, pod: PodInfo, other: PodInfo, node: NodeInfo) -> RestrictedVolumes:
        return wanted._replace(uses=wanted.uses - _uses(wanted, other))

    def filter(self, wanted: RestrictedVolumes, nodes: NodeView) -> Iterator[Reject]:
        taken = rows_taken(wanted.disks, nodes)
        yield Reject(taken, DISK_TAKEN)
        if wanted.uses > 0:
            yield Reject(~taken, self.claim_taken)

    def why(self, wanted: RestrictedVolumes, pod: PodInfo, node: NodeView) -> Detail | None:
        return why_held(pod, clashing_pods(pod, node), wanted.claims if wanted.uses > 0 else (), node)

    def remedies(self, wanted: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        alone = wanted.claims if isinstance(wanted, RestrictedVolumes) else frozenset()
        return remedies_of_holders(pod, node, clashing_pods(pod, node), alone)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE), frees)
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD))
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), names_claim)


def clashing_pods(pod: PodInfo, node: NodeView) -> Iterator[PodInfo]:
    """Yield the pods on a node that use one of the pod's disks in a way that conflicts."""
    disks = () if pod.volumes is None else pod.volumes.disks
    for other in node.first.pods:
        if other.volumes is not None and any(clash(wanted, held) for wanted in disks for held in other.volumes.disks):
            yield other


def rows_taken(disks: Iterable[Disk], nodes: NodeView) -> BoolArray:
    """Return for each row whether a pod on it uses one of the disks in a way that conflicts."""
    taken = nodes.false()
    for disk in disks:
        rows = nodes.table.volume_use.rows_clashing(disk)
        if rows:
            taken |= nodes.holding(rows)
    return taken


def _uses(wanted: RestrictedVolumes, other: PodInfo) -> int:
    """Count the other pod's volumes that use a listed claim. Like kube-scheduler, this ignores the pod's namespace."""
    if other.volumes is None:
        return 0
    return sum(not use.ephemeral and use.name in wanted.claims for use in other.volumes.claims)


def frees(pod: PodInfo, gone: PodInfo, new: object = None) -> bool:
    """Return whether a deleted pod used a disk or a claim that ``pod`` needs.

    Like kube-scheduler, this ignores users in other namespaces, although disks have no namespace.
    """
    if gone.namespace != pod.namespace or pod.volumes is None or gone.volumes is None:
        return False
    if any(clash(wanted, held) for wanted in pod.volumes.disks for held in gone.volumes.disks):
        return True
    claims = {use.name for use in gone.volumes.claims if not use.ephemeral}
    return any(use.name in claims for use in pod.volumes.claims if not use.ephemeral)


def clash(wanted: Disk, held: Disk) -> bool:
    """Return whether a disk cannot be mounted while ``held`` is mounted."""
    return wanted.key == held.key and not (wanted.read_only and held.read_only)
