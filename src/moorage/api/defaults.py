"""Set the defaults that the API server sets when an object is created, limited to the fields that scheduling reads.

A manifest has fewer fields than a stored object: limits become requests, ports of host-network pods become host ports, label
keys of affinity terms become requirements. Objects from a dump are complete; for them every function here returns the object it
was given. Applying a function twice has no further effect.

``moorage.api.admission`` holds what admission plugins add (priorities, limit ranges, tolerations).

Source  kubernetes, pkg/apis/core/v1/defaults.go and zz_generated.defaults.go; pkg/registry/core/pod/strategy.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from moorage.api import core
from moorage.api.devices import (
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from moorage.api.meta import LabelSelector, LabelSelectorRequirement, ResourceList, Value
from moorage.api.names import is_hugepage_resource
from moorage.api.quantity import added, canonical, parse

#: How many complete specs are remembered.
_MOST_SPECS: Final = 4096
_T = TypeVar("_T")
_V = TypeVar("_V", bound=Value)


def default_pod(pod: core.Pod) -> core.Pod:
    """Return the pod as the API server would store it, or the same object if it is complete.

    Raises  InputError if computing pod-level resources meets a quantity that cannot be parsed
    """
    if _is_complete(pod.spec):
        return pod
    spec = default_pod_spec(pod.spec)
    containers = _map(spec.containers, lambda held: _pod_container(held, spec.host_network))
    inits = _map(spec.init_containers, lambda held: _pod_container(held, spec.host_network))
    spec = _changed(spec, containers=containers, init_containers=inits)
    if spec.resources is not None:
        spec = _changed(spec, resources=_pod_level(spec, spec.resources))
    return merge_label_keys(_changed(pod, spec=spec))


class PodDefaults:
    """Sets defaults like ``default_pod``. Pods that share a spec also share the completed spec."""

    def __init__(self) -> None:
        #: ``id`` of a spec → the spec, and the completed spec.
        self._complete: dict[int, tuple[core.PodSpec, core.PodSpec]] = {}

    def __call__(self, pod: core.Pod) -> core.Pod:
        """Return the pod as the API server would store it.

        Raises  InputError as ``default_pod`` does
        """
        spec = pod.spec
        held = self._complete.get(id(spec))
        if held is not None and held[0] is spec:
            return pod if held[1] is spec else replace(pod, spec=held[1])
        complete = default_pod(pod)
        if not spec.node_name and not _uses_label_keys(spec):  # label keys depend on the labels of the pod
            if len(self._complete) >= _MOST_SPECS:
                self._complete.clear()
            self._complete[id(spec)] = spec, complete.spec
        return complete


def _is_complete(spec: core.PodSpec) -> bool:
    """Return True if the spec needs no defaults, as for most pods of a dump. False only means that it may need some."""
    if spec.resources is not None or _uses_label_keys(spec):
        return False
    if not (spec.restart_policy and spec.scheduler_name) or spec.termination_grace_period_seconds is None:
        return False
    for container in (*spec.containers, *spec.init_containers):
        resources = container.resources
        if not resources.limits.keys() <= resources.requests.keys():
            return False
        for port in container.ports:
            if not port.protocol or (spec.host_network and not port.host_port):
                return False
    return all(volume.rbd is None for volume in spec.volumes) if spec.volumes else True


def _uses_label_keys(spec: core.PodSpec) -> bool:
    if any(constraint.match_label_keys for constraint in spec.topology_spread_constraints):
        return True
    if spec.affinity is None:
        return False
    return any(
        term.match_label_keys or term.mismatch_label_keys
        for affinity in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
        if affinity is not None
        for term in (
            *affinity.required_during_scheduling_ignored_during_execution,
            *(w.pod_affinity_term for w in affinity.preferred_during_scheduling_ignored_during_execution),
        )
    )


def default_pod_spec(spec: core.PodSpec) -> core.PodSpec:
    """Return a spec with the defaults that pods and pod templates share."""
    return _changed(
        spec,
        restart_policy=spec.restart_policy or "Always",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        termination_grace_period_seconds=30
        if spec.termination_grace_period_seconds is None
        else spec.termination_grace_period_seconds,
        containers=_map(spec.containers, default_container),
        init_containers=_map(spec.init_containers, default_container),
        volumes=_map(spec.volumes, _volume),
    )


def default_container(container: core.Container) -> core.Container:
    """Return a container with the default protocol of its ports."""
    return _changed(container, ports=_map(container.ports, lambda port: _changed(port, protocol=port.protocol or "TCP")))


def _pod_container(container: core.Container, host_network: bool) -> core.Container:
    resources = container.resources
    if any(name not in resources.requests for name in resources.limits):
        resources = replace(resources, requests={**resources.limits, **resources.requests})
    ports = _map(container.ports, _host_port) if host_network else container.ports
    return _changed(container, resources=resources, ports=ports)


def _host_port(port: core.ContainerPort) -> core.ContainerPort:
    return _changed(port, host_port=port.host_port or port.container_port)


def _volume(volume: core.Volume) -> core.Volume:
    """Set the default pool of a Ceph block device; the scheduler compares pools to find shared disks."""
    if volume.rbd is None or volume.rbd.get("pool"):
        return volume
    return replace(volume, rbd={**volume.rbd, "pool": "rbd"})


# -- pod-level resources ------------------------------------------------------------------------------------------------


def _pod_level(spec: core.PodSpec, resources: core.ResourceRequirements) -> core.ResourceRequirements:
    """Complete pod-level resources that are set in part.

    Limits of huge pages default to the containers' total, unless the pod requests them. Requests default to the containers'
    total for resources that allow overcommitment, else to the pod's own limit.
    """
    if not resources.limits and not resources.requests:
        return resources
    limits = {**_huge_page_limits(spec, resources), **resources.limits}
    requests = _pod_level_requests(spec, resources.requests, limits) if limits else resources.requests
    if len(limits) == len(resources.limits) and len(requests) == len(resources.requests):
        return resources
    return replace(resources, limits=limits, requests=requests)


def complete_pod_level(pod: core.Pod) -> core.Pod:
    """Return a new pod with its pod-level resources as from Kubernetes 1.37 on, where they are completed on creation.

    Requests default to the containers' total even if there are no limits, and a limit that each container has to their total,
    or to the pod's own request if that is larger.

    Source  kubernetes, pkg/api/pod/util.go, DefaultPodLevelResources (gate PodLevelResourcesFixDefaulting)
    """
    resources = pod.spec.resources
    if resources is None or not (resources.limits or resources.requests):
        return pod
    limits = {**_huge_page_limits(pod.spec, resources), **resources.limits}
    requests = _pod_level_requests(pod.spec, resources.requests, limits)
    of_containers = total_amounts(pod.spec, lambda asked: asked.limits)
    parts = (*pod.spec.containers, *pod.spec.init_containers)
    for name, request in requests.items():
        if name not in limits and _counts_for_pods(name) and all(name in one.resources.limits for one in parts):
            limits[name] = max(of_containers[name], request, key=parse)
    completed = replace(resources, limits=limits, requests=requests)
    return _changed(pod, spec=_changed(pod.spec, resources=completed))


def _huge_page_limits(spec: core.PodSpec, resources: core.ResourceRequirements) -> ResourceList:
    """Return the containers' total limits of huge pages that the pod does not request itself."""
    limits = total_amounts(spec, lambda asked: asked.limits)
    return {name: most for name, most in limits.items() if is_hugepage_resource(name) and name not in resources.requests}


