"""The releases 1.22 to 1.29: how each differs from the one after it.

Source  kubernetes, the scheduler of each release; docs/reference/releases.md names the pull requests
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moorage.api.releases.earlier_releases import EARLIER, GATES_1_30, before_release, gates_before, of_minor
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate

__all__ = ["OLDER", "OTHER_OLD_GATES", "old_gates"]


# -- older gates -------------------------------------------------------------------------------------------------------
# Feature gates of 1.22 to 1.29 that change scheduling decisions: what differs from the next release.
#
# Source  kubernetes 1.22 to 1.29, pkg/features/kube_features.go

_ON: Final = Gate(True, BETA)
_OFF: Final = Gate(False, ALPHA)

GATES_1_29: Final = gates_before(GATES_1_30, {"MinDomainsInPodTopologySpread": _ON, "PodSchedulingReadiness": _ON})
GATES_1_28: Final = gates_before(GATES_1_29, {"ReadWriteOncePod": _ON, "SidecarContainers": _OFF}, "VolumeAttributesClass")
GATES_1_27: Final = gates_before(GATES_1_28, {}, "SchedulerQueueingHints SidecarContainers")
GATES_1_26: Final = gates_before(
    GATES_1_27,
    {
        "MatchLabelKeysInPodTopologySpread": _OFF,
        "MinDomainsInPodTopologySpread": Gate(False, BETA),
        "PodSchedulingReadiness": _OFF,
        "ReadWriteOncePod": _OFF,
    },
    "InPlacePodVerticalScaling",
)
GATES_1_25: Final = gates_before(
    GATES_1_26, {"NodeInclusionPolicyInPodTopologySpread": _OFF}, "DynamicResourceAllocation PodSchedulingReadiness"
)
GATES_1_24: Final = gates_before(
    GATES_1_25,
    {
        **dict.fromkeys(("CSIMigration", "CSIMigrationAWS", "CSIMigrationGCE", "LocalStorageCapacityIsolation"), _ON),
        "CSIMigrationAzureDisk": Gate(True, STABLE),
        "CSIMigrationPortworx": _OFF,
        "MinDomainsInPodTopologySpread": _OFF,
    },
    "MatchLabelKeysInPodTopologySpread NodeInclusionPolicyInPodTopologySpread",
)
GATES_1_23: Final = gates_before(
    GATES_1_24,
    {
        "CSIMigrationAzureDisk": _ON,
        **dict.fromkeys(
            (
                "CSIMigrationOpenStack",
                "CSIStorageCapacity",
                "DefaultPodTopologySpread",
                "PodAffinityNamespaceSelector",
                "PodOverhead",
                "PreferNominatedNode",
            ),
            _ON,
        ),
    },
    "MinDomainsInPodTopologySpread",
)
GATES_1_22: Final = gates_before(
    GATES_1_23,
    {
        **dict.fromkeys(("CSIMigrationAWS", "CSIMigrationAzureDisk", "CSIMigrationGCE"), Gate(False, BETA)),
        "GenericEphemeralVolume": _ON,
    },
    "CSIMigrationPortworx",
)


# -- older releases ----------------------------------------------------------------------------------------------------

_DISK_LIMITS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")

#: Plugins of 1.22 that score by resources as a strategy of NodeResourcesFit does.
_RESOURCE_SCORES: Final = ("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio")

#: Flags of klog, up to 1.25.
_KLOG_FLAGS: Final = frozenset([
    "add-dir-header", "alsologtostderr", "log-backtrace-at", "log-dir", "log-file", "log-file-max-size", "logtostderr",
    "one-output", "skip-headers", "skip-log-headers", "stderrthreshold",
])  # fmt: skip

#: Plugins that cannot reject a pod count, too: they name all events of these kinds.
_MOVING: Final = frozenset([
    "AssignedPod", "Node", "PersistentVolume", "PersistentVolumeClaim", "storage.k8s.io/CSINode",
])  # fmt: skip

_1_30_10: Final = EARLIER[-1]

_1_29_14: Final = before_release(
    _1_30_10,
    "1.29.14",
    {
        **dict.fromkeys(_DISK_LIMITS, "1.29"),
        "ImageLocality": "1.29",
        "NodeAffinity": "1.29",
        "NodeResourcesFit": "1.29",
        "NodeVolumeLimits": "1.29",
        "VolumeBinding": "1.29",
    },
    lacks_points={**_1_30_10.lacks_points, "VolumeBinding": "preScore"},
    lacks_flags=_1_30_10.lacks_flags | {"log-text-info-buffer-size", "log-text-split-stream"},
    rejection_ends_pre_filter=True,
    binds_without_ignorable_extender=False,
    event_kinds="1.29",
    queue_sort_differs="has to match for all profiles",
    **of_minor("1.29", GATES_1_29),
)

_1_28_8: Final = before_release(
    _1_29_14,
    "1.28.8",
    {
        "DefaultPreemption": "1.28",
        "ImageLocality": "1.28",
        "SelectorSpread": "1.28",
        "VolumeBinding": "1.28",
        "VolumeRestrictions": "1.28",
        "VolumeZone": "1.28",
    },
    documents=frozenset(["v1", "v1beta3"]),
    lacks_flags=_1_29_14.lacks_flags | {"allow-metric-labels-manifest"},
    removed_plugins=(*_DISK_LIMITS, "SelectorSpread"),
    evicts_on_nodes_left_out=True,
    named_nodes_must_exist=True,
    ends_with_two_periods=True,
    parks_errors=True,
    moving_kinds=_MOVING | {"storage.k8s.io/CSIDriver", "storage.k8s.io/CSIStorageCapacity"},
    metric_labels_fault=(
        "--allow-metric-labels must has a list of kv pair with format `metricName:labelName=labelValue, labelValue,...`"
    ),
    preempted_text="Preempted by a pod on node {node}",
    **of_minor("1.28", GATES_1_28),
)

_1_27_16: Final = before_release(
    _1_28_8,
    "1.27.16",
    {
        "GCEPDLimits": "1.27",
        "InterPodAffinity": "1.27",
        "NodeResourcesFit": "1.27",
        "NodeVolumeLimits": "1.27",
        "PodTopologySpread": "1.27",
    },
    lacks_points={**_1_29_14.lacks_points, **dict.fromkeys((*_DISK_LIMITS, "NodeVolumeLimits"), "preFilter")},
    documents=frozenset(["v1", "v1beta2", "v1beta3"]),
    own_flags=frozenset(["lock-object-name", "lock-object-namespace"]),
    evicts_on_nodes_left_out=False,
    named_nodes_must_exist=False,
    moving_kinds=_MOVING,
    delays_cache=False,
    knows_sidecars=False,
    **of_minor("1.27", GATES_1_27),
)

_1_26_15: Final = before_release(
    _1_27_16,
    "1.26.15",
    dict.fromkeys(
        (
            "AzureDiskLimits",
            "DefaultPreemption",
            "EBSLimits",
            "InterPodAffinity",
            "NodeAffinity",
            "NodeResourcesBalancedAllocation",
            "NodeResourcesFit",
            "NodeVolumeLimits",
            "PodTopologySpread",
            "VolumeBinding",
            "VolumeRestrictions",
            "VolumeZone",
        ),
        "1.26",
    ),
    lacks_points={
        **_1_27_16.lacks_points,
        "NodeResourcesBalancedAllocation": "preScore",
        "NodeResourcesFit": "preScore placementScore",
        "VolumeZone": "preFilter",
    },
    documents=_1_27_16.documents,
    locks=("leases", "endpointsleases", "configmapsleases"),
    evicts_on_nodes_left_out=True,
    named_nodes_must_exist=True,
    **of_minor("1.26", GATES_1_26),
)

_1_25_16: Final = before_release(
    _1_26_15,
    "1.25.16",
    {"NodeResourcesFit": "1.25"},
    lacks="DynamicResources SchedulingGates",
    documents=_1_26_15.documents,
    own_flags=_1_26_15.own_flags | _KLOG_FLAGS,
    has_pre_enqueue=False,
    quotes_pre_filter=False,
    lease_may_equal_deadline=True,
    ends_with_two_periods=False,
    **of_minor("1.25", GATES_1_25),
)

_1_24_17: Final = before_release(
    _1_25_16,
    "1.24.17",
    dict.fromkeys(("NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeVolumeLimits", "VolumeBinding"), "1.24"),
    documents=frozenset(["v1beta2", "v1beta3"]),
    migrates_in_tree_disks=False,
    gates_log_options=False,
    **of_minor("1.24", GATES_1_24, CSIMigrationOpenStack=True),
)

_1_23_5: Final = before_release(
    _1_24_17,
    "1.23.5",
    dict.fromkeys(
        ("DefaultPreemption", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "TaintToleration", "VolumeBinding"),
        "1.23",
    ),
    documents=_1_24_17.documents,
    lacks_flags=_1_24_17.lacks_flags | {"pod-max-in-unschedulable-pods-duration"},
    own_flags=_1_24_17.own_flags | {"address", "port", "experimental-logging-sanitization"},
    locks=(*_1_24_17.locks, "endpoints", "configmaps"),
    event_kinds="1.23",
    tries_nominated_node_first=False,
    tells_of_post_filter=False,
    flush_fault="",
    error_reason="Unschedulable",
    runs_own_plugins_first=True,
    preempted_text="Preempted by {key} on node {node}",
    **of_minor("1.23", GATES_1_23, MinDomainsInPodTopologySpread=False),
)

_1_22_6: Final = before_release(
    _1_23_5,
    "1.22.6",
    dict.fromkeys((*_DISK_LIMITS, *_RESOURCE_SCORES, "DefaultPreemption", "NodeVolumeLimits", "VolumeBinding"), "1.22"),
    documents=frozenset(["Policy", "v1beta1", "v1beta2"]),
    policy_flags=True,
    lacks_flags=_1_23_5.lacks_flags | {"log-json-info-buffer-size", "log-json-split-stream"},
    own_flags=_1_23_5.own_flags
    | {"policy-config-file", "policy-configmap", "policy-configmap-namespace", "use-legacy-policy-config"},
    removed_plugins=(*_1_23_5.removed_plugins, *_RESOURCE_SCORES, "NodeLabel", "NodePreferAvoidPods", "ServiceAffinity"),
    event_kinds="1.22",
    has_multi_point=False,
    keeps_nominations=True,
    wakes_after_failed_binding=False,
    **of_minor("1.22", GATES_1_22, MinDomainsInPodTopologySpread=False, CSIMigrationPortworx=False),
)

#: Newest first, as each builds on the one after it.
OLDER: Final = (_1_29_14, _1_28_8, _1_27_16, _1_26_15, _1_25_16, _1_24_17, _1_23_5, _1_22_6)


# -- legacy gates ------------------------------------------------------------------------------------------------------
# Feature gates of Kubernetes 1.19 to 1.21.
#
# Gates that change decisions are listed with their defaults. The others are listed by name, so that a flag value shared by all
# components of a cluster is accepted. Each release has the gates of 1.21, with its own defaults.
#
# Source  kubernetes 1.21 and 1.20, pkg/features/kube_features.go; apiserver 0.21, pkg/features/kube_features.go


class OldGate(NamedTuple):
    """A gate's default in 1.21, its stage, and the defaults of releases that differed."""

    default: bool
    stage: str
    before: Mapping[str, bool] = {}


