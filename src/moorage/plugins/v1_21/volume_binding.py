"""VolumeBinding of 1.21: other texts than the current plugin, and a score that prefers fuller storage.

The text does not name the claim whose volume is missing. The capacity of drivers counts only with the gate CSIStorageCapacity,
and volumes migrate to CSI drivers only where the gates say so. With the gate VolumeCapacityPriority, nodes score by the
existing volumes that would be bound there (not those to be provisioned): the fuller these would be, the higher.

Reads     as the current plugin
Rejects   as the current plugin: nodes, or the pod; preemption never helps
Scores    0-100 by how full the matching volumes would be, the mean over storage classes; 0 for pods without claims, and for all
          pods while the gate is off
Source    kube-scheduler 1.21, plugins/volumebinding; pkg/controller/volume/scheduling/scheduler_binder.go
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolumeClaim
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import ScorePlugin
from moorage.framework.registry import Handle
from moorage.plugins import volume_binding as today
from moorage.plugins.v1_21.shared.in_tree_disks import migration_under
from moorage.plugins.volume_binding import BoundVolumes, VolumeBindingState
from moorage.plugins.volumes.capacity_score import capacity_scores
from moorage.plugins.volumes.pod_claims import claim_not_found, is_owned_by
from moorage.plugins.volumes.volume_reasons import find
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

# kube-scheduler's own texts, kept word for word: people search their events for them.
UNREACHABLE: Final = "node(s) had volume node affinity conflict"
LOST: Final = "pvc(s) bound to non-existent pv(s)"

#: The score by percentage of use: a straight line.
_FULLER_IS_BETTER: Final = np.arange(101)


class VolumeBindingArgsV121(PluginArgs, frozen=True):
    """The bind timeout."""

    bind_timeout_seconds: int = 600

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        if self.bind_timeout_seconds >= 0:
            return []
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        return [Fault("Invalid value", f"{path}.bindTimeoutSeconds", text, self.bind_timeout_seconds)]


class VolumeBindingV121(BoundVolumes, ScorePlugin[VolumeBindingState | PodInfo]):
    Args = VolumeBindingArgsV121
    reuse = BoundVolumes.reuse
    reasons = (UNREACHABLE, today.UNMATCHED, today.NO_ROOM, LOST)

    def __init__(self, args: VolumeBindingArgsV121 | None = None) -> None:
        super().__init__((args or VolumeBindingArgsV121()).bind_timeout_seconds)
        self._configure(FeatureGates(release="1.21"))

    def attach(self, handle: Handle) -> None:
        self._configure(handle.gates)

    def _configure(self, gates: FeatureGates) -> None:
        self._migration = migration_under(gates)
        self._counted = gates["CSIStorageCapacity"]
        self._scores = gates["VolumeCapacityPriority"]

    def why_unusable(self, pod: PodInfo, snapshot: Snapshot) -> str | None:
        return unusable(pod, snapshot)

    def score(self, state: VolumeBindingState | PodInfo, nodes: NodeView) -> IntArray:
        if not self._scores or isinstance(state, PodInfo):
            return nodes.zeros()
        found = replace(find(state.wanted, nodes), groups=[])
        return capacity_scores(found, _FULLER_IS_BETTER, len(nodes))


def unusable(pod: PodInfo, snapshot: Snapshot) -> str | None:
    """Return the reason if a claim of the pod is missing, terminating or owned by another pod; otherwise None."""
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