def _pod_level_requests(spec: core.PodSpec, own: ResourceList, limits: ResourceList) -> ResourceList:
    """Return a pod's own requests, completed with the containers' total and then with the pod's limits."""
    total = total_amounts(spec, lambda asked: asked.requests)
    of_limits = {name: most for name, most in limits.items() if _counts_for_pods(name)}
    of_containers = {
        name: amount for name, amount in total.items() if _counts_for_pods(name) and not is_hugepage_resource(name)
    }
    return {**of_limits, **of_containers, **own}


def _counts_for_pods(name: str) -> bool:
    return name in {"cpu", "memory"} or is_hugepage_resource(name)


def largest_total(
    spec: core.PodSpec, amounts: Callable[[core.Container], Mapping[str, _T]], plus: Callable[[_T, _T], _T],
    size: Callable[[_T], int],
) -> dict[str, _T]:  # fmt: skip
    """Return the largest total at any time: of all running containers, or of an init container and the sidecars before it.

    ``amounts`` are those of a container by resource, ``size`` is what makes one larger than another.

    Source  component-helpers/resource/helpers.go, AggregateContainerRequests and AggregateContainerLimits
    """
    running: dict[str, _T] = {}
    beside: dict[str, _T] = {}
    most: dict[str, _T] = {}

    def add_all(sums: dict[str, _T], more: Mapping[str, _T]) -> None:
        for name, amount in more.items():
            sums[name] = plus(sums[name], amount) if name in sums else amount

    def keep_larger(sums: dict[str, _T], other: Mapping[str, _T]) -> None:
        for name, amount in other.items():
            if name not in sums or size(amount) > size(sums[name]):
                sums[name] = amount

    for one in spec.containers:
        add_all(running, amounts(one))
    for one in spec.init_containers:
        asked = amounts(one)
        if one.restart_policy == "Always":
            add_all(running, asked)
            add_all(beside, asked)
            keep_larger(most, {name: beside[name] for name in asked})
        else:
            keep_larger(most, {name: plus(own, beside[name]) if name in beside else own for name, own in asked.items()})
    keep_larger(running, most)
    return running


