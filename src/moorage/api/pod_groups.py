"""Pod groups (pods that are scheduled together) and the workloads whose templates they are created from.

``scheduling.k8s.io/v1alpha2``; groups also in ``v1alpha3`` and ``v1beta1``, which 1.37 serves instead. A pod names its group in
``spec.schedulingGroup.podGroupName``; the group's policy says whether its pods are scheduled all or none (``gang``) or
individually (``basic``). Scheduling reads only groups: their creator copies the fields of the workload's template into them.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from moorage.api.meta import Int64, Object, Value

#: The type of the condition that says whether the group's scheduling requirements are met.
POD_GROUP_SCHEDULED: Final = "PodGroupScheduled"
#: The same since 1.37.
POD_GROUP_INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
#: Values of ``disruptionMode``: pods may be disrupted individually, or only all together. Unset means the former.
DISRUPTED_POD_BY_POD: Final = "Pod"
DISRUPTED_AS_ONE: Final = "PodGroup"

G = TypeVar("G", bound="PodGroup")


class Condition(Value):
    """A condition of an object, observed at ``observed_generation``. ``meta/v1``."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class BasicSchedulingPolicy(Value):
    """No requirements: the group's pods are scheduled individually."""


class GangSchedulingPolicy(Value):
    #: How many pods must fit at the same time for any of them to be bound.
    min_count: Int64 = 0


class PodGroupSchedulingPolicy(Value):
    """One of the two is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Value):
    #: A node label; all pods of the group are placed on nodes that share its value.
    key: str = ""


class PodGroupSchedulingConstraints(Value):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(Value):
    """One of the two names is set."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodGroupResourceClaimStatus(Value):
    name: str = ""
    resource_claim_name: str | None = None


class WorkloadPodGroupTemplateReference(Value):
    workload_name: str = ""
    pod_group_template_name: str = ""


class PodGroupTemplateReference(Value):
    workload: WorkloadPodGroupTemplateReference | None = None


class WorkloadReference(Value):
    workload_name: str = ""
    template_name: str = ""


class DisruptionMode(Value):
    """One of the two is set. Since ``v1alpha3``; before, the mode is a word."""

    single: BasicSchedulingPolicy | None = None
    all: BasicSchedulingPolicy | None = None


class PodGroupSpec(Value):
    """``pod_group_template_ref`` is in ``v1alpha2``; the three fields after it came with ``v1alpha3``."""

    pod_group_template_ref: PodGroupTemplateReference | None = None
    workload_ref: WorkloadReference | None = None
    parent_composite_pod_group_name: str | None = None
    preemption_policy: str | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int64 | None = None


class PodGroupStatus(Value):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class CompositeGangSchedulingPolicy(Value):
    #: How many of the groups below must fit at the same time for any of them to be bound.
    min_group_count: Int64 = 0


class CompositePodGroupSchedulingPolicy(Value):
    """One of the two is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: CompositeGangSchedulingPolicy | None = None


class CompositePodGroupSpec(Value):
    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: CompositePodGroupSchedulingPolicy = CompositePodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int64 | None = None
    preemption_policy: str | None = None


class _AnyGroup(Object):
    """What groups of pods and groups of groups share; ``spec`` is that of either."""

    @property
    def _spec(self) -> PodGroupSpec | CompositePodGroupSpec:
        spec: PodGroupSpec | CompositePodGroupSpec = getattr(self, "spec")  # noqa: B009 (each kind has its own)
        return spec

    @property
    def priority(self) -> int:
        """The group's priority; 0 if absent."""
        return self._spec.priority or 0

    @property
    def disrupted_as_one(self) -> bool:
        """Whether its pods may be disrupted only all together."""
        mode = self._spec.disruption_mode
        return mode.all is not None if isinstance(mode, DisruptionMode) else mode == DISRUPTED_AS_ONE

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The node labels whose values must be equal for all of the group's pods."""
        constraints = self._spec.scheduling_constraints
        return () if constraints is None else tuple(constraint.key for constraint in constraints.topology)

    @property
    def parent_key(self) -> str | None:
        """``namespace/name`` of the composite group that this one is part of, if any."""
        parent = self._spec.parent_composite_pod_group_name
        return None if parent is None else f"{self.metadata.namespace}/{parent}"


class PodGroup(_AnyGroup):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def min_count(self) -> int | None:
        """The minimum number of pods to schedule together; None if the group is no gang."""
        gang = self.spec.scheduling_policy.gang
        return None if gang is None else gang.min_count


class CompositePodGroup(_AnyGroup):
    """Groups that are scheduled together: pod groups and composite groups that name it as their parent. ``v1alpha3``."""

    spec: CompositePodGroupSpec = CompositePodGroupSpec()

    @property
    def min_count(self) -> int | None:
        """The minimum number of the groups below to schedule together; None if it is no gang."""
        gang = self.spec.scheduling_policy.gang
        return None if gang is None else gang.min_group_count


class PodGroupTemplate(Value):
    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int64 | None = None
    preemption_policy: str | None = None


class CompositePodGroupTemplate(Value):
    name: str = ""
    scheduling_policy: CompositePodGroupSchedulingPolicy = CompositePodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int64 | None = None
    preemption_policy: str | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()
    composite_pod_group_templates: tuple[CompositePodGroupTemplate, ...] = ()


class TypedLocalObjectReference(Value):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class WorkloadSpec(Value):
    """``composite_pod_group_templates`` came with ``v1alpha3``; one of the two lists is set."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()
    composite_pod_group_templates: tuple[CompositePodGroupTemplate, ...] = ()


class Workload(Object):
    """The object that pod groups are created from; scheduling does not read it."""

    spec: WorkloadSpec = WorkloadSpec()


def find_condition(group: PodGroup, kind: str) -> Condition | None:
    """Return the group's condition of a type, if any."""
    return next((condition for condition in group.status.conditions if condition.type == kind), None)


def with_condition(group: G, condition: Condition, now: str | None) -> G:
    """Return the group with the condition, replacing one of the same type; the same object if nothing changes.

    If the status changes, ``now`` becomes the transition time; otherwise the transition time stays.

    Source  apimachinery, api/meta/conditions.go, SetStatusCondition
    """
    current = find_condition(group, condition.type)
    changed = current is None or current.status != condition.status
    new = replace(condition, last_transition_time=now if current is None or changed else current.last_transition_time)
    if new == current:
        return group
    conditions = group.status.conditions
    updated = (*conditions, new) if current is None else tuple(new if one is current else one for one in conditions)
    return replace(group, status=replace(group.status, conditions=updated))
