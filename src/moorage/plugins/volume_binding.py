"""VolumeBinding: reject nodes from which the pod's volumes are out of reach or cannot be bound; bind them on the chosen node.

Reads     the pod's claims, their volumes and classes; node affinity of volumes; CSIStorageCapacity of drivers that publish it
Rejects   nodes that cannot access a bound volume, and nodes where an unbound delayed claim matches no volume and none can be
          provisioned; the pod, while a claim is missing, lost, terminating or unbound but immediate. Preemption never helps
Scores    with gate StorageCapacityScoring: nodes by how full the storage would be, along the argument ``shape``
Reserves  volumes and claims, so that no other pod gets them; PreBind writes them and waits for the volume controller to bind
Wakes on  nodes added or relabelled; volumes and the pod's claims added or changed; classes added or with other topologies;
          CSINodes added or migrating other plugins; capacities added or grown; drivers of the pod's own volumes that stop
          reporting capacity
Source    kube-scheduler 1.36, plugins/volumebinding
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.storage import CSIDriver, CSINode, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.errors import AttemptError, Fault
from moorage.framework import points
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.effects import Effect, Until, Write
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Hold, Narrow, Reject, Skip
from moorage.plugins.resources.scoring_strategies import UtilizationPoint, shape_faults, utilization_table
from moorage.plugins.volumes import pod_claims
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.plugins.volumes.capacity_score import capacity_scores
from moorage.plugins.volumes.csi_nodes import migrated_plugins
from moorage.plugins.volumes.planned_bindings import PlannedBinding, VolumeBindingError, are_bound
from moorage.plugins.volumes.provisioning import volume_limit
from moorage.plugins.volumes.volume_matching import MatchingError, VolumeIndex
from moorage.plugins.volumes.volume_reasons import ClaimsToBind, closed_domains, find, why_unbound
from moorage.plugins.volumes.volume_remedies import remedies_of_volumes
from moorage.rules.volumes.bindings import SELECTED_NODE, with_claim_ref, with_selected_node
from moorage.rules.volumes.csi_migration import CURRENT_MIGRATION
from moorage.state.view import IntArray, NodeView, PodInfo, Snapshot

# Arguments of VolumeBinding: the bind timeout, and how to score nodes by the use of their storage.
#
# Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go and apis/config/validation/validation_pluginargs.go

#: Static volumes with more free space score higher.
_DEFAULT_SHAPE = (UtilizationPoint(utilization=0, score=10), UtilizationPoint(utilization=100, score=0))


class VolumeBindingArgs(PluginArgs, frozen=True):
    """``shape`` requires the feature gate StorageCapacityScoring."""

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationPoint, ...] | None = None

    def completed(self, gates: FeatureGates) -> Self:
        scores = gates["StorageCapacityScoring"] and not self.shape
        return structs.replace(self, shape=_DEFAULT_SHAPE) if scores else self

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        faults = []
        if self.bind_timeout_seconds < 0:
            text = "invalid BindTimeoutSeconds, should not be a negative value"
            faults.append(Fault("Invalid value", f"{path}.bindTimeoutSeconds", text, self.bind_timeout_seconds))
        if gates["StorageCapacityScoring"]:
            faults += shape_faults(self.shape or (), f"{path}.shape", gates.emulated)
        elif self.shape is not None:
            text = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
            faults.append(Fault("Invalid value", f"{path}.shape", text, self.shape))
        return faults


# kube-scheduler's own texts, kept word for word: people search their events for them.
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"
UNREACHABLE: Final = "node(s) didn't match PersistentVolume's node affinity"
UNMATCHED: Final = "node(s) didn't find available persistent volumes to bind"
NO_ROOM: Final = "node(s) did not have enough free storage"
LOST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


@dataclass(frozen=True, slots=True)
class VolumeBindingState:
    """The PreFilter state: the claims, and the snapshot they were read from."""

    snapshot: Snapshot
    wanted: ClaimsToBind


@dataclass(frozen=True, slots=True)
class Reserved:
    """The volumes to bind and the claims to provision for one pod on its node."""

    found: tuple[PlannedBinding[PersistentVolume], ...]
    made: tuple[PlannedBinding[PersistentVolumeClaim], ...]


class BoundVolumes(
    points.PreFilterPlugin[VolumeBindingState],
    RefusingPlugin[VolumeBindingState],
    points.ReservePlugin[VolumeBindingState],
    points.PreBindPlugin[VolumeBindingState],
    points.Attachable,
):
    """VolumeBinding without its score. Subclasses for other releases override its texts and options.

    ``reasons``  unreachable bound volume, no matching volume, not enough storage, missing bound volume
    """

    name = "VolumeBinding"
    reuse = points.Reuse(
        points.Scope.NODE, signature=pod_claims.volume_signature, signature_reads=(), rests_when_skipped=True,
        rests=pod_claims.are_all_bound, domains=points.Domains(lambda state, nodes: closed_domains(state.wanted, nodes)),
    )  # fmt: skip
    reasons: tuple[str, str, str, str] = (UNREACHABLE, UNMATCHED, NO_ROOM, LOST)

    def __init__(self, bind_timeout_s: int) -> None:
        self._bind_timeout_s = bind_timeout_s
        self._gates = FeatureGates()
        self._migration = CURRENT_MIGRATION
        self._counted = True
        self._reserved: dict[str, Reserved] = {}

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates

    def why_unusable(self, pod: PodInfo, snapshot: Snapshot) -> str | None:
        """Return why a claim of the pod rejects it on every node; None if none does."""
        return pod_claims.unusable(pod, snapshot)

    def claims_to_bind(self, claims: pod_claims.PodClaims, snapshot: Snapshot) -> ClaimsToBind:
        """Return the pod's claims in the form Filter needs; ``fault`` says why they cannot be matched with volumes."""
        volumes = snapshot.index(Assumptions).volumes
        bound = tuple((claim, volumes.get(claim.spec.volume_name)) for claim in claims.bound)
        selected = tuple(claim for claim in claims.delayed if SELECTED_NODE in claim.metadata.annotations)
        free = [claim for claim in claims.delayed if SELECTED_NODE not in claim.metadata.annotations]
        search, fault = None, ""
        try:
            search = snapshot.index(VolumeIndex).search(free) if free else None
        except MatchingError as error:
            fault = str(error)
        return ClaimsToBind(bound, selected, search, fault, self._migration, self._counted)

    # -- Filter -----------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> VolumeBindingState | Skip | Hold | Narrow[VolumeBindingState]:
        if pod.volumes is None or not pod.volumes.claims:
            return SKIP
        why = self.why_unusable(pod, snapshot)
        if why is not None:
            return Hold.because(why, unresolvable=True)
        try:
            claims = pod_claims.claims_of(pod, snapshot)
        except pod_claims.ClassError as error:
            raise AttemptError(self.name, f'running PreFilter plugin "{self.name}": {error}') from error
        if claims.immediate:
            return Hold.because(UNBOUND_IMMEDIATE, unresolvable=True)
        return VolumeBindingState(snapshot, self.claims_to_bind(claims, snapshot))

    def filter(self, state: VolumeBindingState, nodes: NodeView) -> Iterator[Reject]:
        found = find(state.wanted, nodes)
        for rows, fault in found.faults:
            yield Reject(rows, fault, error=True)
        refused = (found.unreachable, found.unmatched, found.no_room, found.lost)
        for rows, reason in zip(refused, self.reasons, strict=True):
            if rows.any():
                yield Reject(rows, reason, unresolvable=True)

    def why(self, asked: VolumeBindingState, pod: PodInfo, node: NodeView) -> Detail | None:
        return why_unbound(asked.wanted, node)

    def remedies(self, asked: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_volumes(pod, node)

    # -- Reserve and PreBind ----------------------------------------------------------------------------------------------

    def reserve(self, state: VolumeBindingState | None, pod: PodInfo, node: str) -> None:
        if state is None or state.wanted.is_all_bound:
            return
        snapshot = state.snapshot
        found = find(state.wanted, NodeView(snapshot, np.array([snapshot.table.row_of[node]], dtype=np.intp)))
        group = next(iter(found.groups), None)
        if group is None:
            return
        bindings = found.chosen.at(0) if found.chosen is not None else []
        assumed = snapshot.index(Assumptions)
        volumes = [(with_claim_ref(volume, claim), claim.key) for claim, volume in bindings]
        claims = [with_selected_node(claim, node) for claim in {claim.key: claim for claim in group.to_provision}.values()]
        self._reserved[pod.uid] = Reserved(
            tuple(PlannedBinding(assumed.volumes.assume(v.name, v, pod.uid), v, key) for v, key in volumes),
            tuple(PlannedBinding(assumed.claims.assume(c.key, c, pod.uid), c, c.key) for c in claims),
        )

    def unreserve(self, state: VolumeBindingState | None, pod: PodInfo, node: str) -> None:
        self._reserved.pop(pod.uid, None)
        if state is not None:
            state.snapshot.index(Assumptions).release(pod.uid)

    def pre_bind(self, state: VolumeBindingState | None, pod: PodInfo, node: str) -> Iterable[Effect]:
        reserved = self._reserved.pop(pod.uid, None)
        if state is None or reserved is None:
            return ()
        snapshot = state.snapshot

        def is_bound() -> bool:
            try:
                bound = are_bound(snapshot, node, reserved.found, reserved.made, self._migration)
            except VolumeBindingError as error:
                raise AttemptError(self.name, f"binding volumes: {error}") from error
            if bound:
                # From now on only the watched objects count: if they revert, no reservation may hide that.
                snapshot.index(Assumptions).release(pod.uid)
            return bound

        planned_bindings: list[PlannedBinding[PersistentVolume] | PlannedBinding[PersistentVolumeClaim]] = [
            *reserved.found,
            *reserved.made,
        ]
        writes = tuple([Write(planned.obj, base=planned.base) for planned in planned_bindings if planned.changes_anything])
        gone = f'binding volumes: pod does not exist any more: pod "{pod.name}" not found'
        return (*writes, Until(is_bound, self._bind_timeout_s, "binding volumes", writes, gone=gone))

    # -- events -----------------------------------------------------------------------------------------------------------

    def wakes_on(self) -> Iterator[Wake]:
        either = Action.ADD | Action.UPDATE
        yield Wake(ClusterEvent(Resource.STORAGE_CLASS, either), allows_other_places, by_shape=True)
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, either), pod_claims.uses_claim)
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME, either))
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL))
        yield Wake(ClusterEvent(Resource.CSI_NODE, either), migrates_other_plugins, by_shape=True)
        yield Wake(ClusterEvent(Resource.CSI_DRIVER, Action.UPDATE), stops_counting, by_shape=True)
        yield Wake(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, either), has_more_room, by_shape=True)