def total_amounts(spec: core.PodSpec, part: Callable[[core.ResourceRequirements], ResourceList]) -> ResourceList:
    """Return the containers' largest total, each amount in the suffix family of the first.

    Raises  QuantityError
    """
    return {
        name: canonical(amount) for name, amount in largest_total(spec, lambda one: part(one.resources), added, parse).items()
    }


# -- label keys ---------------------------------------------------------------------------------------------------------


def merge_label_keys(pod: core.Pod) -> core.Pod:
    """Merge ``matchLabelKeys`` and ``mismatchLabelKeys`` into the label selectors, as the API server does on creation.

    Keys that the pod has no label for are ignored; a term without a selector stays without one.
    Source  pkg/registry/core/pod/strategy.go, mutatePodAffinity and mutateTopologySpreadConstraints
    """
    spec = pod.spec
    if not _uses_label_keys(spec):
        return pod
    labels = pod.metadata.labels
    affinity = spec.affinity and _changed(
        spec.affinity,
        pod_affinity=_merged_affinity(spec.affinity.pod_affinity, labels),
        pod_anti_affinity=_merged_affinity(spec.affinity.pod_anti_affinity, labels),
    )
    constraints = _map(spec.topology_spread_constraints, lambda constraint: _merged_constraint(constraint, labels))
    return _changed(pod, spec=_changed(spec, affinity=affinity, topology_spread_constraints=constraints))


_A = TypeVar("_A", bound=core.PodAffinity)


def _merged_affinity(affinity: _A | None, labels: Mapping[str, str]) -> _A | None:
    if affinity is None:
        return None

    def merge_weighted(weighted: core.WeightedPodAffinityTerm) -> core.WeightedPodAffinityTerm:
        return _changed(weighted, pod_affinity_term=_merged_term(weighted.pod_affinity_term, labels))

    required = affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    return _changed(
        affinity,
        required_during_scheduling_ignored_during_execution=_map(required, lambda term: _merged_term(term, labels)),
        preferred_during_scheduling_ignored_during_execution=_map(preferred, merge_weighted),
    )


def _merged_term(term: core.PodAffinityTerm, labels: Mapping[str, str]) -> core.PodAffinityTerm:
    if term.label_selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    selector = _merged_selector(term.label_selector, "In", term.match_label_keys, labels)
    return _changed(term, label_selector=_merged_selector(selector, "NotIn", term.mismatch_label_keys, labels))


