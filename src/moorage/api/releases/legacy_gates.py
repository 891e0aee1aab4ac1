"""Feature gates of Kubernetes 1.19 to 1.21.

Gates that change decisions are listed with their defaults. The others are listed by name, so that a flag value shared by all
components of a cluster is accepted. Each release has the gates of 1.21, with its own defaults.

Source  kubernetes 1.21 and 1.20, pkg/features/kube_features.go; apiserver 0.21, pkg/features/kube_features.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["OTHER_OLD_GATES", "OldGate", "old_gates"]


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
