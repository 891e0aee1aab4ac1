"""Warnings about valid objects: deprecated fields, and values that have no effect or that surprise.

Source  kubernetes, pkg/api/{job,node,persistentvolume,persistentvolumeclaim,pod,storage}, warnings.go and util.go;
        pkg/registry/*/strategy.go, WarningsOnCreate and WarningsOnUpdate
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_network
from itertools import chain
from typing import Any, Final

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import go_quoted
from moorage.api.names import check_dns1123_label, check_label_value
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.quota_resources import quota_warnings
from moorage.api.validation.rule_checks import parse_address
from moorage.api.validation.rule_tables import field_of
from moorage.rules.admission.definition_validation import definition_warnings
from moorage.rules.admission.services import service_warnings
from moorage.rules.admission.validation import finalizer_warnings, pod_specs

Warnings = Iterator[str]


def object_warnings(kind: ServedKind, old: Document | None, new: Document) -> tuple[str, ...]:
    """Return the warnings about a valid object. ``old`` is the version that it replaces, None for a new object."""
    if kind.custom is not None:
        return finalizer_warnings(new["metadata"]) if old is None else ()
    about = _OF_KINDS.get(kind.native)
    own = about(old, new) if about is not None else iter(())
    return tuple(dict.fromkeys(chain(own, _template_warnings(kind, old, new))))


def _template_warnings(kind: ServedKind, old: Document | None, new: Document) -> Warnings:
    """Yield the warnings about a new pod, or about a template that is new or may have changed."""
    if old is not None and (kind.native == "Pod" or old["metadata"].get("generation") == new["metadata"].get("generation")):
        return
    for path, spec in pod_specs(kind, new):
        place = path.removesuffix("spec").removesuffix(".")
        metadata = field_of(new, f"{place}.metadata" if place else "metadata") or {}
        yield from _pod_warnings(place, metadata, spec)


# -- labels of nodes ---------------------------------------------------------------------------------------------------

_NODE_LABELS: Final[Mapping[str, str]] = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}


def _term_warnings(path: str, term: Document, *, checks_values: bool = False) -> Warnings:
    for i, one in enumerate(term.get("matchExpressions") or ()):
        at, key = f"{path}.matchExpressions[{i}]", one.get("key") or ""
        if key in _NODE_LABELS:
            yield f"{at}.key: {key} is {_NODE_LABELS[key]}"
        for j, value in enumerate((one.get("values") or ()) if checks_values else ()):
            for why in check_label_value(value):
                yield f"{at}.values[{j}]: {value} is invalid, {why}"


# -- pods --------------------------------------------------------------------------------------------------------------

#: A field of a volume → since when it is deprecated.
_VOLUMES: Final[Mapping[str, str]] = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
#: The fields of some of them in messages.
_NAMED: Final = {"storageos": "storageOS"}
_ANNOTATIONS: Final[Mapping[str, str]] = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_SECCOMP_OF_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_BYTES: Final = ("memory", "ephemeral-storage")


def _pod_warnings(place: str, metadata: Document, spec: Document) -> Warnings:
    """Yield the warnings about a pod, or about the template at ``place``."""
    head = f"{place}." if place else ""
    path, annotations = f"{head}spec", metadata.get("annotations") or {}
    yield from _label_warnings(path, spec)
    for key, why in _ANNOTATIONS.items():
        if key in annotations:
            yield f"{head}metadata.annotations[{key}]: {why}"
    for i, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume_warnings(f"{path}.volumes[{i}]", volume)
    yield from _overlap_warnings(spec.get("volumes") or ())
    yield from _repeat_warnings(path, spec)
    yield from _fraction_warnings(f"{path}.overhead", spec.get("overhead") or {})
    if _SECCOMP_OF_POD in annotations and field_of(spec, "securityContext.seccompProfile") is None:
        yield f"{head}metadata.annotations[{_SECCOMP_OF_POD}]: {_SECCOMP}"
    containers = [*_containers(path, spec)]
    for at, container in containers:
        yield from _annotation_warnings(f"{head}metadata", annotations, spec, container, is_template=bool(place))
        yield from _container_warnings(at, container)
    yield from _port_warnings(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {why}"
    for name in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity_warnings(f"{path}.affinity.{name}", field_of(spec, f"affinity.{name}") or {})
    yield from _pod_address_warnings(path, spec)


def _label_warnings(path: str, spec: Document) -> Warnings:
    """Yield the warnings about labels of nodes, and about spread constraints that select nothing."""
    for key in spec.get("nodeSelector") or ():
        if key in _NODE_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_NODE_LABELS[key]}"
    yield from _node_affinity_warnings(f"{path}.affinity.nodeAffinity", field_of(spec, "affinity.nodeAffinity") or {})
    for i, one in enumerate(spec.get("topologySpreadConstraints") or ()):
        at, key = f"{path}.topologySpreadConstraints[{i}]", one.get("topologyKey") or ""
        if key in _NODE_LABELS:
            yield f"{at}.topologyKey: {key} is {_NODE_LABELS[key]}"
        if one.get("labelSelector") is None:
            yield f"{at}.labelSelector: {_NULL_SELECTOR}"


def _container_warnings(path: str, container: Document) -> Warnings:
    for part in ("limits", "requests"):
        yield from _fraction_warnings(f"{path}.resources.{part}", field_of(container, f"resources.{part}") or {})
    yield from _variable_warnings(f"{path}.env", container.get("env") or ())


def _pod_address_warnings(path: str, spec: Document) -> Warnings:
    for i, text in enumerate(field_of(spec, "dnsConfig.nameservers") or ()):
        yield from address_warnings(f"{path}.dnsConfig.nameservers[{i}]", text)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        yield from address_warnings(f"{path}.hostAliases[{i}].ip", alias.get("ip") or "")


_NULL_SELECTOR: Final = "a null labelSelector results in matching no pod"


def _containers(path: str, spec: Document) -> Iterator[tuple[str, Document]]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for i, one in enumerate(spec.get(part) or ()):
            yield f"{path}.{part}[{i}]", one


def _node_affinity_warnings(path: str, affinity: Document) -> Warnings:
    for i, term in enumerate(field_of(affinity, f"{_REQUIRED}.nodeSelectorTerms") or ()):
        yield from _term_warnings(f"{path}.{_REQUIRED}.nodeSelectorTerms[{i}]", term or {})
    for i, term in enumerate(affinity.get(_PREFERRED) or ()):
        yield from _term_warnings(f"{path}.{_PREFERRED}[{i}].preference", term.get("preference") or {}, checks_values=True)


def _pod_affinity_warnings(path: str, affinity: Document) -> Warnings:
    for i, term in enumerate(affinity.get(_REQUIRED) or ()):
        if term.get("labelSelector") is None:
            yield f"{path}.{_REQUIRED}[{i}].labelSelector: {_NULL_SELECTOR}"
    for i, term in enumerate(affinity.get(_PREFERRED) or ()):
        if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
            yield f"{path}.{_PREFERRED}[{i}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def _volume_warnings(path: str, volume: Document) -> Warnings:
    for name, why in _VOLUMES.items():
        if volume.get(name) is not None:
            yield f"{path}.{_NAMED.get(name, name)}: {why}"
    if (claim := field_of(volume, "ephemeral.volumeClaimTemplate.spec")) is not None:
        yield from _claim_spec_warnings(f"{path}.ephemeral.volumeClaimTemplate.spec", claim)


def _repeat_warnings(path: str, spec: Document) -> Warnings:
    for name, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for i, one in enumerate(spec.get(name) or ()):
            value = one.get(key) or ""
            if value in seen:
                yield f"{path}.{name}[{i}].{key}: duplicate {key} {go_quoted(value)}"
            seen.add(value)
    for i, one in enumerate(spec.get("imagePullSecrets") or ()):
        if not one.get("name"):
            yield f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'


def _fraction_warnings(path: str, amounts: Mapping[str, Any], names: Iterable[str] = _BYTES) -> Warnings:
    for name in names:
        try:
            has_fraction = name in amounts and parse(amounts[name]) % 10**9
        except QuantityError:
            continue
        if has_fraction:
            yield f"{path}[{name}]: fractional byte value {go_quoted(str(amounts[name]))} is invalid, must be an integer"


def _annotation_warnings(
    path: str, annotations: Document, spec: Document, container: Document, *, is_template: bool
) -> Warnings:
    name = container.get("name") or ""
    key = f"{_SECCOMP_OF_CONTAINER}{name}"
    if key in annotations and field_of(container, "securityContext.seccompProfile") is None:
        yield f"{path}.annotations[{key}]: {_SECCOMP}"
    key, of_pod = f"{_APP_ARMOR}{name}", field_of(spec, "securityContext.appArmorProfile")
    has_field = field_of(container, "securityContext.appArmorProfile") is not None
    if is_template and key in annotations and not has_field and of_pod is None:
        yield f'{path}.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'


def _variable_warnings(path: str, variables: Iterable[Document]) -> Warnings:
    seen: set[str] = set()
    for i, one in enumerate(variables):
        name, value = one.get("name") or "", one.get("value") or ""
        reference = f"$({name})"
        if name in seen and (one.get("valueFrom") is not None or value == reference or reference not in value):
            yield f"{path}[{i}]: hides previous definition of {go_quoted(name)}, which may be dropped when using apply"
        seen.add(name)


def _port_warnings(containers: Iterable[tuple[str, Document]]) -> Warnings:
    held: dict[tuple[int, str], list[tuple[str, Document]]] = {}
    names: dict[str, str] = {}
    places = [(f"{at}.ports[{i}]", port) for at, one in containers for i, port in enumerate(one.get("ports") or ())]
    for at, port in places:
        if port.get("hostIP") and not port.get("hostPort"):
            shown = f"{{Name:{port.get('name') or ''} HostPort:0 ContainerPort:{port.get('containerPort') or 0} "
            yield f"{at}: hostIP set without hostPort: {shown}Protocol:{port.get('protocol') or ''} HostIP:{port['hostIP']}}}"
        others = held.setdefault((port.get("containerPort") or 0, port.get("protocol") or ""), [])
        for place, other in others:
            if why := _clash(port, other):
                yield f"{at}: {why} port definition with {place}"
        others.append((at, port))
    for at, port in places:
        if not (name := port.get("name")):
            continue
        if name in names:
            first = names[name]
            use = f"services and probes that select ports by name will use {first}"
            yield f"{at}: duplicate port name {go_quoted(name)} with {first}, {use}"
        else:
            names[name] = at


def _clash(port: Document, other: Document) -> str:
    """Return how two definitions of the same port and protocol clash, or ""."""
    hosts, ips = ([one.get(name) or empty for one in (port, other)] for name, empty in (("hostPort", 0), ("hostIP", "")))
    if hosts[0] == hosts[1] and ips[0] == ips[1]:
        return "duplicate"
    if not all(hosts):
        return "overlapping"
    return "dangerously ambiguous" if hosts[0] == hosts[1] and not all(ips) else ""


# -- overlapping paths of files in volumes -------------------------------------------------------------------------------


def _overlap_warnings(volumes: Iterable[Document]) -> Warnings:
    for volume in volumes:
        name = go_quoted(volume.get("name") or "")
        for field, shown in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")):
            source = volume.get(field) or {}
            of = source.get("secretName" if field == "secret" else "name") or ""
            about = shown if field == "downwardAPI" else f"{shown} {go_quoted(of)}"
            for text in _overlaps([(one.get("path") or "", "") for one in source.get("items") or ()]):
                yield f"volume {name} ({about}): overlapping paths: {text}"
        if (projected := volume.get("projected")) is not None:
            sources = projected.get("sources") or ()
            if any(not any(value is not None for value in one.values()) for one in sources):
                yield f"volume {name} (Projected) has no sources provided"
            for text in _overlaps([path for one in sources for path in _projected_paths(one)]):
                yield f"volume {name} (Projected): overlapping paths: {text}"


def _projected_paths(source: Document) -> Iterator[tuple[str, str]]:
    for field, shown in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")):
        held = source.get(field) or {}
        about = shown if field == "downwardAPI" else f"{shown} {go_quoted(held.get('name') or '')}"
        yield from ((one.get("path") or "", about) for one in held.get("items") or ())
    if token := source.get("serviceAccountToken"):
        yield token.get("path") or "", "ServiceAccountToken"
    if bundle := source.get("clusterTrustBundle"):
        about = bundle.get("name") or bundle.get("signerName") or ""
        yield bundle.get("path") or "", f"ClusterTrustBundle {go_quoted(about)}"


def _overlaps(paths: Iterable[tuple[str, str]]) -> Iterator[str]:
    held: list[tuple[str, str]] = []
    for path, source in paths:
        path = path.rstrip("/")  # noqa: PLW2901
        for other, of in held if path else ():
            if path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/"):
                yield f"{_shown(path, source)} with {_shown(other, of)}"
        held.append((path, source))


def _shown(path: str, source: str) -> str:
    return f"{go_quoted(path)} ({source})" if source else go_quoted(path)


# -- addresses ---------------------------------------------------------------------------------------------------------


def address_warnings(path: str, text: str) -> Warnings:
    """Yield the warning about an address in another than the usual form."""
    address, why = parse_address(text)
    if address is None:
        return
    if why:
        usual = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
        yield f"{path}: non-standard IP address {go_quoted(text)} is invalid: use {go_quoted(str(usual))}"
    elif str(address) != text:
        yield f"{path}: IPv6 address {go_quoted(text)} should be in RFC 5952 canonical format ({go_quoted(str(address))})"


def _range_warnings(path: str, text: str) -> Warnings:
    base, _, length = text.partition("/")
    address, why = parse_address(base)
    if address is None or not length.isdigit() or int(length) > address.max_prefixlen:
        return
    network = ip_network(f"{address}/{int(length)}", strict=False)
    if network.network_address != address:
        one = f"{address}/{address.max_prefixlen}"
        yield (
            f"{path}: CIDR value {go_quoted(text)} is ambiguous in this context "
            f"(should be {go_quoted(str(network))} or {go_quoted(one)}?)"
        )
    elif why:
        yield f"{path}: non-standard CIDR value {go_quoted(text)} is invalid: use {go_quoted(str(network))}"
    elif str(network) != text:
        yield f"{path}: IPv6 CIDR value {go_quoted(text)} should be in RFC 5952 canonical format ({go_quoted(str(network))})"


# -- other kinds -------------------------------------------------------------------------------------------------------

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_CLASS_DEPRECATED: Final = 'deprecated since v1.8; use "storageClassName" attribute instead'
_OPTIONS_ANNOTATION: Final = "volume.beta.kubernetes.io/mount-options"
_RECYCLED: Final = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."


def _claim_spec_warnings(path: str, spec: Document) -> Warnings:
    for part in ("requests", "limits"):
        yield from _fraction_warnings(f"{path}.resources.{part}", field_of(spec, f"resources.{part}") or {}, ("storage",))


def _claim(_: Document | None, new: Document) -> Warnings:
    if _CLASS_ANNOTATION in (new["metadata"].get("annotations") or {}):
        yield f"metadata.annotations[{_CLASS_ANNOTATION}]: {_CLASS_DEPRECATED}"
    yield from _claim_spec_warnings("spec", new.get("spec") or {})


def _volume(_: Document | None, new: Document) -> Warnings:
    annotations, spec = new["metadata"].get("annotations") or {}, new.get("spec") or {}
    if _CLASS_ANNOTATION in annotations:
        yield f"metadata.annotations[{_CLASS_ANNOTATION}]: {_CLASS_DEPRECATED}"
    if _OPTIONS_ANNOTATION in annotations:
        yield f'metadata.annotations[{_OPTIONS_ANNOTATION}]: deprecated since v1.31; use "mountOptions" attribute instead'
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield f"spec.persistentVolumeReclaimPolicy: {_RECYCLED}"
    for i, term in enumerate(field_of(spec, "nodeAffinity.required.nodeSelectorTerms") or ()):
        yield from _term_warnings(f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]", term or {})
    for name in ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "flocker", "quobyte", "rbd"):
        if spec.get(name) is not None:
            yield f"spec.{_NAMED.get(name, name)}: {_VOLUMES[name]}"


def _named_in_pods(old: Document | None, new: Document) -> Warnings:
    """Yield the warning about the name of a job that is no host name."""
    name = new["metadata"].get("name") or ""
    if old is None and (faults := check_dns1123_label(name)):
        why = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {why}: [{' '.join(faults)}]"


def _cron_job(old: Document | None, new: Document) -> Warnings:
    yield from _named_in_pods(old, new)
    if old is not None and "TZ" in (field_of(new, "spec.schedule") or ""):
        more = "see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        yield f"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, {more}"


def _ingress(old: Document | None, new: Document) -> Warnings:
    annotation = "kubernetes.io/ingress.class"
    is_set = annotation in (new["metadata"].get("annotations") or {})
    if old is None and is_set and field_of(new, "spec.ingressClassName") is None:
        yield f"annotation {go_quoted(annotation)} is deprecated, please use 'spec.ingressClassName' instead"


def _network_policy(_: Document | None, new: Document) -> Warnings:
    for part, side in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(field_of(new, f"spec.{part}") or ()):
            for j, peer in enumerate(rule.get(side) or ()):
                block, path = peer.get("ipBlock") or {}, f"spec.{part}[{i}].{side}[{j}].ipBlock"
                yield from _range_warnings(f"{path}.cidr", block.get("cidr") or "")
                for k, text in enumerate(block.get("except") or ()):
                    yield from _range_warnings(f"{path}.except[{k}]", text)


def _secret(_: Document | None, new: Document) -> Warnings:
    """Yield the warning about a certificate and its key that cannot be read."""
    if new.get("type") != "kubernetes.io/tls":
        return
    for name, what in (("tls.crt", "certificate"), ("tls.key", "key")):
        try:
            text = base64.b64decode((new.get("data") or {}).get(name) or "")
        except binascii.Error:
            continue
        if b"-----BEGIN " not in text:
            yield f"tls: failed to find any PEM data in {what} input"
            return


def _endpoint_slice(old: Document | None, new: Document) -> Warnings:
    if new.get("addressType") == "FQDN" and old is None:
        yield "spec.addressType: FQDN endpoints are deprecated"
    for i, endpoint in enumerate(new.get("endpoints") or ()):
        for j, text in enumerate(endpoint.get("addresses") or ()):
            yield from address_warnings(f"endpoints[{i}].addresses[{j}]", text)


def _storage_class(_: Document | None, new: Document) -> Warnings:
    for i, topology in enumerate(new.get("allowedTopologies") or ()):
        for j, one in enumerate(topology.get("matchLabelExpressions") or ()):
            if (key := one.get("key")) in _NODE_LABELS:
                yield f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {_NODE_LABELS[key]}"


def _runtime_class(_: Document | None, new: Document) -> Warnings:
    for key in field_of(new, "scheduling.nodeSelector") or ():
        if key in _NODE_LABELS:
            yield f"scheduling.nodeSelector: {_NODE_LABELS[key]}"


def _driver(old: Document | None, new: Document) -> Warnings:
    """Warn of a driver that gets tokens in the attributes of volumes."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    is_changed = old is None or before.get("tokenRequests") != spec.get("tokenRequests")
    if is_changed and spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
            "logging of tokens in volume attributes"
        )


def _resource_slice(_: Document | None, new: Document) -> Warnings:
    driver = field_of(new, "spec.driver") or ""
    if driver != driver.lower():
        yield f"spec.driver: driver names should be lowercase; {go_quoted(driver)} contains uppercase characters"


def _quota(old: Document | None, new: Document) -> Warnings:
    return iter(quota_warnings(field_of(new, "spec.hard") or {}) if old is None else ())


def _definition(old: Document | None, new: Document) -> Warnings:
    return iter(dict.fromkeys(definition_warnings(new)) if old is None else ())


_OF_KINDS: Final[Mapping[str, Callable[[Document | None, Document], Warnings]]] = {
    "CSIDriver": _driver,
    "CronJob": _cron_job,
    "CustomResourceDefinition": _definition,
    "EndpointSlice": _endpoint_slice,
    "Ingress": _ingress,
    "Job": _named_in_pods,
    "NetworkPolicy": _network_policy,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "ResourceQuota": _quota,
    "ResourceSlice": _resource_slice,
    "RuntimeClass": _runtime_class,
    "Secret": _secret,
    "Service": lambda _, new: service_warnings(new),
    "StorageClass": _storage_class,
}
