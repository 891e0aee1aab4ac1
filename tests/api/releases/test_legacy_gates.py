"""Gates of earlier releases: their defaults, what may be set, and gates of today that are asked of them."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import GATES, TODAY, FeatureGates
from moorage.api.releases import LEGACY
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate
from moorage.api.releases.release_gates import gates_of
from moorage.errors import ConfigError

GATE = "CloudControllerManagerWebhook"
OLD_RELEASES = [one.name for one in LEGACY]


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_defaults_are_the_release_s(release):
    gates = FeatureGates.parse("", release)
    assert gates.release == release
    shipped = gates_of(release).deciding
    assert {name: gates[name] for name in shipped} == {name: gate.default for name, gate in shipped.items()}


def test_releases_differ():
    assert [FeatureGates(release=r)["DefaultPodTopologySpread"] for r in OLD_RELEASES] == [False, True, True]
    for gate in ("CSIMigrationOpenStack", "CSIStorageCapacity", "GenericEphemeralVolume"):
        assert [FeatureGates(release=r)[gate] for r in OLD_RELEASES] == [False, False, True]


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_what_came_later_is_closed(release):
    gates = FeatureGates(release=release)
    later = [name for name in (*GATES, "SchedulerQueueingHints") if name not in gates_of(release).deciding]
    assert [name for name in later if gates[name]] == ["SchedulerQueueingHints"], "queues are run as today's"


def test_one_gate_of_1_37_opens_what_several_open_in_1_36():
    opened = FeatureGates.parse("GenericWorkload=true", "1.37")
    assert opened["GangScheduling"]
    assert opened["WorkloadAwarePreemption"]
    closed = FeatureGates(release="1.37")
    assert [closed[gate] for gate in ("GangScheduling", "StorageCapacityScoring", "SidecarContainers")] == [False, True, True]
    assert [fault.value for fault in FeatureGates.faults({"GangScheduling": True}, "1.37")] == ["GangScheduling"]


def test_old_gates_are_set_by_the_flag():
    assert FeatureGates.parse("BalanceAttachedNodeVolumes=true", "1.21")["BalanceAttachedNodeVolumes"]
    assert FeatureGates.parse("AllAlpha=true", "1.21")["BalanceAttachedNodeVolumes"]
    FeatureGates.parse(",".join(f"{name}=true" for name in sorted(gates_of("1.21").inert)), "1.21")


@pytest.mark.parametrize(
    ("gate", "release"), [("SchedulerQueueingHints", "1.21"), ("Typo", "1.21"), ("CSIMigrationAWS", TODAY)]
)
def test_a_gate_the_release_does_not_have_is_refused(gate, release):
    with pytest.raises(ConfigError, match=f"unrecognized feature gate: {gate}"):
        FeatureGates.parse(f"{gate}=true", release)


HISTORIES = {
    "before it came": ("DRAAdminAccess", "1.31", None),
    "as alpha": ("DRAAdminAccess", "1.33", Gate(False, ALPHA)),
    "gates check what they need": ("DRAAdminAccess", "1.35", Gate(True, BETA, needs=("DynamicResourceAllocation",))),
    "locked": ("DRAAdminAccess", "1.36", Gate(True, STABLE, locked=True, needs=("DynamicResourceAllocation",))),
    "beta, but off": ("DynamicResourceAllocation", "1.33", Gate(False, BETA)),
    "decisions depend on it no more": ("PodSchedulingReadiness", "1.30", None),
}


@pytest.mark.parametrize(("name", "series", "gate"), HISTORIES.values(), ids=HISTORIES)
def test_a_history_says_what_a_gate_was(name, series, gate):
    assert gates_of(series).deciding.get(name) == gate


def test_an_inert_gate_may_come_again():
    """The gate has the spans 1.27 to 1.31, and from 1.36 on."""
    having = [series for series in ("1.26", "1.27", "1.31", "1.32", "1.35", "1.36", "1.37") if GATE in gates_of(series).inert]
    assert having == ["1.27", "1.31", "1.36", "1.37"]


#: The gates of the scheduler in 1.36 and 1.37: stage and default, ``!`` if locked; "-" if the release does not have it.
#: Source  kubernetes, pkg/features/kube_features.go of the 1.37 cycle; the page of feature gates of 1.37
GATES_OF_1_37 = """
CompositePodGroup - alpha                        DRAAdminAccess ga! ga!
DRAConsumableCapacity beta beta                  DRADerivedAttributes - alpha
DRADeviceBindingConditions beta beta             DRADeviceCompatibilityGroups - alpha
DRADeviceTaintRules beta-off ga                  DRADeviceTaints beta ga
DRAExtendedResource beta ga!                     DRAListTypeAttributes alpha alpha
DRAFractionalCapacityRange - beta-off
DRANodeAllocatableResources alpha alpha          DRAPartitionableDevices beta beta
DRAPrioritizedList ga ga!                        DRAResourceClaimDeviceStatus beta ga!
DRASchedulerFilterTimeout beta beta              DRAWorkloadResourceClaims alpha beta-off
DynamicResourceAllocation ga! ga!                GenericWorkload alpha beta-off
InPlacePodLevelResourcesVerticalScaling beta beta  InPlacePodVerticalScaling ga! ga!
MatchLabelKeysInPodTopologySpread beta beta      NodeDeclaredFeatures beta ga!
NodeInclusionPolicyInPodTopologySpread ga! ga!   NominatedNodeNameForExpectation beta beta
OpportunisticBatching beta beta                  PodGroupPreemptionPolicy - alpha
PodLevelResources beta beta                      SchedulerAsyncAPICalls beta-off beta-off
SchedulerAsyncPreemption beta beta               SchedulerPopFromBackoffQ beta beta
StorageCapacityScoring alpha beta                TaintTolerationComparisonOperators alpha alpha
TopologyAwareWorkloadScheduling alpha alpha      VolumeAttributesClass ga! ga!
VolumeLimitScaling alpha beta
"""
#: Gates of 1.37 that change no decision here.
OTHERS_OF_1_37 = (
    "DRAOptionalNodeOperations InPlacePodVerticalScalingSchedulerPreemption "
    "InterPodAffinityHostnameFastPath SchedulerPreQueueingHints VolumeBindMountOptions DRAPartitionableDevicesType"
)


@pytest.mark.parametrize("series", ["1.36", "1.37"])
def test_the_gates_of_1_37_are_those_of_its_source(series):
    def shown(gate):
        if gate is None:
            return "-"
        off = "-off" if gate.stage == BETA and not gate.default else ""
        return f"{gate.stage.lower()}{off}{'!' * gate.locked}"

    words = GATES_OF_1_37.split()
    expected = dict(zip(words[::3], words[1 + (series == "1.37") :: 3], strict=True))
    deciding = gates_of(series).deciding
    assert {name: shown(deciding.get(name)) for name in expected} == expected
    assert set(OTHERS_OF_1_37.split()) <= gates_of("1.37").inert
