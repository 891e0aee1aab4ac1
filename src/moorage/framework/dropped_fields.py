"""Drops fields of a pod that a release does not know or whose feature gate is off.

A dropped field counts neither for pending pods nor for placed ones:

* pod-level resource requests, while their gate is off
* host ports of sidecars, up to 1.33.3
* the state of a resize that the kubelet reports, up to 1.32
* inclusion policies of spread constraints up to 1.32, and ``minDomains`` up to 1.29, while their gates are off
* ``matchLabelKeys`` of spread constraints, off up to 1.26, while their gate is off
* sidecars, up to 1.27
* requests of local storage, up to 1.24, while their gate is off
* overhead, and namespace selectors of affinity terms, up to 1.23, while their gates are off
* ephemeral volumes, up to 1.22, while their gate is off

Source  kube-scheduler 1.36, framework/types.go, NodeInfo.update, PodInfo.CalculateResource
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Container, ContainerStatus, Pod, TopologySpreadConstraint
from moorage.api.pod_fields_1_21 import OldFields, as_kept_by_1_21, selecting_no_namespaces
from moorage.basis.printable import counted, some
from moorage.framework.feature_gates import FeatureGates

_STORAGE: Final = "ephemeral-storage"
_Reader = Callable[[Pod], Pod]


def pod_reader(gates: FeatureGates) -> _Reader:
    """Return a function that drops the fields of a pod which the gates' release does not know."""
    if not gates.emulated.drops_later_pod_fields:
        return _reader_of_today(gates)
    fields = OldFields(
        namespace_selector=gates["PodAffinityNamespaceSelector"],
        overhead=gates["PodOverhead"],
        local_storage=gates["LocalStorageCapacityIsolation"],
        ephemeral_volumes=gates["GenericEphemeralVolume"],
    )
    return lambda pod: as_kept_by_1_21(pod, fields)


def ignored_fields_note(pods: Iterable[Pod], gates: FeatureGates) -> str:
    """Return a note on pods with fields that the gates' release does not know or count; "" if no pod has such a field."""
    release = gates.emulated
    no_gates = (
        "SchedulingGates" in release.lacks or _is_closed(gates, "PodSchedulingReadiness") or release.drops_later_pod_fields
    )
    no_claims = not gates["DynamicResourceAllocation"]
    if not (no_gates or no_claims or release.drops_later_pod_fields or any(True for _ in _readers(gates))):
        return ""
    read = pod_reader(gates)

    def ignores(pod: Pod) -> bool:
        if (no_gates and pod.spec.scheduling_gates) or (no_claims and pod.spec.resource_claims):
            return True
        seen = read(pod)
        return seen is not pod and seen != pod

    changed = [pod.key for pod in pods if ignores(pod)]
    return (
        f"{counted(len(changed), 'pod')} with fields that kube-scheduler {release} ignores: {some(changed)}" if changed else ""
    )


def _reader_of_today(gates: FeatureGates) -> _Reader:
    readers = tuple(_readers(gates))
    if len(readers) > 1:
        return lambda pod: reduce(lambda left, read: read(left), readers, pod)
    return readers[0] if readers else lambda pod: pod


def _readers(gates: FeatureGates) -> Iterator[_Reader]:
    """Yield a reader for each set of fields that the release does not count."""
    if not gates["PodLevelResources"]:
        yield _without_level
    elif not gates["InPlacePodLevelResourcesVerticalScaling"]:
        yield _without_level_status
    if not gates["InPlacePodVerticalScaling"]:
        yield _without_resizes
    if not gates.emulated.counts_sidecar_ports:
        yield _without_sidecar_ports
    if not gates.emulated.knows_sidecars:
        yield _without_sidecars
    if not gates["MatchLabelKeysInPodTopologySpread"]:
        yield _without_label_keys
    yield from (reader for gate, reader in _BY_GATE.items() if _is_closed(gates, gate))


def _is_closed(gates: FeatureGates, name: str) -> bool:
    """Return True if the gate is closed, in a release with it or before it. Later releases lack it: the feature is on."""
    return name in gates.names and not gates[name]


def _without_level(pod: Pod) -> Pod:
    return pod if pod.spec.resources is None else replace(pod, spec=replace(pod.spec, resources=None))


def _without_level_status(pod: Pod) -> Pod:
    if pod.status.resources is None:
        return pod
    return replace(pod, status=replace(pod.status, resources=None))


