"""The releases of Kubernetes that can be emulated: one object each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from moorage.releases.gates_1_36 import GATES_1_36
from moorage.releases.inert_gates import OTHER_GATES
from moorage.releases.legacy_gates import OTHER_OLD_GATES, old_gates
from moorage.releases.release import ALPHA, BETA, STABLE, Gate, Release

__all__ = ["ALPHA", "BETA", "CURRENT", "LEGACY", "RELEASES", "STABLE", "TODAY", "Gate", "Release"]

#: The release that is emulated by default.
TODAY: Final = "1.36"

#: Gates of ``CURRENT`` that govern how the scheduler works rather than what it decides; they are open for every release.
_MACHINERY: Final = frozenset(["SchedulerQueueingHints"])

CURRENT: Final = Release(
    name=TODAY,
    plugins="1.36",
    documents=frozenset(["v1", "v1beta2", "v1beta3"]),
    gates=GATES_1_36,
    inert_gates=OTHER_GATES,
)


def _legacy(name: str) -> Release:
    gates = {gate: Gate(old.default, old.stage) for gate, old in old_gates(name).items()}
    return Release(
        name=name,
        plugins="1.21",
        documents=frozenset(["v1beta1", "Policy"]),
        gates=gates,
        inert_gates=OTHER_OLD_GATES,
        fixed_gates={gate: gate in _MACHINERY for gate in GATES_1_36 if gate not in gates},
        gated_kinds={
            "CSIDriver": "CSIStorageCapacity",
            "CSIStorageCapacity": "CSIStorageCapacity",
            "DeviceClass": "",
            "Namespace": "PodAffinityNamespaceSelector",
            "ResourceClaim": "",
            "ResourceSlice": "",
            "VolumeAttachment": "",
        },
        legacy_flags=True,
        drops_later_pod_fields=True,
        extender_nodes_replace=False,
        tries_nominated_node_first=False,
        migrates_in_tree_disks=False,
        balances_attached_volumes=True,
        legacy_metrics=True,
    )


#: The releases with their own plugins, flags and configuration documents, oldest first.
LEGACY: Final = (
    replace(
        _legacy("1.19"),
        default_lock="endpointsleases",
        open_paths=("/healthz",),
        serves_resource_metrics=False,
        weight_range="[0-100]",
    ),
    replace(_legacy("1.20"), open_paths=("/healthz",), weight_range="[0-100]"),
    _legacy("1.21"),
)

#: All releases by name, oldest first.
RELEASES: Final[Mapping[str, Release]] = {one.name: one for one in (*LEGACY, CURRENT)}
