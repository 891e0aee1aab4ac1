"""Pods and pod templates: the fields that scheduling reads, which excludes images, probes, mounts and security.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidatePodSpec
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Set
from operator import is_
from typing import Final, TypeAlias

import msgspec

from moorage.api import core
from moorage.api.defaults import largest_total
from moorage.api.meta import ResourceList
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, is_hugepage_resource
from moorage.api.quantity import Exact, QuantityError, exact
from moorage.api.validation.faults import Faults, duplicate, invalid, labels, member, named, one_of, required
from moorage.api.validation.metadata import MAX_ANNOTATIONS, annotation_faults, object_meta
from moorage.api.validation.resources import container_resources, pod_resources
from moorage.api.validation.rule_tables import VALUES

# Pod-level resources: they must cover what the pod's containers request.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go, validatePodResourceConsistency; component-helpers,
#         resource/helpers.go, AggregateContainerRequests

_Sums: TypeAlias = dict[str, Exact]


def pod_level_faults(path: str, spec: core.PodSpec) -> Faults:
    """Yield the faults of pod-level resources that do not cover the containers; ``path`` is their path.

    Invalid amounts are reported elsewhere and ignored here.
    """
    if spec.resources is None:
        return
    requests, limits = _amounts(spec.resources.requests), _amounts(spec.resources.limits)
    yield from _short(f"{path}.requests", requests, _total(spec, lambda one: one.resources.requests), "requests")
    needed = _total(spec, lambda one: one.resources.limits)
    pages = {name: amount for name, amount in needed.items() if is_hugepage_resource(name)}
    yield from _short(f"{path}.limits", limits, pages, "limits")
    for i, container in enumerate(spec.containers):
        for name, amount in _amounts(container.resources.limits).items():
            if name in limits and amount.nano > limits[name].nano:
                at = f"{path}.containers[{i}][{name}].limits"
                yield invalid(at, str(amount), f"must be less than or equal to pod limits of {limits[name]}")


def _short(path: str, given: _Sums, needed: _Sums, what: str) -> Faults:
    for name, amount in needed.items():
        if name in given and amount.nano > given[name].nano:
            why = f"must be greater than or equal to aggregate container {what} of {amount}"
            yield invalid(f"{path}[{name}]", str(given[name]), why)


def _total(spec: core.PodSpec, part: Callable[[core.Container], ResourceList]) -> _Sums:
    return largest_total(spec, lambda one: _amounts(part(one)), Exact.plus, lambda amount: amount.nano)


def _amounts(given: ResourceList) -> _Sums:
    found: _Sums = {}
    for name, amount in given.items():
        try:
            found[name] = exact(amount)
        except QuantityError:
            continue
    return found


_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"
_PORT_NAME = re.compile("[-a-z0-9]+")


def pod_faults(pod: core.Pod, *, placement: bool = True) -> Faults:
    """Yield the faults of a pod with defaults. ``placement``: see ``pod_spec_faults``."""
    yield from object_meta(pod.metadata, True)
    yield from pod_spec_faults("spec", pod.spec, is_pod=True, placement=placement)


def pod_template_faults(path: str, template: core.PodTemplateSpec) -> Faults:
    """Yield the faults of a template, at ``path``."""
    yield from labels(f"{path}.labels", template.metadata.labels)
    yield from annotation_faults(f"{path}.annotations", template.metadata.annotations)
    yield from pod_spec_faults(f"{path}.spec", template.spec)


class PodValidator:
    """Validates pods; each distinct metadata, set of containers, and rest of a spec once.

    Most pods of a cluster are copies that differ only in name, node, annotations and volumes.
    """

    def __init__(self) -> None:
        #: Valid parts of pods, encoded.
        self._valid: set[bytes] = set()
        self._valid_keys: set[str] = set()
        self._valid_nodes: set[str] = {""}
        #: The parts of the last valid shape: copies that follow each other often share them.
        self._last_valid: tuple[object, ...] = (None, None, None, None, None)
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, pod: core.Pod) -> Faults:
        spec, metadata = pod.spec, pod.metadata
        parts = (spec, metadata.labels, metadata.owner_references, metadata.namespace, metadata.finalizers)
        if all(map(is_, parts, self._last_valid)) and self.has_plain_fields(pod):
            return iter(())
        about = self._encode(parts[1:])
        containers = self._encode(
            (spec.containers, spec.init_containers, spec.resources, spec.resource_claims, spec.host_network)
        )
        placement = self._encode((
            spec.affinity, spec.tolerations, spec.topology_spread_constraints, spec.node_selector, spec.overhead,
            spec.scheduling_gates, spec.priority, spec.priority_class_name, spec.preemption_policy, spec.restart_policy,
            spec.runtime_class_name, spec.scheduling_group,
        ))  # fmt: skip
        if {about, containers, placement} <= self._valid:
            self._last_valid = parts
            return iter(()) if self.has_plain_fields(pod) else self._own_faults(pod)
        is_known = placement in self._valid and spec.node_name in self._valid_nodes
        faults = list(pod_faults(pod, placement=not is_known))
        if not faults:
            self._valid |= {about, containers, placement}
            self._valid_keys.update(metadata.annotations)
            self._valid_nodes.add(spec.node_name)
        return iter(faults)

    def has_plain_fields(self, pod: core.Pod) -> bool:
        """Return True if a quick check finds valid what is a copy's own: name, node, annotations. False needs a full check."""
        metadata, spec = pod.metadata, pod.spec
        if check_dns1123_subdomain(metadata.name):
            return False
        if spec.node_name not in self._valid_nodes:
            if check_dns1123_subdomain(spec.node_name):
                return False
            self._valid_nodes.add(spec.node_name)
        annotations = metadata.annotations
        if annotations and (
            not annotations.keys() <= self._valid_keys
            or len("".join((*annotations, *annotations.values()))) > MAX_ANNOTATIONS // 4
        ):
            return False
        return _has_plain_volumes(spec)

    def _own_faults(self, pod: core.Pod) -> Faults:
        """Yield the faults of the fields that are not part of a pod's shape."""
        faults = [
            *named("metadata.name", pod.metadata.name, check_dns1123_subdomain),
            *annotation_faults("metadata.annotations", pod.metadata.annotations),
            *(named("spec.nodeName", pod.spec.node_name, check_dns1123_subdomain) if pod.spec.node_name else ()),
            *VALUES.faults("PodParts", pod.spec, "spec"),
        ]
        if not faults:
            self._valid_keys.update(pod.metadata.annotations)
            self._valid_nodes.add(pod.spec.node_name)
        return iter(faults)


