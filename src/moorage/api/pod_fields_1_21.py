"""Pods as an API server of Kubernetes 1.21 would have stored them: without newer fields.

An old release schedules a pod without the fields it does not know: sidecars are plain init containers, scheduling gates have no
effect. Feature gates of that release drop more fields. That release rounds the requests of each container, not their sum, so
requests are rounded here.

Source  api 0.21, core/v1/types.go; kubernetes 1.21, pkg/api/pod/util.go, dropDisabledFields
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from moorage.api.core import (
    Affinity,
    Container,
    ContainerStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    TopologySpreadConstraint,
    Volume,
)
from moorage.api.meta import LabelSelector, LabelSelectorRequirement, Quantity, ResourceList
from moorage.api.quantity import NANO_PER_MILLI, NANO_PER_UNIT, QuantityError, milli_value, parse, value

_T = TypeVar("_T", bound=PodAffinity)


class OldFields(NamedTuple):
    """The fields that the feature gates of an old release keep."""

    namespace_selector: bool = False
    selects_namespaces: bool = True
    overhead: bool = True
    local_storage: bool = True
    ephemeral_volumes: bool = True


def as_kept_by_1_21(pod: Pod, fields: OldFields) -> Pod:
    """Return the pod without fields that 1.21 does not know; the same object if there are none."""
    spec, status = _spec(pod.spec, fields), _status(pod.status)
    return pod if spec == pod.spec and status == pod.status else replace(pod, spec=spec, status=status)


def _spec(spec: PodSpec, fields: OldFields) -> PodSpec:
    return replace(
        spec,
        containers=tuple(_container(container, fields) for container in spec.containers),
        init_containers=tuple(_container(container, fields) for container in spec.init_containers),
        overhead=_rounded(_counted(spec.overhead, fields)) if fields.overhead else {},
        resources=None,
        host_users=None,
        scheduling_gates=(),
        scheduling_group=None,
        resource_claims=(),
        volumes=tuple(_volume(volume, fields) for volume in spec.volumes),
        topology_spread_constraints=tuple(_constraint(one) for one in spec.topology_spread_constraints),
        affinity=None if spec.affinity is None else _affinity(spec.affinity, fields),
    )


def _volume(volume: Volume, fields: OldFields) -> Volume:
    return replace(volume, image=None, ephemeral=volume.ephemeral if fields.ephemeral_volumes else None)


def _container(container: Container, fields: OldFields) -> Container:
    requests = container.resources.requests
    rounded = _rounded(_counted(requests, fields))
    resources = container.resources if rounded is requests else replace(container.resources, requests=rounded)
    return replace(container, restart_policy=None, restart_policy_rules=(), resources=resources)


def _rounded(requests: ResourceList) -> ResourceList:
    """Return requests in whole units, rounded up; the same object if they are whole already."""
    parts = {name: whole for name, quantity in requests.items() if (whole := _whole(name, quantity)) is not None}
    return {**requests, **parts} if parts else requests


def _whole(name: str, quantity: Quantity) -> Quantity | None:
    """Return a fractional request in whole units; None if it is whole already, or invalid."""
    try:
        nano = parse(quantity)
        if nano % (NANO_PER_MILLI if name == "cpu" else NANO_PER_UNIT) == 0:
            return None
        return f"{milli_value(quantity)}m" if name == "cpu" else value(quantity)
    except QuantityError:
        return None


def _counted(requests: ResourceList, fields: OldFields) -> ResourceList:
    if fields.local_storage:
        return requests
    return {name: quantity for name, quantity in requests.items() if name != "ephemeral-storage"}


def _constraint(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    return replace(constraint, min_domains=None, node_affinity_policy=None, node_taints_policy=None, match_label_keys=())


def _affinity(affinity: Affinity, fields: OldFields) -> Affinity:
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    return replace(
        affinity,
        pod_affinity=None if near is None else _terms(near, fields),
        pod_anti_affinity=None if apart is None else _terms(apart, fields),
    )


#: Matches no namespace: each has a name.
_NOWHERE: Final = LabelSelector(
    match_expressions=(LabelSelectorRequirement(key="kubernetes.io/metadata.name", operator="In", values=("",)),)
)


def selecting_no_namespaces(affinity: Affinity) -> Affinity:
    """Return the affinity with namespace selectors that match no namespace, as 1.23 reads it without its gate."""
    return _affinity(affinity, OldFields(namespace_selector=True, selects_namespaces=False))


def _terms(affinity: _T, fields: OldFields) -> _T:
    required = affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    return replace(
        affinity,
        required_during_scheduling_ignored_during_execution=tuple(_term(term, fields) for term in required),
        preferred_during_scheduling_ignored_during_execution=tuple(
            replace(one, pod_affinity_term=_term(one.pod_affinity_term, fields)) for one in preferred
        ),
    )


def _term(term: PodAffinityTerm, fields: OldFields) -> PodAffinityTerm:
    over = term.namespace_selector if fields.namespace_selector else None
    if over is not None and not fields.selects_namespaces:
        over = _NOWHERE
    return replace(term, namespace_selector=over, match_label_keys=(), mismatch_label_keys=())


def _status(status: PodStatus) -> PodStatus:
    return replace(
        status,
        container_statuses=tuple(_container_status(one) for one in status.container_statuses),
        init_container_statuses=tuple(_container_status(one) for one in status.init_container_statuses),
        resources=None,
        allocated_resources={},
        resize="",
        resource_claim_statuses=(),
        extended_resource_claim_status=None,
    )


def _container_status(status: ContainerStatus) -> ContainerStatus:
    return replace(status, resources=None, allocated_resources={})
