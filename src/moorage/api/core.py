"""Core objects: pods, nodes, namespaces, services and their parts.

Field defaults here are the API server's fixed ones. ``moorage.api.defaults`` applies the others (limits to requests, ports of
host-network pods), ``moorage.api.admission`` priority classes.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import field

from moorage.api.meta import (
    Int64,
    LabelSelector,
    LabelSelectorRequirement,
    Object,
    ObjectMeta,
    OwnerReference,
    Quantity,
    ResourceList,
    Value,
)

__all__ = [
    "ENDED_PHASES", "Affinity", "ClaimSource", "Container", "ContainerImage", "ContainerPort", "ContainerRestartRule",
    "ContainerStatus", "EphemeralVolume", "ImageVolumeSource", "LabelSelector", "LabelSelectorRequirement", "LimitRange",
    "LimitRangeItem", "LimitRangeSpec", "Namespace", "Node", "NodeAffinity", "NodeCondition", "NodeSelector",
    "NodeSelectorRequirement", "NodeSelectorTerm", "NodeSpec", "NodeStatus", "NodeSystemInfo", "Object", "ObjectMeta",
    "OwnerReference", "Pod", "PodAffinity", "PodAffinityTerm", "PodAntiAffinity", "PodCondition", "PodResourceClaim",
    "PodResourceClaimStatus", "PodSchedulingGate", "PodSchedulingGroup", "PodSpec", "PodStatus", "PodTemplate",
    "PodTemplateSpec", "PreferredSchedulingTerm", "Quantity", "ReplicationController", "ReplicationControllerSpec",
    "ResourceList", "ResourceQuota", "ResourceQuotaSpec", "ResourceQuotaStatus", "ResourceRequirements", "ScopeSelector",
    "ScopedResourceSelectorRequirement", "Service", "ServiceSpec", "Taint", "Toleration", "TopologySpreadConstraint",
    "Value", "Volume", "WeightedPodAffinityTerm",
]  # fmt: skip


#: Phases of pods that have finished.
ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})


# -- pods -------------------------------------------------------------------------------------------------------------


class ResourceClaimUse(Value):
    name: str = ""
    request: str = ""


class ResourceRequirements(Value):
    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(Value):
    container_port: Int64 = 0
    host_port: Int64 = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"
    name: str = ""


class ContainerRestartRule(Value):
    action: str = ""


class Container(Value):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    #: ``Always`` on an init container makes it a sidecar.
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class NodeSelectorRequirement(Value):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Value):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Value):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Value):
    weight: Int64 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Value):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(Value):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Value):
    weight: Int64 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Value):
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class PodAntiAffinity(PodAffinity):
    pass


class Affinity(Value):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(Value):
    key: str = ""
    #: Empty means ``Equal``.
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(Value):
    max_skew: Int64 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int64 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PodSchedulingGate(Value):
    name: str = ""


class PodSchedulingGroup(Value):
    pod_group_name: str | None = None


class ClaimSource(Value):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolume(Value):
    #: A PersistentVolumeClaim template; the claim made from it is named ``<pod>-<volume>``.
    volume_claim_template: dict[str, Any] | None = None


class ImageVolumeSource(Value):
    reference: str = ""


class Volume(Value):
    """A pod's volume. In-tree disks keep their wire form; the volume plugins read the fields they need."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: dict[str, Any] | None = field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    image: ImageVolumeSource | None = None
    #: Scheduling ignores these; draining a node deletes the data of the first.
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class PodResourceClaim(Value):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Value):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: Int64 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = {}
    #: Pod-level requests and limits.
    resources: ResourceRequirements | None = None
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int64 | None = 30
    #: Resource quotas with scope Terminating count pods that set it; those with NotTerminating count the others.
    active_deadline_seconds: Int64 | None = None
    runtime_class_name: str | None = None
    service_account_name: str = ""


class PodCondition(Value):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: Int64 = 0


class PodResourceClaimStatus(Value):
    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceClaimStatus(Value):
    resource_claim_name: str = ""
    request_mappings: tuple[dict[str, Any], ...] = ()


class NodeAllocatableClaimStatus(Value):
    """What a claim's devices take of the node: ``resources`` in 1.36, the others, with the resource as ``name``, in 1.37."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}
    mapping: tuple[dict[str, Quantity], ...] = ()
    overhead: tuple[dict[str, Quantity], ...] = ()


class ContainerStatus(Value):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class PodStatus(Value):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    resize: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableClaimStatus, ...] = ()


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def priority(self) -> int:
        """The pod's priority; 0 if absent."""
        return self.spec.priority or 0


class PodTemplateSpec(Value):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class PodTemplate(Object):
    template: PodTemplateSpec = PodTemplateSpec()


# -- nodes ------------------------------------------------------------------------------------------------------------


class Taint(Value):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Value):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_cidr: str = field(name="podCIDR", default="")
    provider_id: str = field(name="providerID", default="")


class ContainerImage(Value):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeCondition(Value):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeSystemInfo(Value):
    kubelet_version: str = ""


class NodeStatus(Value):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the condition Ready is true; a node without the condition counts as ready."""
        return all(one.status == "True" for one in self.status.conditions if one.type == "Ready")


# -- namespaces, services, limits ---------------------------------------------------------------------------------------


class Namespace(Object):
    """Scheduling reads only the metadata."""


class ServiceSpec(Value):
    selector: dict[str, str] = {}
    cluster_ip: str = field(name="clusterIP", default="")


class Service(Object):
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Value):
    replicas: Int64 | None = None
    selector: dict[str, str] = {}
    template: PodTemplateSpec | None = None


class ReplicationController(Object):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class LimitRangeItem(Value):
    type: str = ""
    default: ResourceList = {}
    default_request: ResourceList = {}
    min: ResourceList = {}
    max: ResourceList = {}
    max_limit_request_ratio: dict[str, Quantity] = {}


class LimitRangeSpec(Value):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Object):
    spec: LimitRangeSpec = LimitRangeSpec()


# -- quotas ------------------------------------------------------------------------------------------------------------
# Resource quotas: limits on the resources and objects of a namespace, for all objects or those in some scopes.


class ScopedResourceSelectorRequirement(Value):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Value):
    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Value):
    hard: ResourceList = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None

    @property
    def requirements(self) -> tuple[ScopedResourceSelectorRequirement, ...]:
        """The requirements an object must meet to count: scopes and scope selector in one form."""
        named = [ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in self.scopes]
        return (*named, *(self.scope_selector.match_expressions if self.scope_selector is not None else ()))


class ResourceQuotaStatus(Value):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Object):
    """A quota. The status is enforced: a limit in ``spec`` applies once the controller has measured its usage."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