def _has_plain_volumes(spec: core.PodSpec) -> bool:
    """Return True if a quick check finds the volumes valid."""
    if not spec.volumes:
        return True
    names = [volume.name for volume in spec.volumes]
    if len(set(names)) < len(names) or any(map(check_dns1123_label, names)):
        return False
    return all(v.persistent_volume_claim is None or v.persistent_volume_claim.claim_name for v in spec.volumes)


def pod_spec_faults(path: str, spec: core.PodSpec, *, is_pod: bool = False, placement: bool = True) -> Faults:
    """Yield the faults of a spec. Only a pod's spec must be consistent with defaulting, a template's need not.

    ``placement`` False: what says where the pod may run, and its priority, are known to be valid
    """
    if spec.resource_claims or not _has_plain_volumes(spec):
        yield from VALUES.faults("PodParts", spec, path)
    claims = frozenset(claim.name for claim in spec.resource_claims)
    yield from _containers(path, spec, claims, is_pod)
    if spec.resources is not None:
        yield from pod_resources(f"{path}.resources", spec.resources)
        yield from pod_level_faults(f"{path}.resources", spec)
    if placement:
        yield from VALUES.faults("PodSpec", spec, path)


# -- containers ---------------------------------------------------------------------------------------------------------


def _containers(path: str, spec: core.PodSpec, claims: Set[str], is_pod: bool) -> Faults:
    if not spec.containers:
        yield required(f"{path}.containers")
    names: set[str] = set()
    host_ports: set[str] = set()
    for i, container in enumerate(spec.containers):
        at = f"{path}.containers[{i}]"
        yield from _container(at, container, names, claims)
        yield from _host_ports(f"{at}.ports", container.ports, host_ports)
        if spec.host_network:
            yield from _host_network_ports(f"{at}.ports", container.ports, is_pod)
    for i, container in enumerate(spec.init_containers):
        at = f"{path}.initContainers[{i}]"
        yield from _container(at, container, names, claims)
        yield from _host_ports(f"{at}.ports", container.ports, set())


def _container(path: str, container: core.Container, names: set[str], claims: Set[str]) -> Faults:
    yield from member(f"{path}.name", container.name, names)
    if container.ports:
        yield from _ports(f"{path}.ports", container.ports)
    yield from container_resources(f"{path}.resources", container.resources, claims)
    yield from one_of(f"{path}.restartPolicy", container.restart_policy, ("Always", "Never", "OnFailure"))
    if container.restart_policy is None and container.restart_policy_rules:
        yield required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")


def _ports(path: str, ports: Iterable[core.ContainerPort]) -> Faults:
    names: set[str] = set()
    for i, port in enumerate(ports):
        at = f"{path}[{i}]"
        if port.name:
            wrong = list(port_name_faults(port.name))
            for fault in wrong:
                yield invalid(f"{at}.name", port.name, fault)
            if not wrong and port.name in names:
                yield duplicate(f"{at}.name", port.name)
            names.add(port.name)
        if port.container_port == 0:
            yield required(f"{at}.containerPort")
        elif not 1 <= port.container_port <= 65535:
            yield invalid(f"{at}.containerPort", port.container_port, _PORT_RANGE)
        if not 0 <= port.host_port <= 65535:
            yield invalid(f"{at}.hostPort", port.host_port, _PORT_RANGE)
        yield from one_of(f"{at}.protocol", port.protocol or None, _PROTOCOLS)


def port_name_faults(name: str) -> Iterator[str]:
    """Yield the faults of a port name."""
    if len(name) > 15:
        yield "must be no more than 15 characters"
    if not _PORT_NAME.fullmatch(name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def _host_ports(path: str, ports: Iterable[core.ContainerPort], held: set[str]) -> Faults:
    for i, port in enumerate(ports):
        if port.host_port:
            claim = f"{port.protocol}/{port.host_ip}/{port.host_port}"
            if claim in held:
                yield duplicate(f"{path}[{i}].hostPort", claim)
            held.add(claim)


def _host_network_ports(path: str, ports: Iterable[core.ContainerPort], is_pod: bool) -> Faults:
    for i, port in enumerate(ports):
        if port.host_port != port.container_port and (is_pod or port.host_port):
            why = "must match `containerPort` when `hostNetwork` is true"
            yield invalid(f"{path}[{i}].hostPort", port.host_port, why)
