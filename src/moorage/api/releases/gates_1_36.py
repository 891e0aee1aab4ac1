"""Feature gates of 1.36 that change scheduling decisions.

Source  kubernetes, pkg/features/kube_features.go and pkg/scheduler/framework/plugins/feature/feature.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate

__all__ = ["DEPENDENT_GATES_1_36", "GATES_1_36", "OTHER_GATES"]


_DRA = ("DynamicResourceAllocation",)
_DECLARED = ("NodeDeclaredFeatures",)

#: Gates without effect on decisions that cannot be open while one of ``GATES_1_36`` is closed.
DEPENDENT_GATES_1_36: Final[Mapping[str, Gate]] = {
    "DRAResourceClaimGranularStatusAuthorization": Gate(True, BETA, needs=("DRAResourceClaimDeviceStatus",)),
    "ExtendWebSocketsToKubelet": Gate(True, BETA, needs=_DECLARED),
    "InPlacePodVerticalScalingInitContainers": Gate(True, BETA, needs=_DECLARED),
    "PodLevelResourceManagers": Gate(False, ALPHA, needs=("PodLevelResources",)),
    "RestartAllContainersOnContainerExits": Gate(True, BETA, needs=_DECLARED),
    "UserNamespacesHostNetworkSupport": Gate(False, ALPHA, needs=_DECLARED),
}

#: Every gate that kube-scheduler's decisions depend on, and ``WorkloadWithJob``, which the embedded controllers use.
GATES_1_36: Final[Mapping[str, Gate]] = {
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
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": Gate(True, BETA, needs=("MatchLabelKeysInPodTopologySpread",)),
    "NodeDeclaredFeatures": Gate(True, BETA),
    "NodeInclusionPolicyInPodTopologySpread": Gate(True, STABLE, locked=True),
    "NominatedNodeNameForExpectation": Gate(True, BETA),
    "OpportunisticBatching": Gate(True, BETA),
    "PodLevelResources": Gate(True, BETA),
    "SchedulerAsyncAPICalls": Gate(False, BETA),
    "SchedulerAsyncPreemption": Gate(True, BETA),
    "SchedulerPopFromBackoffQ": Gate(True, BETA),
    "SchedulerQueueingHints": Gate(True, STABLE, locked=True),
    "SidecarContainers": Gate(True, STABLE, locked=True),
    "StorageCapacityScoring": Gate(False, ALPHA),
    "TaintTolerationComparisonOperators": Gate(False, ALPHA),
    "TopologyAwareWorkloadScheduling": Gate(False, ALPHA, needs=("GenericWorkload",)),
    "VolumeAttributesClass": Gate(True, STABLE, locked=True),
    "VolumeLimitScaling": Gate(False, ALPHA),
    "WorkloadAwarePreemption": Gate(False, ALPHA, needs=("GangScheduling",)),
    "WorkloadWithJob": Gate(False, ALPHA, needs=("GenericWorkload",)),
}


# -- inert gates -------------------------------------------------------------------------------------------------------
# Feature gates of Kubernetes 1.36 that kube-scheduler accepts and that change no scheduling decision.
#
# One flag value often serves all components of a cluster, so the gates of the kubelet and the API server must be accepted
# here.
#
# Source  kubernetes, pkg/features/kube_features.go; client-go, features/known_features.go; component-base, logs and metrics

OTHER_GATES: Final = frozenset(
    """
    APIResponseCompression APIServerIdentity APIServerTracing APIServingWithRoutine
    AggregatedDiscoveryRemoveBetaType AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    AllowOverwriteTerminationGracePeriodSeconds AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs
    AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AtomicFIFO
    AuthorizeNodeWithSelectors AuthorizePodWebsocketUpgradeCreatePermission AuthorizeWithSelectors BtreeWatchCache
    CBORServingAndStorage CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CPUManagerPolicyOptions
    CRDObservedGenerationTracking CRDValidationRatcheting CRIListStreaming CSIServiceAccountTokenSecrets
    CSIVolumeHealth ChangeContainerStatusOnKubeletRestart ClearingNominatedNodeNameAfterBinding
    ClientsAllowCARotation ClientsAllowCBOR ClientsAllowTLSCacheGC ClientsPreferCBOR
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ClusterTrustBundle
    ClusterTrustBundleProjection ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode ConsistentListFromCache
    ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContainerStopSignals ContextualLogging
    CoordinatedLeaderElection CrossNamespaceVolumeDataSource CustomCPUCFSQuotaPeriod CustomResourceFieldSelectors
    DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DeclarativeValidation
    DeclarativeValidationBeta DeclarativeValidationTakeover DeploymentReplicaSetTerminatingReplicas
    DetectCacheInconsistency DisableAllocatorDualWrite DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion
    EnvFiles EventedPLEG ExecProbeTimeout ExtendWebSocketsToKubelet ExternalServiceAccountTokenSigner
    GitRepoVolumeDriver GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance
    HPAScaleToZero HostnameOverride ImageMaximumGCAge ImageVolume ImageVolumeWithDigest InOrderInformers
    InOrderInformersBatchProcess InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
    InPlacePodVerticalScalingInitContainers InformerResourceVersion JobBackoffLimitPerIndex JobManagedBy
    JobPodReplacementPolicy JobSuccessPolicy KMSv1 KubeletCgroupDriverFromCRI KubeletCrashLoopBackOffMax
    KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz KubeletInUserNamespace KubeletPSI
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletPodResourcesListUseActivePods
    KubeletRegistrationGetOnExistsOnly KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
    KubeletTracing ListFromCacheSnapshot LocalStorageCapacityIsolationFSQuotaMonitoring LogarithmicScaleDown
    LoggingAlphaOptions LoggingBetaOptions LoggingStableOptions ManifestBasedAdmissionControlConfig
    MatchLabelKeysInPodAffinity MaxUnavailableStatefulSet MemoryQoS MultiCIDRServiceAllocator
    MutableCSINodeAllocatableCount MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs
    MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy NFTablesProxyMode NativeHistograms
    NodeLogQuery NodeSwap OpenAPIEnums OrderedNamespaceDeletion PLEGOnDemandRelist
    PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodCertificateRequest PodDeletionCost
    PodLevelResourceManagers PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodLogsQuerySplitStreams
    PodObservedGenerationTracking PodReadyToStartContainersCondition PodSchedulingReadiness
    PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets PreferSameTrafficDistribution
    PreventStaticPodAPIReferences ProcMountType QOSReserved RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
    ReduceDefaultCrashLoopBackOffDecay RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
    RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID
    ResilientWatchCacheInitialization ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RetryGenerateName RotateKubeletServerCertificate RuntimeClassInImageCriApi
    SELinuxChangePolicy SELinuxMount SELinuxMountReadWriteOncePod SeparateCacheWatchRPC
    SeparateTaintEvictionController ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
    ServiceCIDRStatusFieldWiping ShardedListAndWatch SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet
    StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageNamespaceIndex StorageVersionAPI StorageVersionHash
    StorageVersionMigrator StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
    StrictIPCIDRValidation StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy SystemdWatchdog
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions
    TopologyManagerPolicyOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
    UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO UserNamespacesHostNetworkSupport
    UserNamespacesSupport WatchCacheInitializationPostStartHook WatchList WatchListClient WinDSR WinOverlay
    WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork
    """.split()  # noqa: SIM905 - two hundred quoted names would hide in their quotes
)