def _merged_constraint(constraint: core.TopologySpreadConstraint, labels: Mapping[str, str]) -> core.TopologySpreadConstraint:
    if constraint.label_selector is None or not constraint.match_label_keys:
        return constraint
    return _changed(
        constraint, label_selector=_merged_selector(constraint.label_selector, "In", constraint.match_label_keys, labels)
    )


def _merged_selector(selector: LabelSelector, operator: str, keys: Iterable[str], labels: Mapping[str, str]) -> LabelSelector:
    wanted = [LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],)) for key in keys if key in labels]
    held = frozenset(selector.match_expressions)
    missing = tuple(asked for asked in wanted if asked not in held)
    return replace(selector, match_expressions=(*selector.match_expressions, *missing)) if missing else selector


# -- other objects ------------------------------------------------------------------------------------------------------


def default_node(node: core.Node) -> core.Node:
    """Return the node with ``allocatable`` set from ``capacity``, if only the latter is set."""
    if node.status.allocatable or not node.status.capacity:
        return node
    return replace(node, status=replace(node.status, allocatable=node.status.capacity))


def default_namespace(namespace: core.Namespace) -> core.Namespace:
    """Return the namespace with the label ``kubernetes.io/metadata.name``."""
    labels, name = namespace.metadata.labels, namespace.metadata.name
    if not name or labels.get("kubernetes.io/metadata.name") == name:
        return namespace
    return replace(namespace, metadata=replace(namespace.metadata, labels={**labels, "kubernetes.io/metadata.name": name}))


def default_replication_controller(controller: core.ReplicationController) -> core.ReplicationController:
    """Return the controller with its template's labels as selector, if it has none."""
    spec = controller.spec
    if spec.selector or spec.template is None or not spec.template.metadata.labels:
        return controller
    return replace(controller, spec=replace(spec, selector=spec.template.metadata.labels))


def default_limit_range(limit_range: core.LimitRange) -> core.LimitRange:
    """Return the limit range with its containers' defaults completed from the maximum, the default and the minimum."""
    limits = _map(limit_range.spec.limits, _limit_item)
    return limit_range if limits is limit_range.spec.limits else replace(limit_range, spec=core.LimitRangeSpec(limits=limits))


def _limit_item(item: core.LimitRangeItem) -> core.LimitRangeItem:
    if item.type != "Container":
        return item
    default = {**item.max, **item.default}
    return _changed(item, default=default, default_request={**item.min, **default, **item.default_request})


def default_resource_claim(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim with default device counts and allocation modes.

    Source  kubernetes, pkg/apis/resource/v1/defaults.go
    """
    return _changed(claim, spec=_claim_spec(claim.spec))


def default_resource_claim_template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """Return the template with the defaults of its claims."""
    return _changed(template, spec=_changed(template.spec, spec=_claim_spec(template.spec.spec)))


def _claim_spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    return _changed(spec, devices=_changed(spec.devices, requests=_map(spec.devices.requests, _device_request)))


def _device_request(request: DeviceRequest) -> DeviceRequest:
    exactly = request.exactly and _counted(request.exactly)
    return _changed(request, exactly=exactly, first_available=_map(request.first_available, _counted))


_Request = TypeVar("_Request", ExactDeviceRequest, DeviceSubRequest)


def _counted(asked: _Request) -> _Request:
    mode = asked.allocation_mode or "ExactCount"
    return _changed(asked, allocation_mode=mode, count=(asked.count or 1) if mode == "ExactCount" else asked.count)


# -- sharing unchanged values -------------------------------------------------------------------------------------------


def _map(items: tuple[_T, ...], change: Callable[[_T], _T]) -> tuple[_T, ...]:
    """Change each item; return the given tuple if no item changed."""
    changed = tuple([change(item) for item in items])
    return items if all(new is old for new, old in zip(changed, items, strict=True)) else changed


def _changed(value: _V, **fields: Any) -> _V:
    """Return the value with these fields set; the value itself if it has them already."""
    for name, wanted in fields.items():
        held = getattr(value, name)
        if held is not wanted and held != wanted:
            return replace(value, **fields)
    return value