_GATES: Final[Mapping[str, OldGate]] = {
    "BalanceAttachedNodeVolumes": OldGate(False, "ALPHA"),
    "CSIMigration": OldGate(True, "BETA"),
    "CSIMigrationAWS": OldGate(False, "BETA"),
    "CSIMigrationAzureDisk": OldGate(False, "BETA"),
    "CSIMigrationGCE": OldGate(False, "BETA"),
    "CSIMigrationOpenStack": OldGate(True, "BETA", {"1.19": False, "1.20": False}),
    "CSIStorageCapacity": OldGate(True, "BETA", {"1.19": False, "1.20": False}),
    "DefaultPodTopologySpread": OldGate(True, "BETA", {"1.19": False}),
    "GenericEphemeralVolume": OldGate(True, "BETA", {"1.19": False, "1.20": False}),
    "LocalStorageCapacityIsolation": OldGate(True, "BETA"),
    "PodAffinityNamespaceSelector": OldGate(False, "ALPHA"),
    "PodOverhead": OldGate(True, "BETA"),
    "PreferNominatedNode": OldGate(False, "ALPHA"),
    "VolumeCapacityPriority": OldGate(False, "ALPHA"),
}

OTHER_OLD_GATES: Final = frozenset(
    """
    APIListChunking APIPriorityAndFairness APIResponseCompression APIServerIdentity AdvancedAuditing
    AllowInsecureBackendProxy AnyVolumeDataSource AppArmor BoundServiceAccountTokenVolume CustomCPUCFSQuotaPeriod CPUManager
    CRIContainerLogRotation CSIInlineVolume CSIMigrationAzureFile CSIMigrationvSphere CSIMigrationvSphereComplete
    CSIServiceAccountToken CSIVolumeFSGroupPolicy CSIVolumeHealth ConfigurableFSGroupPolicy
    CronJobControllerV2 DaemonSetUpdateSurge DevicePlugins DisableAcceleratorUsageMetrics DownwardAPIHugePages DryRun
    DynamicKubeletConfig EfficientWatchResumption EndpointSlice EndpointSliceNodeName EndpointSliceProxying
    EndpointSliceTerminatingCondition EphemeralContainers ExecProbeTimeout ExpandCSIVolumes
    ExpandInUsePersistentVolumes ExpandPersistentVolumes ExperimentalHostUserNamespaceDefaultingGate
    ExternalPolicyForExternalIP GracefulNodeShutdown HPAContainerMetrics HPAScaleToZero
    HugePageStorageMediumSize IPv6DualStack ImmutableEphemeralVolumes InTreePluginAWSUnregister
    InTreePluginAzureDiskUnregister InTreePluginAzureFileUnregister InTreePluginGCEUnregister
    InTreePluginOpenStackUnregister InTreePluginvSphereUnregister IndexedJob IngressClassNamespacedParams
    KubeletCredentialProviders KubeletPodResources KubeletPodResourcesGetAllocatable LegacyNodeRoleBehavior
    LocalStorageCapacityIsolationFSQuotaMonitoring LogarithmicScaleDown MemoryManager MixedProtocolLBService
    NamespaceDefaultLabelName NetworkPolicyEndPort NodeDisruptionExclusion NodeLease NonPreemptingPriority
    PodDeletionCost PodDisruptionBudget ProbeTerminationGracePeriod ProcMountType QOSReserved RemainingItemCount
    RemoveSelfLink RootCAConfigMap RotateKubeletServerCertificate RunAsGroup RuntimeClass SCTPSupport SelectorIndex
    ServerSideApply ServiceAccountIssuerDiscovery ServiceAppProtocol ServiceInternalTrafficPolicy
    ServiceLBNodePortControl ServiceLoadBalancerClass ServiceNodeExclusion ServiceTopology SetHostnameAsFQDN
    SizeMemoryBackedVolumes StartupProbe StorageObjectInUseProtection StorageVersionAPI StorageVersionHash
    StreamingProxyRedirects SupportNodePidsLimit SupportPodPidsLimit SuspendJob Sysctls TTLAfterFinished
    TopologyAwareHints TopologyManager ValidateProxyRedirects VolumeSnapshotDataSource VolumeSubpath WarningHeaders
    WatchBookmark WinDSR WinOverlay WindowsEndpointSliceProxying
    """.split()  # noqa: SIM905 - a hundred quoted names would hide in their quotes
)


def old_gates(release: str) -> dict[str, OldGate]:
    """Return the gates that change decisions in a release, with the release's defaults."""
    return {name: gate._replace(default=gate.before.get(release, gate.default)) for name, gate in _GATES.items()}
