"""Feature gates: defaults of 1.36, how the flag is read, and what cannot be set."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import GATES, FeatureGates
from moorage.api.releases import RELEASES
from moorage.errors import ConfigError


def faults_of(text):
    with pytest.raises(ConfigError) as caught:
        FeatureGates.parse(text)
    return [fault.detail for fault in caught.value.faults]


def test_no_gates_given_means_the_defaults_of_the_release():
    gates = FeatureGates.parse("")
    assert {name: gates[name] for name in GATES} == {name: gate.default for name, gate in GATES.items()}
    assert gates["NodeDeclaredFeatures"]
    assert not gates["GangScheduling"]


def test_a_typo_in_the_code_is_found():
    with pytest.raises(KeyError):
        FeatureGates()["NodeDeclaredFeature"]


READ = {
    "one": ("StorageCapacityScoring=true", "StorageCapacityScoring", True),
    "blanks and empty parts": (
        (
            " , PodLevelResources = false,InPlacePodLevelResourcesVerticalScaling=f,"
            "PodLevelResourcesFixDefaulting=0,PodLevelResourcesFixKubeletQOSClass=0,"
        ),
        "PodLevelResources",
        False,
    ),
    "Go's other words": ("VolumeLimitScaling=T", "VolumeLimitScaling", True),
    "the last one wins": ("VolumeLimitScaling=1,VolumeLimitScaling=0", "VolumeLimitScaling", False),
    "every alpha gate": ("AllAlpha=true,GenericWorkload=true", "CompositePodGroup", True),
    "every alpha gate but one": (
        "DRAListTypeAttributes=false,AllAlpha=true,GenericWorkload=true",
        "DRAListTypeAttributes",
        False,
    ),
    "every beta gate": ("AllBeta=true", "SchedulerAsyncAPICalls", True),
    "no beta gate": ("AllBeta=false", "SchedulerAsyncPreemption", False),
    "stable gates have no stage to set": (
        (
            "AllBeta=false,AllAlpha=true,GenericWorkload=true,DRAPartitionableDevices=true,PodLevelResourceManagers=false,"
            "UserNamespacesHostNetworkSupport=false"
        ),
        "NodeDeclaredFeatures",
        True,
    ),
    "another component's gate": ("KubeletInUserNamespace=true", "PodLevelResources", True),
    "gates whose names differ from Go's constants": (
        "CustomCPUCFSQuotaPeriod=true,RuntimeClassInImageCriApi=true,KMSv1=true,UnauthenticatedHTTP2DOSMitigation=false",
        "PodLevelResources",
        True,
    ),
    "a locked gate may be named": ("DynamicResourceAllocation=true", "DynamicResourceAllocation", True),
}


@pytest.mark.parametrize(("text", "gate", "is_open"), READ.values(), ids=READ)
def test_the_feature_gates_flag_is_parsed(text, gate, is_open):
    assert FeatureGates.parse(text)[gate] is is_open


REFUSED = {
    "unknown": ("NoSuchGate=true", ["unrecognized feature gate: NoSuchGate"]),
    "wrong case": ("gangscheduling=true", ["unrecognized feature gate: gangscheduling"]),
    "a constant of Go's code": ("CPUCFSQuotaPeriod=true", ["unrecognized feature gate: CPUCFSQuotaPeriod"]),
    "sidecars": (
        "SidecarContainers=false",
        ["unrecognized feature gate: SidecarContainers"],
    ),
    "no value": ("GenericWorkload", ["missing bool value for GenericWorkload; write GenericWorkload=true"]),
    "not a bool": ("GenericWorkload=yes", ["write true or false"]),
    "two equal signs": ("GenericWorkload=true=false", ["write true or false"]),
    "locked": (
        "DynamicResourceAllocation=false",
        ["cannot set feature gate DynamicResourceAllocation to false, feature is locked to true"],
    ),
    "without what it builds on": (
        "PodGroupPreemptionPolicy=true",
        ["PodGroupPreemptionPolicy is enabled, but depends on features that are disabled: [GenericWorkload]"],
    ),
    "what others build on": (
        "PodLevelResources=false",
        [
            f"{gate} is enabled, but depends on features that are disabled: [PodLevelResources]"
            for gate in (
                "InPlacePodLevelResourcesVerticalScaling",
                "PodLevelResourcesFixDefaulting",
                "PodLevelResourcesFixKubeletQOSClass",
            )
        ],
    ),
    "all at once": (
        "A=true,B,C=maybe",
        ["missing bool value for B; write B=true", "write true or false", "unrecognized feature gate: A"],
    ),
}


@pytest.mark.parametrize(("text", "details"), REFUSED.values(), ids=REFUSED)
def test_invalid_gate_settings_are_rejected(text, details):
    assert faults_of(text) == details


def test_gates_without_effect_build_on_others():
    """In 1.37 the gate that these need is locked."""
    with pytest.raises(ConfigError) as refused:
        FeatureGates.parse("NodeDeclaredFeatures=false,InPlacePodLevelResourcesVerticalScaling=false", "1.36")
    assert [fault.detail for fault in refused.value.faults] == [
        f"{name} is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]"
        for name in (
            "ExtendWebSocketsToKubelet",
            "InPlacePodVerticalScalingInitContainers",
            "RestartAllContainersOnContainerExits",
        )
    ]


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_every_gate_is_known_once(release):
    assert not release.inert_gates & release.gates.keys()
    assert release.dependent_gates.keys() <= release.inert_gates
    gates = {**release.gates, **release.dependent_gates}
    assert all(need in gates for gate in gates.values() for need in gate.needs)
