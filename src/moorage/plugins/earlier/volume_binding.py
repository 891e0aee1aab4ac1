"""VolumeBinding of earlier releases.

* Up to 1.33 a claim that names a VolumeAttributesClass cannot be matched while the gate VolumeAttributesClass is off, as it is
  by default.
* Up to 1.32 the reason for a volume out of reach has another text. The gate for scoring is VolumeCapacityPriority: only
  existing volumes count, fuller ones score higher by default, and pods for which no volume matches on any node are not scored.
* Up to 1.29 every pod is scored; without volumes to match it scores 0.
* Up to 1.28 PreFilter narrows the search to the nodes whose host names are in the node affinity of bound volumes, and claims
  have no VolumeAttributesClass. Up to 1.26 it narrows nothing. Up to 1.24 in-tree volumes
  migrate while gates let them. Up to 1.22 lost claims do not reject the pod, and reasons have other texts. In 1.21 four kinds
  of in-tree disks migrate, Azure disks whatever their kind, and ``bindTimeoutSeconds`` is the only argument.

Source    kube-scheduler 1.33.3, 1.32.5, 1.29.14, 1.28.8, 1.26.15, 1.24.17, 1.22.6 and 1.21, plugins/volumebinding;
          component-helpers, storage/volume; 1.21, pkg/controller/volume/scheduling/scheduler_binder.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, Self

from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.quantity import parse
from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.points import PreScorePlugin, ScorePlugin
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Hold, Narrow, Skip
from moorage.plugins.earlier.shared.volumes_by_migration import closed_plugins, translated_in_1_21
from moorage.plugins.resources.scoring_strategies import UtilizationPoint, shape_faults, utilization_table
from moorage.plugins.volume_binding import NO_ROOM, UNMATCHED, BoundVolumes, VolumeBinding, VolumeBindingState
from moorage.plugins.volumes.capacity_score import capacity_scores
from moorage.plugins.volumes.pod_claims import PodClaims, claim_not_found, is_owned_by
from moorage.plugins.volumes.volume_reasons import ClaimsToBind, find
from moorage.rules.volumes.bindings import SELECTED_NODE, requested_storage
from moorage.rules.volumes.csi_migration import AWS_EBS, AZURE_DISK, CINDER, CURRENT_MIGRATION, GCE_PD, Migration
from moorage.state.view import IntArray, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
UNREACHABLE: Final = "node(s) had volume node affinity conflict"
LOST: Final = "pvc(s) bound to non-existent pv(s)"
UNSUPPORTED: Final = (
    "unsupported volumeAttributesClassName is set on claim {} when the feature-gate VolumeAttributesClass is disabled"
)
_HOST_NAME: Final = "kubernetes.io/hostname"
#: The in-tree plugins that nodes may migrate in 1.21.
_DISKS_OF_1_21: Final = frozenset([AWS_EBS, AZURE_DISK, CINDER, GCE_PD])
_FULLER_IS_BETTER: Final = (UtilizationPoint(utilization=0, score=0), UtilizationPoint(utilization=100, score=10))


class BoundVolumesV133(BoundVolumes):
    """VolumeBinding without its score, up to 1.33."""

    def claims_to_bind(self, claims: PodClaims, snapshot: Snapshot) -> ClaimsToBind:
        found = super().claims_to_bind(claims, snapshot)
        if self._gates["VolumeAttributesClass"]:
            return found
        free = [claim for claim in claims.delayed if SELECTED_NODE not in claim.metadata.annotations]
        for claim in sorted(free, key=lambda one: parse(requested_storage(one))):
            if claim.spec.volume_attributes_class_name:
                return found._replace(search=None, fault=UNSUPPORTED.format(claim.key))
        return found


class VolumeBindingV133(BoundVolumesV133, VolumeBinding):
    reuse = BoundVolumes.reuse


class VolumeBindingArgsV121(PluginArgs, frozen=True):
    """The bind timeout."""

    bind_timeout_seconds: int = 600

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        if self.bind_timeout_seconds >= 0:
            return []
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        return [Fault("Invalid value", f"{path}.bindTimeoutSeconds", text, self.bind_timeout_seconds)]


class VolumeBindingArgsV132(VolumeBindingArgsV121, frozen=True):
    """``shape`` requires the feature gate VolumeCapacityPriority."""

    shape: tuple[UtilizationPoint, ...] | None = None

    def completed(self, gates: FeatureGates) -> Self:
        return structs.replace(self, shape=_FULLER_IS_BETTER) if gates["VolumeCapacityPriority"] and not self.shape else self

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        faults = super().faults(path, gates)
        if gates["VolumeCapacityPriority"]:
            faults += shape_faults(self.shape or (), f"{path}.shape", gates.emulated)
        elif self.shape is not None:
            text = "unexpected field `shape`, remove it or turn on the feature gate VolumeCapacityPriority"
            faults.append(Fault("Invalid value", f"{path}.shape", text, self.shape))
        return faults


class _ScoredV132(BoundVolumesV133):
    """The options and texts up to 1.32, and the scores of nodes by the volumes matched there."""

    Args = VolumeBindingArgsV132
    reasons = (UNREACHABLE, *BoundVolumes.reasons[1:])

    def __init__(self, args: VolumeBindingArgsV132 | None = None) -> None:
        self._args = args or VolumeBindingArgsV132()
        super().__init__(self._args.bind_timeout_seconds)
        self._gates = FeatureGates(release="1.32.5")

    def scores_of(self, wanted: ClaimsToBind, nodes: NodeView) -> IntArray:
        found = replace(find(wanted, nodes), groups=[])
        return capacity_scores(found, utilization_table(self._args.completed(self._gates).shape or ()), len(nodes))


class VolumeBindingV132(_ScoredV132, PreScorePlugin[VolumeBindingState], ScorePlugin[VolumeBindingState]):
    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> VolumeBindingState | Skip:
        state = self.pre_filter(pod, snapshot) if self._gates["VolumeCapacityPriority"] else None
        if not isinstance(state, VolumeBindingState) or state.wanted.search is None:
            return SKIP
        chosen = find(state.wanted, feasible).chosen
        return SKIP if chosen is None or not (chosen.which >= 0).any() else state

    def score(self, state: VolumeBindingState, nodes: NodeView) -> IntArray:
        return self.scores_of(state.wanted, nodes)


class VolumeBindingV129(_ScoredV132, ScorePlugin[VolumeBindingState | PodInfo]):
    def score(self, state: VolumeBindingState | PodInfo, nodes: NodeView) -> IntArray:
        if isinstance(state, PodInfo) or not self._gates["VolumeCapacityPriority"]:
            return nodes.zeros()
        return self.scores_of(state.wanted, nodes)


class VolumeBindingV128(VolumeBindingV129):
    #: PreFilter narrows the search to the nodes of local volumes.
    narrows: ClassVar[bool] = True

    def claims_to_bind(self, claims: PodClaims, snapshot: Snapshot) -> ClaimsToBind:
        return BoundVolumes.claims_to_bind(self, claims, snapshot)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> VolumeBindingState | Skip | Hold | Narrow[VolumeBindingState]:
        state = super().pre_filter(pod, snapshot)
        if not isinstance(state, VolumeBindingState) or not self.narrows:
            return state
        names = _nodes_of([volume for _, volume in state.wanted.bound])
        return state if names is None else Narrow(names, state)


class VolumeBindingV126(VolumeBindingV128):
    narrows = False


class VolumeBindingV124(VolumeBindingV126):
    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        open_plugins = CURRENT_MIGRATION.plugins - closed_plugins(handle.gates)
        self._migration = CURRENT_MIGRATION._replace(plugins=open_plugins)


class VolumeBindingV123(VolumeBindingV124):
    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._counted = handle.gates["CSIStorageCapacity"]


class VolumeBindingV122(VolumeBindingV123):
    reasons = (UNREACHABLE, UNMATCHED, NO_ROOM, LOST)

    def why_unusable(self, pod: PodInfo, snapshot: Snapshot) -> str | None:
        claims = snapshot.objects(PersistentVolumeClaim)
        for use in pod.volumes.claims if pod.volumes is not None else ():
            claim = claims.get(use.key)
            if claim is None:
                return claim_not_found(use.name)
            if claim.metadata.deletion_timestamp is not None:
                return f"persistentvolumeclaim {quoted(use.name)} is being deleted"
            if use.ephemeral and not is_owned_by(claim, pod):
                return f"persistentvolumeclaim {quoted(use.name)} was not created for the pod"
        return None


class VolumeBindingV121(VolumeBindingV122):
    Args = VolumeBindingArgsV121  # type: ignore[assignment]  # without an argument that came later

    def __init__(self, args: VolumeBindingArgsV121 | None = None) -> None:
        super().__init__(VolumeBindingArgsV132(bind_timeout_seconds=(args or VolumeBindingArgsV121()).bind_timeout_seconds))

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._migration = Migration(_DISKS_OF_1_21 - closed_plugins(handle.gates), translated_in_1_21)


def _nodes_of(volumes: Sequence[PersistentVolume | None]) -> frozenset[str] | None:
    """Return the host names that all volumes share, volumes without host names left out.

    None if no volume names hosts, or a volume is missing.

    Source  kube-scheduler 1.28.8, volumebinding/binder.go, GetEligibleNodes; volume/util, GetLocalPersistentVolumeNodeNames
    """
    if any(volume is None for volume in volumes):
        return None
    found = [names for volume in volumes if volume is not None and (names := _host_names(volume))]
    return frozenset.intersection(*found) if found else None


def _host_names(volume: PersistentVolume) -> frozenset[str]:
    """Return the host names of a volume's node affinity: within a term those that all expressions list."""
    required = volume.required_affinity
    names: set[str] = set()
    for term in required.node_selector_terms if required is not None else ():
        listed = [set(one.values) for one in term.match_expressions if (one.key, one.operator) == (_HOST_NAME, "In")]
        names |= set.intersection(*listed) if listed else set()
    return frozenset(names)
