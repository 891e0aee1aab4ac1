"""Pod groups (pods that are scheduled together) and the workloads whose templates they are made from.

``scheduling.k8s.io/v1alpha2``. A pod names its group in ``spec.schedulingGroup.podGroupName``; the group says whether its pods
go all or none (``gang``) or each as it can (``basic``). Scheduling reads groups alone: what a workload asks for has been
copied into them by whoever made them.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from moorage.api.meta import Object, Value

__all__ = [
    "DISRUPTED_AS_ONE", "DISRUPTED_POD_BY_POD", "POD_GROUP_SCHEDULED", "BasicSchedulingPolicy", "Condition",
    "GangSchedulingPolicy", "PodGroup", "PodGroupResourceClaim", "PodGroupResourceClaimStatus",
    "PodGroupSchedulingConstraints", "PodGroupSchedulingPolicy", "PodGroupSpec", "PodGroupStatus", "PodGroupTemplate",
    "PodGroupTemplateReference", "TopologyConstraint", "TypedLocalObjectReference", "Workload",
    "WorkloadPodGroupTemplateReference", "WorkloadSpec", "find_condition", "with_condition",
]  # fmt: skip

#: The condition that says whether what a group asks of scheduling has been met.
POD_GROUP_SCHEDULED: Final = "PodGroupScheduled"
#: Values of ``disruptionMode``: each pod may be sent away by itself, or all of them together. Unset means the first.
DISRUPTED_POD_BY_POD: Final = "Pod"
DISRUPTED_AS_ONE: Final = "PodGroup"

G = TypeVar("G", bound="PodGroup")


class Condition(Value):
    """What is observed of an object, as of its ``generation``. ``meta/v1``."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class BasicSchedulingPolicy(Value):
    """Asks for nothing: pods of the group go as they can."""


class GangSchedulingPolicy(Value):
    #: How many pods must find a node at the same time for any of them to be bound.
    min_count: int = 0


class PodGroupSchedulingPolicy(Value):
    """One of the two is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Value):
    #: Label of nodes; all pods of the group go to nodes that share its value.
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


class PodGroupSpec(Value):
    pod_group_template_ref: PodGroupTemplateReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | None = None
    priority_class_name: str = ""
    priority: int | None = None


class PodGroupStatus(Value):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(Object):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def min_count(self) -> int | None:
        """How many pods go together or not at all; None if the group is no gang."""
        gang = self.spec.scheduling_policy.gang
        return None if gang is None else gang.min_count

    @property
    def priority(self) -> int:
        """The group's priority; 0 where none was given."""
        return self.spec.priority or 0

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """Labels of nodes that the nodes of all its pods have to agree on."""
        constraints = self.spec.scheduling_constraints
        return () if constraints is None else tuple(constraint.key for constraint in constraints.topology)


class PodGroupTemplate(Value):
    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | None = None
    priority_class_name: str = ""
    priority: int | None = None


class TypedLocalObjectReference(Value):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class WorkloadSpec(Value):
    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()


class Workload(Object):
    """What pod groups are made from; scheduling does not read it."""

    spec: WorkloadSpec = WorkloadSpec()


def find_condition(group: PodGroup, kind: str) -> Condition | None:
    """Return a group's condition of that type."""
    return next((condition for condition in group.status.conditions if condition.type == kind), None)


def with_condition(group: G, condition: Condition, now: str | None) -> G:
    """Return the group with the condition, in the place of one of the same type; the group itself if nothing differs.

    ``now`` becomes the time of transition where the status is another than before, and is left alone where it is not.

    Source  apimachinery, api/meta/conditions.go, SetStatusCondition
    """
    held = find_condition(group, condition.type)
    turned = held is None or held.status != condition.status
    new = replace(condition, last_transition_time=now if held is None or turned else held.last_transition_time)
    if new == held:
        return group
    conditions = group.status.conditions
    put = (*conditions, new) if held is None else tuple(new if one is held else one for one in conditions)
    return replace(group, status=replace(group.status, conditions=put))
