"""Releases after the one that is emulated by default: how each differs from it. Only ``--emulate`` selects them.

GenericWorkload alone governs pod groups in 1.37, and opens what other gates open in 1.36.

Source  kubernetes 1.37, pkg/features/kube_features.go and pkg/scheduler
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moorage.api.releases.earlier_releases import CURRENT
from moorage.api.releases.release import Release, gates_of

__all__ = ["LATER"]

_GROUPS: Final = "GenericWorkload"

#: Gates that 1.37 no longer has → their value there.
_GONE: Final = {
    "GangScheduling": False, "SchedulerQueueingHints": True, "SidecarContainers": True, "WorkloadAwarePreemption": False,
}  # fmt: skip
<<<<<<< HEAD
_GATES_1_37: Final[Mapping[str, Gate]] = {
    **{name: gate for name, gate in CURRENT.gates.items() if name not in _GONE},
    "CompositePodGroup": Gate(False, ALPHA, needs=(_GROUPS, "TopologyAwareWorkloadScheduling")),
    "DRADeviceTaintRules": Gate(True, STABLE, needs=("DRADeviceTaints",)),
    "DRADeviceTaints": Gate(True, STABLE, needs=_DRA),
    "DRAExtendedResource": Gate(True, STABLE, locked=True, needs=_DRA),
    "DRAPrioritizedList": Gate(True, STABLE, locked=True, needs=_DRA),
    "DRAResourceClaimDeviceStatus": Gate(True, STABLE, locked=True),
    "DRAWorkloadResourceClaims": Gate(False, BETA, needs=(*_DRA, _GROUPS)),
    _GROUPS: Gate(False, BETA),
    "NodeDeclaredFeatures": Gate(True, STABLE, locked=True),
    "PodGroupPreemptionPolicy": Gate(False, ALPHA, needs=(_GROUPS,)),
    "StorageCapacityScoring": Gate(True, BETA),
    "VolumeLimitScaling": Gate(True, BETA),
}
_INERT_GONE: Final = frozenset(
    [
        "APIServerTracing",
        "AnonymousAuthConfigurableEndpoints",
        "AnyVolumeDataSource",
        "AuthorizeNodeWithSelectors",
        "AuthorizeWithSelectors",
        "BtreeWatchCache",
        "ConsistentListFromCache",
        "JobBackoffLimitPerIndex",
        "JobPodReplacementPolicy",
        "JobSuccessPolicy",
        "LogarithmicScaleDown",
        "OrderedNamespaceDeletion",
        "PodLifecycleSleepAction",
        "PodLifecycleSleepActionAllowZero",
        "RelaxedDNSSearchValidation",
        "ResilientWatchCacheInitialization",
        "RetryGenerateName",
        "StreamingCollectionEncodingToJSON",
        "StreamingCollectionEncodingToProtobuf",
        "StructuredAuthenticationConfiguration",
    ]
)
_INERT_NEW: Final = frozenset(
    [
        "ConsistentListFromCacheSkipTimeoutFallback",
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAFractionalCapacityRange",
        "DRAOptionalNodeOperations",
        "EtcdRangeStream",
        "HPAGeneration",
        "InPlacePodVerticalScalingSchedulerPreemption",
        "InterPodAffinityHostnameFastPath",
        "KubeProxyIPVS",
        "NodeControllerLeaseCircuitBreaker",
        "SchedulerPreQueueingHints",
        "StaleControllerConsistencyHPA",
        "WatchListCompression",
        "WebhookRoundTripLoadBalancing",
    ]
)
=======
_GATES: Final = gates_of("1.37")
>>>>>>> 54f9d3ea (releases: read feature gates from one table of histories)

_1_37_1: Final = replace(
    CURRENT,
    name="1.37.1",
    documents=frozenset(["v1"]),
<<<<<<< HEAD
    gates=_GATES_1_37,
    inert_gates=(CURRENT.inert_gates - _INERT_GONE) | _INERT_NEW,
=======
    gates=_GATES.deciding,
    inert_gates=_GATES.inert,
    dependent_gates=_GATES.dependent,
>>>>>>> 54f9d3ea (releases: read feature gates from one table of histories)
    fixed_gates=_GONE,
    opened_with={"GangScheduling": _GROUPS, "WorkloadAwarePreemption": _GROUPS},
    variants=dict.fromkeys(("DefaultPreemption", "DynamicResources", "GangScheduling", "ImageLocality"), "1.37"),
    lacks_points={"GangScheduling": "permit"},
    groups_as_one=True,
    nominates_gated_pods=True,
    removed_plugins=(),
    group_versions=("v1beta1", "v1alpha3"),
    compared=False,
)

#: Oldest first.
LATER: Final[tuple[Release, ...]] = (_1_37_1,)
