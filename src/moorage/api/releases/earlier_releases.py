"""The releases 1.30 to 1.35, and patch releases of 1.36: how each differs from the one after it, newest first.

Each entry names the rules that ended with that release. A rule of a plugin is a variant in ``moorage.plugins.earlier``; a
variant stays in force in all earlier releases, until an earlier rule replaces it.

Source  kubernetes, the scheduler of each release; docs/reference/releases.md names the pull requests
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.releases.earlier_metrics import METRICS
from moorage.api.releases.gates_1_36 import DEPENDENT_GATES_1_36, GATES_1_36, OTHER_GATES
from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate, Release

__all__ = ["CURRENT", "EARLIER", "GATES_1_30", "TODAY", "UNSORTED_SHAPE", "before_release", "gates_before", "of_minor"]


# -- earlier gates -----------------------------------------------------------------------------------------------------
# Feature gates of 1.30 to 1.35 that change scheduling decisions: what differs from the next release.
#
# Source  kubernetes 1.30 to 1.35, pkg/features/kube_features.go

_DRA: Final = ("DynamicResourceAllocation",)
_OFF: Final = Gate(False, ALPHA)


def gates_before(newer: Mapping[str, Gate], changed: Mapping[str, Gate], later: str = "") -> Mapping[str, Gate]:
    """Return the gates of a release: those of the next one, without the ``later`` ones, and with the ``changed`` ones."""
    gone = frozenset(later.split())
    return {**{name: gate for name, gate in newer.items() if name not in gone}, **changed}


GATES_1_35: Final = gates_before(
    GATES_1_36,
    {
        "CSIMigrationPortworx": Gate(True, STABLE, locked=True),
        "DRAAdminAccess": Gate(True, BETA, needs=_DRA),
        "DRAConsumableCapacity": Gate(False, ALPHA, needs=_DRA),
        "DRADeviceBindingConditions": Gate(False, ALPHA, needs=("DRAResourceClaimDeviceStatus", *_DRA)),
        "DRADeviceTaintRules": Gate(False, ALPHA, needs=("DRADeviceTaints",)),
        "DRADeviceTaints": Gate(False, ALPHA, needs=_DRA),
        "DRAExtendedResource": Gate(False, ALPHA, needs=_DRA),
        "DRAPartitionableDevices": Gate(False, ALPHA, needs=_DRA),
        "DRAPrioritizedList": Gate(True, BETA, needs=_DRA),
        "InPlacePodLevelResourcesVerticalScaling": Gate(
            False, ALPHA, needs=("InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources")
        ),
        "NodeDeclaredFeatures": _OFF,
        "VolumeAttributesClass": Gate(True, STABLE),
    },
    """
    DRAListTypeAttributes DRANodeAllocatableResources DRAWorkloadResourceClaims TopologyAwareWorkloadScheduling
    WorkloadAwarePreemption WorkloadWithJob
    """,
)

#: Up to 1.34 no gate checks the gates that it needs.
GATES_1_34: Final = {
    name: gate._replace(needs=())
    for name, gate in gates_before(
        GATES_1_35,
        {
            "DynamicResourceAllocation": Gate(True, STABLE),
            "InPlacePodVerticalScaling": Gate(True, BETA),
            "NominatedNodeNameForExpectation": _OFF,
        },
        """
        DRADeviceTaintRules GangScheduling GenericWorkload InPlacePodLevelResourcesVerticalScaling NodeDeclaredFeatures
        OpportunisticBatching TaintTolerationComparisonOperators VolumeLimitScaling
        """,
    ).items()
}

GATES_1_33: Final = gates_before(
    GATES_1_34,
    {
        "DRAAdminAccess": _OFF,
        "DRAPrioritizedList": _OFF,
        "DynamicResourceAllocation": Gate(False, BETA),
        "PodLevelResources": _OFF,
        "SchedulerQueueingHints": Gate(True, BETA),
        "VolumeAttributesClass": Gate(False, BETA),
    },
    """
    DRAConsumableCapacity DRADeviceBindingConditions DRAExtendedResource DRASchedulerFilterTimeout
    MatchLabelKeysInPodTopologySpreadSelectorMerge NominatedNodeNameForExpectation SchedulerAsyncAPICalls
    """,
)

GATES_1_32: Final = gates_before(
    GATES_1_33,
    {
        "CSIMigrationPortworx": Gate(True, BETA),
        "DRAResourceClaimDeviceStatus": _OFF,
        "InPlacePodVerticalScaling": _OFF,
        "NodeInclusionPolicyInPodTopologySpread": Gate(True, BETA),
        "SchedulerAsyncPreemption": _OFF,
        "SidecarContainers": Gate(True, BETA),
        "VolumeCapacityPriority": _OFF,
    },
    "DRADeviceTaints DRAPartitionableDevices DRAPrioritizedList SchedulerPopFromBackoffQ StorageCapacityScoring",
)

GATES_1_31: Final = gates_before(
    GATES_1_32,
    {"DynamicResourceAllocation": _OFF, "SchedulerQueueingHints": Gate(False, BETA)},
    "DRAAdminAccess DRAResourceClaimDeviceStatus PodLevelResources SchedulerAsyncPreemption",
)

GATES_1_30: Final = gates_before(GATES_1_31, {"CSIMigrationPortworx": Gate(False, BETA), "VolumeAttributesClass": _OFF})


# -- earlier inert gates -----------------------------------------------------------------------------------------------
# Feature gates of 1.22 to 1.35 that kube-scheduler accepts and that change no scheduling decision.
#
# Source  kubernetes 1.22 to 1.35, pkg/features/kube_features.go; apiserver, client-go and component-base, likewise

#: Release → the gates that its successor no longer has.
_LAST_IN: Final[Mapping[str, str]] = {
    "1.35": """
        HonorPVReclaimPolicy InPlacePodVerticalScalingAllocatedStatus
        InTreePluginPortworxUnregister MemoryManager ServiceTrafficDistribution
        StructuredAuthorizationConfiguration TopologyAwareHints
        WatchFromStorageWithoutResourceVersion
    """,
    "1.34": """
        AllowServiceLBStatusOnNonLB ComponentSLIs CronJobsScheduledAnnotation LoadBalancerIPMode PodIndexLabel
        ProbeHostPodSecurityStandards SizeMemoryBackedVolumes StatefulSetAutoDeletePVC StrictCostEnforcementForVAP
        StrictCostEnforcementForWebhooks UserNamespacesPodSecurityStandards
    """,
    "1.33": """
        DevicePluginCDIDevices ElasticIndexedJob LegacySidecarContainers PodDisruptionConditions
        StatefulSetStartOrdinal
    """,
    "1.32": """
        APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor AppArmorFields
        CPUManager DisableCloudProviders DisableKubeletCloudCredentialProviders EfficientWatchResumption
        JobPodFailurePolicy KubeProxyDrainingTerminatingNodes PDBUnhealthyPodEvictionPolicy
        PersistentVolumeLastPhaseTransitionTime RemainingItemCount WatchBookmark
    """,
    "1.31": """
        CloudControllerManagerWebhook CloudDualStackNodeIPs DRAControlPlaneController HPAContainerMetrics KMSv2
        KMSv2KDF LegacyServiceAccountTokenCleanUp MinDomainsInPodTopologySpread NewVolumeManagerReconstruction
        NodeOutOfServiceVolumeDetach PodHostIPs ServerSideApply ServerSideFieldValidation
        StableLoadBalancerNodeSet ValidatingAdmissionPolicy ZeroLimitedNominalConcurrencyShares
    """,
    "1.30": """
        APIPriorityAndFairness CSIMigrationRBD CSINodeExpandSecret ConsistentHTTPGetHandlers
        CustomResourceValidationExpressions DefaultHostNetworkHostPortsInPodTemplates InTreePluginAWSUnregister
        InTreePluginAzureDiskUnregister InTreePluginAzureFileUnregister InTreePluginGCEUnregister
        InTreePluginOpenStackUnregister InTreePluginRBDUnregister InTreePluginvSphereUnregister JobReadyPods
        ReadWriteOncePod ServiceNodePortStaticSubrange SkipReadOnlyValidationGCE
    """,
    "1.29": """
        APISelfSubjectReview CSIMigrationAzureFile ExpandedDNSConfig ExperimentalHostUserNamespaceDefaulting
        IPTablesOwnershipCleanup KubeletPodResources KubeletPodResourcesGetAllocatable
        LegacyServiceAccountTokenTracking MinimizeIPTablesRestore ProxyTerminatingEndpoints RemoveSelfLink
        SecurityContextDeny
    """,
    "1.28": """
        CSIMigrationvSphere CronJobTimeZone DownwardAPIHugePages GRPCContainerProbe
        JobMutableNodeSchedulingDirectives JobTrackingWithFinalizers LegacyServiceAccountTokenNoAutoGeneration
        MultiCIDRRangeAllocator OpenAPIV3 ProbeTerminationGracePeriod RetroactiveDefaultStorageClass SeccompDefault
        TopologyManager
    """,
    "1.27": """
        AdvancedAuditing CSIMigrationGCE CSIStorageCapacity DelegateFSGroupToCSIDriver DevicePlugins
        DisableAcceleratorUsageMetrics DryRun EndpointSliceTerminatingCondition KubeletCredentialProviders
        MixedProtocolLBService NetworkPolicyStatus PodHasNetworkCondition PodSecurity ServiceIPStaticSubrange
        ServiceInternalTrafficPolicy UserNamespacesStatelessPodsSupport WatchFromStorageWithoutResourceVersion
        WindowsHostProcessContainers
    """,
    "1.26": """
        CSIInlineVolume CSIMigration CSIMigrationAWS CSIMigrationAzureDisk ControllerManagerLeaderMigration
        DaemonSetUpdateSurge EphemeralContainers ExpandCSIVolumes ExpandInUsePersistentVolumes ExpandPersistentVolumes
        IdentifyPodOS LocalStorageCapacityIsolation NetworkPolicyEndPort StatefulSetMinReadySeconds
    """,
    "1.25": """
        CSIMigrationOpenStack CSRDuration DefaultPodTopologySpread DynamicKubeletConfig IndexedJob NonPreemptingPriority
        PodAffinityNamespaceSelector PodOverhead PreferNominatedNode ServiceLBNodePortControl ServiceLoadBalancerClass
        SuspendJob
    """,
    "1.24": """
        CSIServiceAccountToken CSIVolumeFSGroupPolicy ConfigurableFSGroupPolicy EndpointSlice EndpointSliceNodeName
        EndpointSliceProxying GenericEphemeralVolume IPv6DualStack IngressClassNamespacedParams PodDisruptionBudget
        SelectorIndex StorageObjectInUseProtection TTLAfterFinished VolumeSubpath WindowsEndpointSliceProxying
    """,
    "1.23": """
        HugePageStorageMediumSize ImmutableEphemeralVolumes NamespaceDefaultLabelName RuntimeClass SetHostnameAsFQDN
        StreamingProxyRedirects ValidateProxyRedirects WarningHeaders csiMigrationRBD
    """,
    "1.22": """
        AllowInsecureBackendProxy BoundServiceAccountTokenVolume CronJobControllerV2 NodeLease
        ServiceAccountIssuerDiscovery StartupProbe SupportNodePidsLimit SupportPodPidsLimit Sysctls
    """,
}

#: Release → the gates that its predecessor did not have.
_FIRST_IN: Final[Mapping[str, str]] = {
    "1.36": """
        AllowServiceExternalIPs AtomicFIFO CRIListStreaming
        ClientsAllowCARotation ClientsAllowTLSCacheGC
        CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
        DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus
        DeclarativeValidationBeta ExtendWebSocketsToKubelet ImageVolumeWithDigest
        InPlacePodVerticalScalingInitContainers ManifestBasedAdmissionControlConfig NativeHistograms
        PLEGOnDemandRelist PersistentVolumeClaimUnusedSinceTime PodLevelResourceManagers PodsAPI
        ReloadKubeletClientCAFile ResourceHealthStatusMessage
        ServiceCIDRStatusFieldWiping ShardedListAndWatch StaleControllerConsistencyDaemonSet
        StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
        UnlockWhileProcessingFIFO
    """,
    "1.35": """
        AuthorizePodWebsocketUpgradeCreatePermission CRDObservedGenerationTracking CSIServiceAccountTokenSecrets
        ConstrainedImpersonation InOrderInformersBatchProcess MutablePVNodeAffinity
        MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs
        ChangeContainerStatusOnKubeletRestart RestartAllContainersOnContainerExits
        StructuredAuthenticationConfigurationJWKSMetrics
        UserNamespacesHostNetworkSupport
    """,
    "1.34": """
        ClearingNominatedNodeNameAfterBinding ContainerRestartRules DetectCacheInconsistency EnvFiles
        HostnameOverride InPlacePodVerticalScalingExclusiveMemory KubeletPodResourcesListUseActivePods
        PodCertificateRequest PreventStaticPodAPIReferences
        ProbeHostPodSecurityStandards RelaxedServiceNameValidation SizeBasedListCostEstimate
        StatefulSetSemanticRevisionComparison StructuredAuthenticationConfigurationEgressSelector
        TokenRequestServiceAccountUIDValidation
    """,
    "1.33": """
        AggregatedDiscoveryRemoveBetaType AllowParsingUserUIDFromCertAuth ContainerStopSignals
        DeclarativeValidation DeclarativeValidationTakeover DeploymentReplicaSetTerminatingReplicas
        DisableCPUQuotaWithExclusiveCPUs GitRepoVolumeDriver HPAConfigurableTolerance InOrderInformers
        KubeletEnsureSecretPulledImages KubeletPSI KubeletServiceAccountTokenForCredentialProviders
        LegacySidecarContainers ListFromCacheSnapshot MutableCSINodeAllocatableCount PodObservedGenerationTracking
        PodTopologyLabelsAdmission PreferSameTrafficDistribution ReduceDefaultCrashLoopBackOffDecay
        StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StrictIPCIDRValidation
    """,
    "1.32": """
        AllowOverwriteTerminationGracePeriodSeconds AllowUnsafeMalformedObjectDeletion BtreeWatchCache
        CBORServingAndStorage ClientsAllowCBOR ClientsPreferCBOR ExternalServiceAccountTokenSigner
        InPlacePodVerticalScalingAllocatedStatus InPlacePodVerticalScalingExclusiveCPUs KubeletCrashLoopBackOffMax
        KubeletFineGrainedAuthz KubeletRegistrationGetOnExistsOnly PodLifecycleSleepActionAllowZero
        PodLogsQuerySplitStreams RelaxedDNSSearchValidation RemoteRequestHeaderUID SELinuxChangePolicy
        ComponentFlagz ComponentStatusz ServiceAccountNodeAudienceRestriction SystemdWatchdog
        WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown
    """,
    "1.31": """
        AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests AnonymousAuthConfigurableEndpoints
        AuthorizeNodeWithSelectors AuthorizeWithSelectors ConcurrentWatchObjectDecode CoordinatedLeaderElection
        DRAControlPlaneController DisableAllocatorDualWrite ImageVolume OrderedNamespaceDeletion
        ReloadKubeletServerCertificateFile ResilientWatchCacheInitialization ResourceHealthStatus
        SupplementalGroupsPolicy WatchCacheInitializationPostStartHook
    """,
    "1.30": """
        APIServingWithRoutine AppArmorFields CustomResourceFieldSelectors InformerResourceVersion JobManagedBy
        JobSuccessPolicy MutatingAdmissionPolicy PortForwardWebsockets RecursiveReadOnlyMounts
        RelaxedEnvironmentVariableValidation RetryGenerateName SELinuxMount ServiceTrafficDistribution
        StorageNamespaceIndex StorageVersionMigrator StrictCostEnforcementForVAP
        StrictCostEnforcementForWebhooks WatchListClient
    """,
    "1.29": """
        AllowServiceLBStatusOnNonLB ClusterTrustBundleProjection DisableNodeKubeProxyVersion ImageMaximumGCAge
        KubeletSeparateDiskGC LoadBalancerIPMode MatchLabelKeysInPodAffinity NFTablesProxyMode
        PodLifecycleSleepAction RuntimeClassInImageCriApi SeparateTaintEvictionController ServiceAccountTokenJTI
        ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
        StructuredAuthenticationConfiguration StructuredAuthorizationConfiguration
        TranslateStreamCloseWebsocketRequests UserNamespacesPodSecurityStandards VolumeAttributesClass
        WatchFromStorageWithoutResourceVersion ZeroLimitedNominalConcurrencyShares
    """,
    "1.28": """
        CRDValidationRatcheting ConsistentListFromCache CronJobsScheduledAnnotation
        DefaultHostNetworkHostPortsInPodTemplates DevicePluginCDIDevices JobBackoffLimitPerIndex
        JobPodReplacementPolicy KMSv1 KMSv2KDF KubeProxyDrainingTerminatingNodes KubeletCgroupDriverFromCRI
        LegacyServiceAccountTokenCleanUp PersistentVolumeLastPhaseTransitionTime PodHostIPs PodIndexLabel
        PodReadyToStartContainersCondition SchedulerQueueingHints SeparateCacheWatchRPC SidecarContainers
        SkipReadOnlyValidationGCE UnknownVersionInteroperabilityProxy UserNamespacesSupport
    """,
    "1.27": """
        AdmissionWebhookMatchConditions CloudControllerManagerWebhook CloudDualStackNodeIPs ClusterTrustBundle
        ElasticIndexedJob InPlacePodVerticalScaling KubeletPodResourcesDynamicResources KubeletPodResourcesGet
        MultiCIDRServiceAllocator NewVolumeManagerReconstruction NodeLogQuery SecurityContextDeny
        ServiceNodePortStaticSubrange StableLoadBalancerNodeSet WatchFromStorageWithoutResourceVersion WatchList
    """,
    "1.26": """
        APISelfSubjectReview AggregatedDiscoveryEndpoint ComponentSLIs ConsistentHTTPGetHandlers
        CrossNamespaceVolumeDataSource DynamicResourceAllocation EventedPLEG LegacyServiceAccountTokenTracking
        MinimizeIPTablesRestore PDBUnhealthyPodEvictionPolicy PodSchedulingReadiness StatefulSetStartOrdinal
        TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions
        ValidatingAdmissionPolicy WindowsHostNetwork
    """,
    "1.25": """
        CSINodeExpandSecret ContainerCheckpoint IPTablesOwnershipCleanup JobPodFailurePolicy KMSv2 KubeletTracing
        LoggingAlphaOptions LoggingBetaOptions MatchLabelKeysInPodTopologySpread MultiCIDRRangeAllocator
        NodeInclusionPolicyInPodTopologySpread PodDisruptionConditions PodHasNetworkCondition
        RetroactiveDefaultStorageClass SELinuxMountReadWriteOncePod UserNamespacesStatelessPodsSupport
    """,
    "1.24": """
        CSIMigrationRBD CronJobTimeZone LegacyServiceAccountTokenNoAutoGeneration MaxUnavailableStatefulSet
        MinDomainsInPodTopologySpread NetworkPolicyStatus NodeOutOfServiceVolumeDetach ServiceIPStaticSubrange
        UnauthenticatedHTTP2DOSMitigation
    """,
    "1.23": """
        CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CSIMigrationPortworx CustomResourceValidationExpressions
        DisableKubeletCloudCredentialProviders GRPCContainerProbe GracefulNodeShutdownBasedOnPodPriority
        HonorPVReclaimPolicy IdentifyPodOS InTreePluginPortworxUnregister InTreePluginRBDUnregister
        JobMutableNodeSchedulingDirectives JobReadyPods OpenAPIEnums OpenAPIV3 PodAndContainerStatsFromCRI
        RecoverVolumeExpansionFailure ServerSideFieldValidation StatefulSetAutoDeletePVC csiMigrationRBD
    """,
}


def inert_gates(minor: str) -> frozenset[str]:
    """Return the gates that a release of 1.22 to 1.36 accepts without effect."""
    found = OTHER_GATES
    for last, first in zip(_LAST_IN, _FIRST_IN, strict=True):
        if first == minor:
            break
        found = (found - frozenset(_FIRST_IN[first].split())) | frozenset(_LAST_IN[last].split())
    return found


# -- earlier releases --------------------------------------------------------------------------------------------------

#: The release that is emulated by default.
TODAY: Final = "1.36"

#: The fault of a shape whose points are not sorted, up to 1.33.
UNSORTED_SHAPE: Final = "utilization values must be sorted in increasing order"

_DISK_LIMITS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
_EARLIER_RELEASES_DRA: Final = "DynamicResourceAllocation"

CURRENT: Final = Release(
    name=TODAY,
    documents=frozenset(["v1", "v1beta2", "v1beta3"]),
    gates=GATES_1_36,
    inert_gates=OTHER_GATES,
    dependent_gates=DEPENDENT_GATES_1_36,
    removed_plugins=(
        *_DISK_LIMITS, "NodeLabel", "NodePreferAvoidPods", "NodeResourcesLeastAllocated", "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio", "SelectorSpread", "ServiceAffinity",
    ),
)  # fmt: skip


def before_release(
    newer: Release, name: str, variants: Mapping[str, str] | None = None, lacks: str = "", **changed: Any
) -> Release:
    """Return the release before ``newer``. ``variants`` and ``changed`` are the plugin rules and traits that ended with it,
    ``lacks`` the plugins that came after it."""
    return replace(
        newer,
        name=name,
        variants={plugin: ended for plugin, ended in {**newer.variants, **(variants or {})}.items() if ended},
        lacks=newer.lacks | frozenset(lacks.split()),
        **{"documents": frozenset(["v1"]), **changed},
    )


def of_minor(minor: str, gates: Mapping[str, Gate], **fixed: bool) -> Mapping[str, Any]:
    """Return the fields of a release for its gates and metrics: gates of 1.36 that it lacks are closed. ``fixed``: others."""
    fixed |= {gate: False for gate in GATES_1_36 if gate not in gates}
    return {"gates": gates, "inert_gates": inert_gates(minor) - gates.keys(), "fixed_gates": fixed, "metrics": METRICS[minor]}


_1_36_2 = before_release(CURRENT, "1.36.2", {"DynamicResources": "1.36.2"})
_1_36_0 = before_release(_1_36_2, "1.36.0", {"DynamicResources": "1.36.0"})

_1_35_7 = before_release(
    CURRENT,
    "1.35.7",
    {
        "DynamicResources": "1.35",
        "ImageLocality": "1.35",
        "InterPodAffinity": "1.35",
        "NodeResourcesBalancedAllocation": "1.35",
        "NodeResourcesFit": "1.35",
        "NodeVolumeLimits": "1.35",
        "PodTopologySpread": "1.35",
    },
    lacks="PodGroupPodsCount TopologyPlacementGenerator",
    lacks_points={"NodeResourcesFit": "placementScore"},
    lacks_flags=frozenset(["tls-curve-preferences"]),
    removed_plugins=(),
    has_placement_points=False,
    hidden_metrics_fault=(
        "--show-hidden-metrics-for-version must be omitted or have the value '{previous}'. Only the previous minor version is "
        "allowed"
    ),
    metric_labels_fault=(
        "--allow-metric-labels must have a list of kv pair with format `metricName,labelName=labelValue, labelValue,...`"
    ),
    dependent_gates={"RestartAllContainersOnContainerExits": Gate(False, ALPHA, needs=("NodeDeclaredFeatures",))},
    **of_minor("1.35", GATES_1_35),
)
_1_35_4 = before_release(_1_35_7, "1.35.4", {"DynamicResources": "1.35.4"})

_1_34_7 = before_release(
    _1_35_7,
    "1.34.7",
    {
        "DefaultPreemption": "1.34.7",
        "DynamicResources": "1.34",
        "NodeResourcesBalancedAllocation": "1.34",
        "NodeResourcesFit": "1.34",
    },
    lacks="GangScheduling NodeDeclaredFeatures",
    dependent_gates={},
    flush_fault="panic: non-positive interval for NewTicker",
    lacks_points={"DynamicResources": "score", "NodeResourcesFit": "placementScore"},
    lacks_flags=_1_35_7.lacks_flags | {"min-compatibility-version"},
    **of_minor("1.34", GATES_1_34),
)
_1_34_1 = before_release(
    _1_34_7,
    "1.34.1",
    {"DefaultPreemption": "", "TaintToleration": "1.34.1"},
    gates={**GATES_1_34, "SchedulerAsyncAPICalls": Gate(True, BETA)},
)

_1_33_3 = before_release(
    _1_34_7,
    "1.33.3",
    {
        "DynamicResources": "1.33",
        "InterPodAffinity": "1.33",
        "NodeResourcesFit": "1.33",
        "TaintToleration": "1.34.1",
        "VolumeBinding": "1.33",
        "VolumeRestrictions": "1.33",
    },
    gated_kinds=dict.fromkeys(("DeviceClass", "ResourceClaim", "ResourceSlice"), _EARLIER_RELEASES_DRA),
    counts_sidecar_ports=False,
    names_election_fields=True,
    queue_sort_differs="queueSort must be the same for all profiles",
    unsorted_shape=UNSORTED_SHAPE,
    **of_minor("1.33", GATES_1_33),
)

_1_32_5 = before_release(
    _1_33_3,
    "1.32.5",
    {
        "NodePorts": "1.32",
        "NodeResourcesBalancedAllocation": "1.32",
        "NodeResourcesFit": "1.32",
        "NodeVolumeLimits": "1.32",
        "VolumeBinding": "1.32",
    },
    **of_minor("1.32", GATES_1_32),
)

_1_31_8 = before_release(
    _1_32_5,
    "1.31.8",
    {**dict.fromkeys(_DISK_LIMITS, "1.31"), "NodeResourcesFit": "1.31", "NodeVolumeLimits": "1.31"},
    lacks_points={"DefaultPreemption": "preEnqueue", "DynamicResources": "score", "NodeResourcesFit": "placementScore"},
    lacks_flags=_1_32_5.lacks_flags | {"requestheader-uid-headers"},
    gated_kinds={**_1_32_5.gated_kinds, "VolumeAttachment": ""},
    removed_plugins=_DISK_LIMITS,
    names_nodes_left_out=False,
    metric_labels_fault=(
        "--allow-metric-labels must have a list of kv pair with format `metricName:labelName=labelValue, labelValue,...`"
    ),
    event_kinds="1.31",
    **of_minor("1.31", GATES_1_31),
)

_1_30_10 = before_release(
    _1_31_8,
    "1.30.10",
    lacks_flags=_1_31_8.lacks_flags | {"disable-http2-serving", "emulated-version"},
    narrowing_rejects=False,
    event_kinds="1.30",
    any_own_update_wakes=True,
    limits_in_tree_disks=True,
    **of_minor("1.30", GATES_1_30),
)

#: Newest first, as each builds on the one after it.
EARLIER: Final = (_1_36_2, _1_36_0, _1_35_7, _1_35_4, _1_34_7, _1_34_1, _1_33_3, _1_32_5, _1_31_8, _1_30_10)
