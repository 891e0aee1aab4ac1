"""Pre-releases of the release after the newest one: how each differs from it. Only ``--emulate`` selects them.

Pod groups follow the rules of 1.36 there: GenericWorkload alone governs them, and opens what other gates open in 1.36.

Source  kubernetes 1.37.0-alpha.2, pkg/features/kube_features.go and pkg/scheduler
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from moorage.api.releases.earlier_releases import CURRENT
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate, Release

__all__ = ["LATER"]

_DRA: Final = ("DynamicResourceAllocation",)
_GROUPS: Final = "GenericWorkload"

#: Gates that 1.37 no longer has → their value there.
_GONE: Final = {
    "GangScheduling": False, "SchedulerQueueingHints": True, "SidecarContainers": True, "WorkloadAwarePreemption": False,
}  # fmt: skip
_GATES_1_37: Final[Mapping[str, Gate]] = {
    **{name: gate for name, gate in CURRENT.gates.items() if name not in _GONE},
    "DRAExtendedResource": Gate(True, STABLE, locked=True, needs=_DRA),
    "StorageCapacityScoring": Gate(True, BETA),
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
        "CompositePodGroup",
        "ConsistentListFromCacheSkipTimeoutFallback",
        "EtcdRangeStream",
        "HPAGeneration",
        "KubeProxyIPVS",
        "NodeControllerLeaseCircuitBreaker",
        "StaleControllerConsistencyHPA",
        "WatchListCompression",
        "WebhookRoundTripLoadBalancing",
    ]
)

_1_37_0_ALPHA_2: Final = replace(
    CURRENT,
    name="1.37.0-alpha.2",
    documents=frozenset(["v1"]),
    gates=_GATES_1_37,
    inert_gates=(CURRENT.inert_gates - _INERT_GONE) | _INERT_NEW,
    dependent_gates={
        **CURRENT.dependent_gates,
        "CompositePodGroup": Gate(False, ALPHA, needs=(_GROUPS, "TopologyAwareWorkloadScheduling")),
    },
    fixed_gates=_GONE,
    opened_with={"GangScheduling": _GROUPS, "WorkloadAwarePreemption": _GROUPS},
    variants={"DynamicResources": "1.37", "ImageLocality": "1.37"},
    removed_plugins=(),
)

#: Oldest first.
LATER: Final[tuple[Release, ...]] = (_1_37_0_ALPHA_2,)