class VolumeBinding(BoundVolumes, points.PreScorePlugin[VolumeBindingState], points.ScorePlugin[VolumeBindingState]):
    Args = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs | None = None) -> None:
        self._args = args or VolumeBindingArgs()
        super().__init__(self._args.bind_timeout_seconds)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> VolumeBindingState | Skip:
        if not self._gates["StorageCapacityScoring"]:
            return SKIP
        state = self.pre_filter(pod, snapshot)
        return state if isinstance(state, VolumeBindingState) else VolumeBindingState(snapshot, ClaimsToBind())

    def score(self, state: VolumeBindingState, nodes: NodeView) -> IntArray:
        shape = self._args.completed(self._gates).shape or ()
        return capacity_scores(find(state.wanted, nodes), utilization_table(shape), len(nodes))


# -- hints --------------------------------------------------------------------------------------------------------------


def allows_other_places(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> bool:
    """Return whether a class is new, or provisions volumes in other topologies than before."""
    return old is None or old.allowed_topologies != new.allowed_topologies


def migrates_other_plugins(pod: PodInfo, old: CSINode | None, new: CSINode) -> bool:
    """Return whether a CSINode is new, or its drivers now serve the volumes of other in-tree plugins."""
    return old is None or migrated_plugins(old) != migrated_plugins(new)


def stops_counting(pod: PodInfo, old: CSIDriver, new: CSIDriver) -> bool:
    """Return whether a driver of one of the pod's inline volumes no longer publishes its storage capacity."""
    drivers = {str(volume.csi.get("driver")) for volume in pod.spec.volumes if volume.csi is not None}
    return new.name in drivers and bool(old.spec.storage_capacity) and not new.spec.storage_capacity


def has_more_room(pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> bool:
    """Return whether larger volumes can be provisioned than before."""
    if old is None:
        return True
    before, after = volume_limit(old), volume_limit(new)
    return after is not None and (before is None or after > before)
