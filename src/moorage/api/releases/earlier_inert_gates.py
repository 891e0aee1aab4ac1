"""Feature gates of 1.22 to 1.35 that kube-scheduler accepts and that change no scheduling decision.

Source  kubernetes 1.22 to 1.35, pkg/features/kube_features.go; apiserver, client-go and component-base, likewise
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.releases.inert_gates import OTHER_GATES

__all__ = ["inert_gates"]

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
