"""Feature gates of kube-scheduler 1.36 that change scheduling decisions.

Earlier releases have their own gates (``old_gates``). Gates that a release lacks are closed for it, except those in
``_MACHINERY``, which stay open for every release.

A gate has a stage. ``AllAlpha`` and ``AllBeta`` set every gate of that stage that is not set by name. A locked gate keeps its
default. A gate that depends on others cannot be open while they are closed.

Source  kubernetes, pkg/features/kube_features.go and pkg/scheduler/framework/plugins/feature/feature.go;
        component-base, featuregate/feature_gate.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moorage.errors import ConfigError, Fault
from moorage.framework.inert_gates import OTHER_GATES
from moorage.framework.legacy_gates import OLD_RELEASES, OTHER_OLD_GATES, old_gates

__all__ = ["GATES", "TODAY", "FeatureGates", "Gate"]

#: The release that is emulated by default.
TODAY: Final = "1.36"

ALPHA, BETA, STABLE = "ALPHA", "BETA", "GA"
#: A gate that sets all gates of a stage → the stage.
_STAGES: Final[Mapping[str, str]] = {"AllAlpha": ALPHA, "AllBeta": BETA}


class Gate(NamedTuple):
    """A gate as 1.36 ships it. ``needs`` are the gates that must be open for this one to be open."""

    default: bool
    stage: str
    locked: bool = False
    needs: tuple[str, ...] = ()


_DRA = ("DynamicResourceAllocation",)

#: Every gate that kube-scheduler's decisions depend on, and ``WorkloadWithJob``, which the embedded controllers use.
GATES: Final[Mapping[str, Gate]] = {
    "DRAAdminAccess": Gate(True, STABLE, locked=True, needs=_DRA),
    "DRAConsumableCapacity": Gate(True, BETA, needs=_DRA),
    "DRADeviceBindingConditions": Gate(True, BETA, needs=("DRAResourceClaimDeviceStatus", *_DRA)),
    "DRADeviceTaintRules": Gate(False, BETA, needs=("DRADeviceTaints",)),
    "DRADeviceTaints": Gate(True, BETA, needs=_DRA),
    "DRAExtendedResource": Gate(True, BETA, needs=_DRA),
    "DRAListTypeAttributes": Gate(False, ALPHA, needs=_DRA),
    "DRANodeAllocatableResources": Gate(False, ALPHA, needs=_DRA),
    "DRAPartitionableDevices": Gate(True, BETA, needs=_DRA),
    "DRAPrioritizedList": Gate(True, STABLE, needs=_DRA),
    "DRAResourceClaimDeviceStatus": Gate(True, BETA),
    "DRASchedulerFilterTimeout": Gate(True, BETA, needs=_DRA),
    "DRAWorkloadResourceClaims": Gate(False, ALPHA, needs=(*_DRA, "GenericWorkload")),
    "DynamicResourceAllocation": Gate(True, STABLE, locked=True),
    "GangScheduling": Gate(False, ALPHA, needs=("GenericWorkload",)),
    "GenericWorkload": Gate(False, ALPHA),
    "InPlacePodLevelResourcesVerticalScaling": Gate(
        True, BETA, needs=("InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources")
    ),
    "InPlacePodVerticalScaling": Gate(True, STABLE, locked=True),
    "MatchLabelKeysInPodTopologySpread": Gate(True, BETA),
    "NodeDeclaredFeatures": Gate(True, BETA),
    "NodeInclusionPolicyInPodTopologySpread": Gate(True, STABLE, locked=True),
    "NominatedNodeNameForExpectation": Gate(True, BETA),
    "OpportunisticBatching": Gate(True, BETA),
    "PodLevelResources": Gate(True, BETA),
    "SchedulerAsyncAPICalls": Gate(False, BETA),
    "SchedulerAsyncPreemption": Gate(True, BETA),
    "SchedulerPopFromBackoffQ": Gate(True, BETA),
    "SchedulerQueueingHints": Gate(True, STABLE, locked=True),
    "SidecarContainers": Gate(True, STABLE),
    "StorageCapacityScoring": Gate(False, ALPHA),
    "TaintTolerationComparisonOperators": Gate(False, ALPHA),
    "TopologyAwareWorkloadScheduling": Gate(False, ALPHA, needs=("GenericWorkload",)),
    "VolumeAttributesClass": Gate(True, STABLE, locked=True),
    "VolumeLimitScaling": Gate(False, ALPHA),
    "WorkloadAwarePreemption": Gate(False, ALPHA, needs=("GangScheduling",)),
    "WorkloadWithJob": Gate(False, ALPHA, needs=("GenericWorkload",)),
}

_TRUE = frozenset(["1", "t", "T", "TRUE", "true", "True"])
_FALSE = frozenset(["0", "f", "F", "FALSE", "false", "False"])


#: Gates of ``TODAY`` that govern how the scheduler works rather than what it decides; here they are open for every release.
_MACHINERY: Final = frozenset(["SchedulerQueueingHints"])


class _Table(NamedTuple):
    """The gates of a release.

    ``gates`` may be set and change decisions; ``others`` may be set and change nothing; ``fixed`` cannot be set.
    """

    gates: Mapping[str, Gate]
    others: frozenset[str]
    fixed: Mapping[str, bool]


def _table_of(release: str) -> _Table:
    if release not in OLD_RELEASES:
        return _Table(GATES, OTHER_GATES, {})
    gates = {name: Gate(gate.default, gate.stage) for name, gate in old_gates(release).items()}
    return _Table(gates, OTHER_OLD_GATES, {name: name in _MACHINERY for name in GATES if name not in gates})


class FeatureGates:
    """Which gates are open. Read one with ``gates["Name"]``; an unknown name raises KeyError, so that typos are found.

    ``release`` is one of ``OLD_RELEASES`` or ``TODAY``. The gates of ``TODAY`` can be read for any release.
    """

    def __init__(self, overrides: Mapping[str, bool] | None = None, release: str = TODAY) -> None:
        table = _table_of(release)
        self.release = release
        self._open = {**table.fixed, **_resolve(overrides or {}, table)}

    def __getitem__(self, gate: str) -> bool:
        return self._open[gate]

    @staticmethod
    def faults(overrides: Mapping[str, bool], release: str = TODAY) -> list[Fault]:
        """Return a fault for each gate that does not exist, is locked, or is open while a gate it depends on is closed."""
        table = _table_of(release)
        faults = [fault for gate, value in overrides.items() if (fault := _setting_fault(gate, value, table))]
        return faults or _dependency_faults(_resolve(overrides, table), table)

    @classmethod
    def parse(cls, text: str, release: str = TODAY) -> FeatureGates:
        """Read the value of ``--feature-gates``: ``Name=true,Other=false``.

        Raises  ConfigError with every fault found
        """
        overrides: dict[str, bool] = {}
        faults: list[Fault] = []
        for part in filter(None, map(str.strip, text.split(","))):
            name, equals, word = (piece.strip() for piece in part.partition("="))
            if not equals:
                faults.append(
                    Fault("Required value", f"featureGates.{name}", f"missing bool value for {name}; write {name}=true")
                )
            elif word in _TRUE or word in _FALSE:
                overrides[name] = word in _TRUE
            else:
                faults.append(Fault("Invalid value", f"featureGates.{name}", "write true or false", word))
        faults += cls.faults(overrides, release)
        if faults:
            raise ConfigError("--feature-gates cannot be used:", faults)
        return cls(overrides, release)


def _resolve(overrides: Mapping[str, bool], table: _Table) -> dict[str, bool]:
    staged = {stage: overrides[name] for name, stage in _STAGES.items() if name in overrides}
    return {
        name: overrides.get(name, gate.default if gate.locked else staged.get(gate.stage, gate.default))
        for name, gate in table.gates.items()
    }


def _setting_fault(name: str, value: bool, table: _Table) -> Fault | None:
    if name in _STAGES or name in table.others:
        return None
    gate = table.gates.get(name)
    if gate is None:
        return Fault("Not found", f"featureGates.{name}", f"unrecognized feature gate: {name}", name)
    if gate.locked and value is not gate.default:
        locked = str(gate.default).lower()
        detail = f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {locked}"
        return Fault("Invalid value", f"featureGates.{name}", detail, value)
    return None


def _dependency_faults(opened: Mapping[str, bool], table: _Table) -> list[Fault]:
    faults = []
    for name, gate in table.gates.items():
        closed = [need for need in gate.needs if not opened[need]]
        if opened[name] and closed:
            detail = f"{name} is enabled, but depends on features that are disabled: [{' '.join(closed)}]"
            faults.append(Fault("Invalid value", f"featureGates.{name}", detail, True))
    return faults
