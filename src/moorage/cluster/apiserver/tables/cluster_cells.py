"""Table cells of nodes, namespaces, services, configuration, RBAC objects and events.

Source  kubernetes, pkg/printers/internalversion/printers.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api import quantity
from moorage.cluster.apiserver.tables.cells import (
    NONE,
    Cell,
    age,
    age_of,
    at,
    created_at,
    human_duration,
    items,
    name_of,
    number,
    pairs,
    selector_of,
    word,
)
from moorage.cluster.apiserver.tables.usage_metrics import amounts
from moorage.cluster.apiserver.vocabulary.records import Document


def plain(found: Document, now: float) -> list[Cell]:
    """Return the cells of kinds without their own columns."""
    return [name_of(found), age_of(found, now)]


def quota(found: Document, now: float) -> list[Cell]:
    """Return the cells of a resource quota: used and hard amounts, with pod limits in a separate column."""
    hard, used = (at(found, f"status.{name}") or {} for name in ("hard", "used"))
    texts = [(name, f"{name}: {used.get(name, '0')}/{amount}") for name, amount in sorted(hard.items())]
    requests, limits = (
        ", ".join(text for name, text in texts if name.startswith("limits.") is is_limit) for is_limit in (False, True)
    )
    return [name_of(found), requests, limits, age_of(found, now)]


def created(found: Document, _: float) -> list[Cell]:
    """Return the cells of kinds that show their creation time."""
    return [name_of(found), created_at(found)]


_ROLE: Final = "node-role.kubernetes.io/"


def node(found: Document, now: float) -> list[Cell]:
    """Return the cells of a node."""
    conditions = {one.get("type"): one.get("status") for one in items(found, "status.conditions")}
    ready = "Unknown" if "Ready" not in conditions else "Ready" if conditions["Ready"] == "True" else "NotReady"
    if at(found, "spec.unschedulable"):
        ready += ",SchedulingDisabled"
    labels = found["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {labels.get("kubernetes.io/role")}
    system, kernel, runtime = (
        word(found, f"status.nodeInfo.{name}", "<unknown>") for name in ("osImage", "kernelVersion", "containerRuntimeVersion")
    )
    if architecture := word(found, "status.nodeInfo.architecture"):
        kernel += f" ({architecture})"
    return [
        name_of(found), ready, ",".join(sorted(role for role in roles if role)) or NONE, age_of(found, now),
        word(found, "status.nodeInfo.kubeletVersion"), _address(found, "InternalIP"), _address(found, "ExternalIP"),
        system, kernel, runtime,
    ]  # fmt: skip


def _address(found: Document, form: str) -> str:
    return next((str(one.get("address")) for one in items(found, "status.addresses") if one.get("type") == form), NONE)


def namespace(found: Document, now: float) -> list[Cell]:
    """Return the cells of a namespace."""
    return [name_of(found), word(found, "status.phase"), age_of(found, now)]


def service(found: Document, now: float) -> list[Cell]:
    """Return the cells of a service."""
    addresses = items(found, "spec.clusterIPs") or [one for one in [word(found, "spec.clusterIP")] if one]
    ports = ",".join(_port(one) for one in items(found, "spec.ports"))
    return [
        name_of(found), word(found, "spec.type"), str(addresses[0]) if addresses else NONE, _external_addresses(found),
        ports or NONE, age_of(found, now), pairs(at(found, "spec.selector")),
    ]  # fmt: skip


def _port(port: Document) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _external_addresses(found: Document) -> str:
    """Return the external addresses of a service."""
    addresses = [str(one) for one in items(found, "spec.externalIPs")]
    match word(found, "spec.type"):
        case "ClusterIP" | "NodePort":
            return ",".join(addresses) or NONE
        case "ExternalName":
            return word(found, "spec.externalName")
        case "LoadBalancer":
            given = {word(one, "ip") or word(one, "hostname") for one in items(found, "status.loadBalancer.ingress")}
            return ",".join([*sorted(given - {""}), *addresses]) or "<pending>"
        case _:
            return "<unknown>"


#: Number of hosts shown for an ingress.
_HOSTS: Final = 3


def ingress(found: Document, now: float) -> list[Cell]:
    """Return the cells of an ingress."""
    rules = items(found, "spec.rules")
    hosts = ",".join([host for rule in rules if (host := word(rule, "host"))][:_HOSTS]) or "*"
    more = f" + {len(rules) - _HOSTS} more..." if len(rules) > _HOSTS else ""
    given = {word(one, "ip") or word(one, "hostname") for one in items(found, "status.loadBalancer.ingress")}
    return [
        name_of(found), word(found, "spec.ingressClassName") or NONE, hosts + more,
        ",".join(sorted(given - {""})), "80, 443" if items(found, "spec.tls") else "80", age_of(found, now),
    ]  # fmt: skip


#: Number of addresses shown for endpoints.
_SHOWN: Final = 3


def endpoints(found: Document, now: float) -> list[Cell]:
    """Return the cells of endpoints."""
    addresses = [place for subset in items(found, "subsets") for place in _places(subset)]
    return [name_of(found), _first(addresses) if items(found, "subsets") else NONE, age_of(found, now)]


def endpoint_slice(found: Document, now: float) -> list[Cell]:
    """Return the cells of an endpoint slice."""
    ports = [str(one.get("port") or one.get("name") or "*") for one in items(found, "ports")]
    addresses = [str(address) for one in items(found, "endpoints") for address in one.get("addresses") or ()]
    shown = [_first(ports) if ports else "<unset>", _first(addresses) if addresses else "<unset>"]
    return [name_of(found), word(found, "addressType"), *shown, age_of(found, now)]


def _first(texts: list[str]) -> str:
    return ",".join(texts[:_SHOWN]) + (f" + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else "")


def _places(subset: Document) -> list[str]:
    addresses = [str(one.get("ip")) for one in items(subset, "addresses")]
    ports = items(subset, "ports")
    if not ports:
        return addresses
    return [f"[{one}]:{port['port']}" if ":" in one else f"{one}:{port['port']}" for port in ports for one in addresses]


def network_policy(found: Document, now: float) -> list[Cell]:
    """Return the cells of a network policy."""
    return [name_of(found), selector_of(at(found, "spec.podSelector")), age_of(found, now)]


def signing_request(found: Document, now: float) -> list[Cell]:
    """Return the cells of a certificate signing request."""
    types = {word(one, "type") for one in items(found, "status.conditions")}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    state += (",Failed" if "Failed" in types else "") + (",Issued" if word(found, "status.certificate") else "")
    seconds = at(found, "spec.expirationSeconds")
    duration = NONE if seconds is None else human_duration(seconds)
    return [name_of(found), age_of(found, now), word(found, "spec.signerName"), word(found, "spec.username"), duration, state]


def event(found: Document, now: float) -> list[Cell]:
    """Return the cells of an event of either API."""
    first = _first_of(found, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    series = found.get("series")
    last = at(series, "lastObservedTime") if series else _first_of(found, "lastTimestamp", "deprecatedLastTimestamp") or first
    count = number(series, "count") if series else _first_of(found, "count", "deprecatedCount") or 1
    about = found.get("involvedObject") or found.get("regarding") or {}
    kind, name = word(about, "kind").lower(), word(about, "name")
    source = found.get("source") or found.get("deprecatedSource") or {}
    component = word(source, "component") or str(_first_of(found, "reportingComponent", "reportingController") or "")
    host = word(source, "host") or word(found, "reportingInstance")
    return [
        age(last, now), word(found, "type"), word(found, "reason"), f"{kind}/{name}" if name else kind,
        word(about, "fieldPath"), f"{component}, {host}" if host else component,
        str(_first_of(found, "message", "note") or "").strip(), age(first, now), count, name_of(found),
    ]  # fmt: skip


def _first_of(found: Document, *names: str) -> Any:
    return next((found[name] for name in names if found.get(name)), None)


def priority_class(found: Document, now: float) -> list[Cell]:
    """Return the cells of a priority class."""
    is_global = bool(found.get("globalDefault"))
    return [name_of(found), number(found, "value"), is_global, age_of(found, now), word(found, "preemptionPolicy")]


def pod_group(found: Document, now: float) -> list[Cell]:
    """Return the cells of a pod group."""
    conditions = {one["type"]: one for one in items(found, "status.conditions")}
    state = "Pending"
    if scheduled := conditions.get("PodGroupInitiallyScheduled") or conditions.get("PodGroupScheduled"):
        state = "Scheduled" if scheduled["status"] == "True" else "Unschedulable"
    if disrupted := conditions.get("DisruptionTarget"):
        state = disrupted["reason"]
    policy = "Basic" if found["spec"]["schedulingPolicy"].get("gang") is None else "Gang"
    workload = word(found, "spec.podGroupTemplateRef.workload.workloadName") or NONE
    return [name_of(found), policy, workload, state, age_of(found, now)]


def runtime_class(found: Document, now: float) -> list[Cell]:
    """Return the cells of a runtime class."""
    return [name_of(found), word(found, "handler"), age_of(found, now)]


def config_map(found: Document, now: float) -> list[Cell]:
    """Return the cells of a config map."""
    return [name_of(found), len(found.get("data") or {}) + len(found.get("binaryData") or {}), age_of(found, now)]


def secret(found: Document, now: float) -> list[Cell]:
    """Return the cells of a secret."""
    return [name_of(found), word(found, "type"), len(found.get("data") or {}), age_of(found, now)]


def lease(found: Document, now: float) -> list[Cell]:
    """Return the cells of a lease."""
    return [name_of(found), word(found, "spec.holderIdentity"), age_of(found, now)]


def scale(found: Document, now: float) -> list[Cell]:
    """Return the cells of a scale."""
    return [name_of(found), number(found, "spec.replicas"), number(found, "status.replicas"), age_of(found, now)]


def role_binding(found: Document, now: float) -> list[Cell]:
    """Return the cells of a role binding."""
    subjects = found.get("subjects") or []
    users, groups = (", ".join(one["name"] for one in subjects if one["kind"] == kind) for kind in ("User", "Group"))
    accounts = ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in subjects if one["kind"] == "ServiceAccount")
    role = f"{word(found, 'roleRef.kind')}/{word(found, 'roleRef.name')}"
    return [name_of(found), role, age_of(found, now), users, groups, accounts]


def metrics(found: Document, _: float) -> list[Cell]:
    """Return the cells of metrics."""
    usages = [found["usage"]] if "usage" in found else [one["usage"] for one in found["containers"]]
    total = amounts(
        sum(quantity.milli_value(one["cpu"]) for one in usages), sum(quantity.value(one["memory"]) for one in usages)
    )
    return [name_of(found), total["cpu"], total["memory"], found["window"]]


# -- storage cells -----------------------------------------------------------------------------------------------------
# Table cells of volumes, drivers and devices.
#
# Source  kubernetes, pkg/printers/internalversion/printers.go; pkg/apis/core/helper, for modes and classes

_UNSET: Final = "<unset>"
_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT: Final = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _modes(modes: list[Any]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _annotations(found: Document) -> Document:
    return found["metadata"].get("annotations") or {}


def _class(found: Document) -> str:
    own = _annotations(found).get(_CLASS)
    return word(found, "spec.storageClassName") if own is None else str(own)


def _phase(found: Document) -> str:
    return "Terminating" if found["metadata"].get("deletionTimestamp") else word(found, "status.phase")


def _or_unset(found: Document, path: str) -> str:
    return str(at(found, path, _UNSET))


def volume(found: Document, now: float) -> list[Cell]:
    """Return the cells of a persistent volume."""
    of = at(found, "spec.claimRef")
    return [
        name_of(found), word(found, "spec.capacity.storage", "0"), _modes(items(found, "spec.accessModes")),
        word(found, "spec.persistentVolumeReclaimPolicy"), _phase(found),
        f"{word(of, 'namespace')}/{word(of, 'name')}" if of else "", _class(found),
        _or_unset(found, "spec.volumeAttributesClassName"), word(found, "status.reason"), age_of(found, now),
        _or_unset(found, "spec.volumeMode"),
    ]  # fmt: skip


def claim(found: Document, now: float) -> list[Cell]:
    """Return the cells of a persistent volume claim."""
    held = word(found, "spec.volumeName")
    return [
        name_of(found), _phase(found), held, word(found, "status.capacity.storage", "0") if held else "",
        _modes(items(found, "status.accessModes")) if held else "", _class(found),
        _or_unset(found, "spec.volumeAttributesClassName"), age_of(found, now), _or_unset(found, "spec.volumeMode"),
    ]  # fmt: skip


def storage_class(found: Document, now: float) -> list[Cell]:
    """Return the cells of a storage class."""
    is_default = any(_annotations(found).get(name) == "true" for name in _IS_DEFAULT)
    return [
        name_of(found) + (" (default)" if is_default else ""), word(found, "provisioner"),
        word(found, "reclaimPolicy", "Delete"), word(found, "volumeBindingMode", "Immediate"),
        bool(found.get("allowVolumeExpansion")), age_of(found, now),
    ]  # fmt: skip


def driver(found: Document, now: float) -> list[Cell]:
    """Return the cells of a CSI driver."""
    tokens = at(found, "spec.tokenRequests")
    audiences = _UNSET if tokens is None else ",".join(str(one.get("audience", "")) for one in tokens)
    flags = [bool(at(found, f"spec.{name}", name == "attachRequired")) for name in _FLAGS]
    modes = ",".join(items(found, "spec.volumeLifecycleModes")) or "<none>"
    return [name_of(found), *flags[:3], audiences, flags[3], modes, age_of(found, now)]


_FLAGS: Final = ("attachRequired", "podInfoOnMount", "storageCapacity", "requiresRepublish")


def driver_node(found: Document, now: float) -> list[Cell]:
    """Return the cells of a CSINode."""
    return [name_of(found), len(items(found, "spec.drivers")), age_of(found, now)]


def attachment(found: Document, now: float) -> list[Cell]:
    """Return the cells of a volume attachment."""
    attached = bool(at(found, "status.attached"))
    names = (word(found, f"spec.{name}") for name in ("attacher", "source.persistentVolumeName", "nodeName"))
    return [name_of(found), *names, attached, age_of(found, now)]


def attributes_class(found: Document, now: float) -> list[Cell]:
    """Return the cells of a volume attributes class."""
    return [name_of(found), word(found, "driverName"), age_of(found, now)]


def device_claim(found: Document, now: float) -> list[Cell]:
    """Return the cells of a resource claim."""
    states = ["deleted"] if found["metadata"].get("deletionTimestamp") else []
    if at(found, "status.allocation") is not None:
        states += ["allocated", "reserved"] if items(found, "status.reservedFor") else ["allocated"]
    elif not states:
        states.append("pending")
    return [name_of(found), ",".join(states), age_of(found, now)]


def slice_of_devices(found: Document, now: float) -> list[Cell]:
    """Return the cells of a resource slice."""
    return [name_of(found), *(word(found, f"spec.{name}") for name in ("nodeName", "driver", "pool.name")), age_of(found, now)]