def _without_resizes(pod: Pod) -> Pod:
    """Drop the resources of containers that the kubelet reports in the status."""
    status = pod.status
    reported = (*status.container_statuses, *status.init_container_statuses)
    if all(one.resources is None and not one.allocated_resources for one in reported):
        return pod
    return replace(
        pod,
        status=replace(
            status,
            container_statuses=tuple(map(_without_resize, status.container_statuses)),
            init_container_statuses=tuple(map(_without_resize, status.init_container_statuses)),
        ),
    )


def _without_resize(status: ContainerStatus) -> ContainerStatus:
    return replace(status, resources=None, allocated_resources={})


def _without_sidecar_ports(pod: Pod) -> Pod:
    init = pod.spec.init_containers
    if not any(one.ports for one in init):
        return pod
    return _with_init_containers(pod, ports=())


def _without_sidecars(pod: Pod) -> Pod:
    if all(one.restart_policy is None for one in pod.spec.init_containers):
        return pod
    return _with_init_containers(pod, restart_policy=None)


def _with_init_containers(pod: Pod, **fields: Any) -> Pod:
    """Return the pod with these fields in all of its init containers."""
    init = tuple(replace(one, **fields) for one in pod.spec.init_containers)
    return replace(pod, spec=replace(pod.spec, init_containers=init))


def _without_label_keys(pod: Pod) -> Pod:
    """Drop the keys, and what the API server's defaults added to the selectors for them."""
    constraints = pod.spec.topology_spread_constraints
    if not any(one.match_label_keys for one in constraints):
        return pod
    kept = tuple(_without_keys(one, pod.metadata.labels) for one in constraints)
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=kept))


def _without_keys(one: TopologySpreadConstraint, labels: Mapping[str, str]) -> TopologySpreadConstraint:
    added = {(key, "In", (labels[key],)) for key in one.match_label_keys if key in labels}
    selector = one.label_selector
    if selector is not None:
        rest = tuple(asked for asked in selector.match_expressions if (asked.key, asked.operator, asked.values) not in added)
        selector = replace(selector, match_expressions=rest)
    return replace(one, match_label_keys=(), label_selector=selector)


def _without_local_storage(pod: Pod) -> Pod:
    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=tuple(map(_without_storage, spec.containers)),
            init_containers=tuple(map(_without_storage, spec.init_containers)),
            overhead={name: amount for name, amount in spec.overhead.items() if name != _STORAGE},
        ),
    )


def _without_storage(container: Container) -> Container:
    requests = container.resources.requests
    if _STORAGE not in requests:
        return container
    kept = {name: amount for name, amount in requests.items() if name != _STORAGE}
    return replace(container, resources=replace(container.resources, requests=kept))


def _without_overhead(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, overhead={})) if pod.spec.overhead else pod


def _without_ephemeral_volumes(pod: Pod) -> Pod:
    volumes = pod.spec.volumes
    if all(one.ephemeral is None for one in volumes):
        return pod
    return replace(pod, spec=replace(pod.spec, volumes=tuple(replace(one, ephemeral=None) for one in volumes)))


def _without_namespace_selectors(pod: Pod) -> Pod:
    affinity = pod.spec.affinity
    return pod if affinity is None else replace(pod, spec=replace(pod.spec, affinity=selecting_no_namespaces(affinity)))


def _without_min_domains(pod: Pod) -> Pod:
    return _without_in_constraints(pod, "min_domains")


def _without_inclusion_policies(pod: Pod) -> Pod:
    return _without_in_constraints(pod, "node_affinity_policy", "node_taints_policy")


def _without_in_constraints(pod: Pod, *fields: str) -> Pod:
    """Return the pod with ``fields`` set to None in its spread constraints."""
    constraints = pod.spec.topology_spread_constraints
    if all(getattr(one, field) is None for one in constraints for field in fields):
        return pod
    kept = tuple(replace(one, **dict.fromkeys(fields)) for one in constraints)
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=kept))


#: Gate of 1.32 or before → the reader while it is closed.
_BY_GATE: Final[Mapping[str, _Reader]] = {
    "PodAffinityNamespaceSelector": _without_namespace_selectors,
    "PodOverhead": _without_overhead,
    "GenericEphemeralVolume": _without_ephemeral_volumes,
    "LocalStorageCapacityIsolation": _without_local_storage,
    "MinDomainsInPodTopologySpread": _without_min_domains,
    "NodeInclusionPolicyInPodTopologySpread": _without_inclusion_policies,
}
