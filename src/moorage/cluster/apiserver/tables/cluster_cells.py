"""Table cells that no path leads to, of nodes, namespaces, services, configuration, RBAC objects and events.

Source  kubernetes, pkg/printers/internalversion/printers.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api import quantity
from moorage.api.documents.served_kinds import Document
from moorage.cluster.apiserver.tables.cells import NONE, Cell, age, at, human_duration, items, word
from moorage.cluster.apiserver.tables.usage_metrics import amounts


def quota(found: Document, now: float) -> list[Cell]:
    """Return the cells of a resource quota: used and hard amounts, with pod limits in a separate column."""
    hard, used = (at(found, f"status.{name}") or {} for name in ("hard", "used"))
    texts = [(name, f"{name}: {used.get(name, '0')}/{amount}") for name, amount in sorted(hard.items())]
    requests, limits = (
        ", ".join(text for name, text in texts if name.startswith("limits.") is is_limit) for is_limit in (False, True)
    )
    return [requests, limits]


_ROLE: Final = "node-role.kubernetes.io/"


def node_state(found: Document, now: float) -> list[Cell]:
    """Return the status and the roles of a node."""
    conditions = {one.get("type"): one.get("status") for one in items(found, "status.conditions")}
    ready = "Unknown" if "Ready" not in conditions else "Ready" if conditions["Ready"] == "True" else "NotReady"
    if at(found, "spec.unschedulable"):
        ready += ",SchedulingDisabled"
    labels = found["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {labels.get("kubernetes.io/role")}
    return [ready, ",".join(sorted(role for role in roles if role)) or NONE]


def kernel(found: Document, now: float) -> Cell:
    """Return the kernel of a node and its architecture."""
    architecture = word(found, "status.nodeInfo.architecture")
    return word(found, "status.nodeInfo.kernelVersion", "<unknown>") + (f" ({architecture})" if architecture else "")


def service(found: Document, now: float) -> list[Cell]:
    """Return the cluster IP, the external addresses and the ports of a service."""
    address = next(iter(items(found, "spec.clusterIPs")), None) or word(found, "spec.clusterIP")
    ports = [(one, f":{one['nodePort']}" if one.get("nodePort") else "") for one in items(found, "spec.ports")]
    shown = ",".join(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}" for port, node_port in ports)
    return [str(address or NONE), _external_addresses(found), shown or NONE]


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
    """Return the hosts, the addresses and the ports of an ingress."""
    rules = items(found, "spec.rules")
    hosts = ",".join([host for rule in rules if (host := word(rule, "host"))][:_HOSTS]) or "*"
    more = f" + {len(rules) - _HOSTS} more..." if len(rules) > _HOSTS else ""
    given = {word(one, "ip") or word(one, "hostname") for one in items(found, "status.loadBalancer.ingress")}
    return [hosts + more, ",".join(sorted(given - {""})), "80, 443" if items(found, "spec.tls") else "80"]


#: Number of addresses shown for endpoints.
_SHOWN: Final = 3


def endpoints(found: Document, now: float) -> Cell:
    """Return the addresses of endpoints."""
    addresses = [place for subset in items(found, "subsets") for place in _places(subset)]
    return _first(addresses) if items(found, "subsets") else NONE


def endpoint_slice(found: Document, now: float) -> list[Cell]:
    """Return the ports and the addresses of an endpoint slice."""
    ports = [str(one.get("port") or one.get("name") or "*") for one in items(found, "ports")]
    addresses = [str(address) for one in items(found, "endpoints") for address in one.get("addresses") or ()]
    return [_first(ports) if ports else "<unset>", _first(addresses) if addresses else "<unset>"]


def _first(texts: list[str]) -> str:
    return ",".join(texts[:_SHOWN]) + (f" + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else "")


def _places(subset: Document) -> list[str]:
    addresses = [str(one.get("ip")) for one in items(subset, "addresses")]
    ports = items(subset, "ports")
    if not ports:
        return addresses
    return [f"[{one}]:{port['port']}" if ":" in one else f"{one}:{port['port']}" for port in ports for one in addresses]


def signing_request(found: Document, now: float) -> list[Cell]:
    """Return the requested duration and the state of a certificate signing request."""
    types = {word(one, "type") for one in items(found, "status.conditions")}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    state += (",Failed" if "Failed" in types else "") + (",Issued" if word(found, "status.certificate") else "")
    seconds = at(found, "spec.expirationSeconds")
    return [NONE if seconds is None else human_duration(seconds), state]


def parameters_of_class(found: Document, now: float) -> Cell:
    """Return the kind, the group and the name of an ingress class's parameters."""
    if (parameters := at(found, "spec.parameters")) is None:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def served_versions(found: Document, now: float) -> Cell:
    """Return the versions of a definition that are served."""
    served = [one for one in items(found, "spec.versions") if one.get("served")]
    return ",".join(sorted(f"{word(one, 'name')}{'(storage)' if one.get('storage') else ''}" for one in served))


def is_established(found: Document, now: float) -> Cell:
    """Return whether the kind of a definition is served."""
    conditions = items(found, "status.conditions")
    return any(word(one, "type") == "Established" and word(one, "status") == "True" for one in conditions)


def event(found: Document, now: float) -> list[Cell]:
    """Return the cells of an event of either API, but its name."""
    first = _first_of(found, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    series = found.get("series")
    last = at(series, "lastObservedTime") if series else _first_of(found, "lastTimestamp", "deprecatedLastTimestamp") or first
    count = int(at(series, "count", 0)) if series else _first_of(found, "count", "deprecatedCount") or 1
    about = found.get("involvedObject") or found.get("regarding") or {}
    kind, name = word(about, "kind").lower(), word(about, "name")
    source = found.get("source") or found.get("deprecatedSource") or {}
    component = word(source, "component") or str(_first_of(found, "reportingComponent", "reportingController") or "")
    host = word(source, "host") or word(found, "reportingInstance")
    return [
        age(last, now), word(found, "type"), word(found, "reason"), f"{kind}/{name}" if name else kind,
        word(about, "fieldPath"), f"{component}, {host}" if host else component,
        str(_first_of(found, "message", "note") or "").strip(), age(first, now), count,
    ]  # fmt: skip


def _first_of(found: Document, *names: str) -> Any:
    return next((found[name] for name in names if found.get(name)), None)


def group_state(found: Document, now: float) -> Cell:
    """Return the status of a pod group."""
    conditions = {one["type"]: one for one in items(found, "status.conditions")}
    state = "Pending"
    if scheduled := conditions.get("PodGroupInitiallyScheduled") or conditions.get("PodGroupScheduled"):
        state = "Scheduled" if scheduled["status"] == "True" else "Unschedulable"
    if disrupted := conditions.get("DisruptionTarget"):
        state = disrupted["reason"]
    return state


def group_policy(found: Document, now: float) -> Cell:
    """Return the scheduling policy of a pod group."""
    return "Basic" if found["spec"]["schedulingPolicy"].get("gang") is None else "Gang"


def subjects(found: Document, now: float) -> list[Cell]:
    """Return the users, the groups and the service accounts of a role binding."""
    subjects = found.get("subjects") or []
    users, groups = (", ".join(one["name"] for one in subjects if one["kind"] == kind) for kind in ("User", "Group"))
    accounts = ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in subjects if one["kind"] == "ServiceAccount")
    return [users, groups, accounts]


def usage(found: Document, now: float) -> list[Cell]:
    """Return the usage of CPU and memory of metrics."""
    usages = [found["usage"]] if "usage" in found else [one["usage"] for one in found["containers"]]
    total = amounts(
        sum(quantity.milli_value(one["cpu"]) for one in usages), sum(quantity.value(one["memory"]) for one in usages)
    )
    return [total["cpu"], total["memory"]]


# -- storage cells -----------------------------------------------------------------------------------------------------
# Table cells of volumes, drivers and devices.
#
# Source  kubernetes, pkg/apis/core/helper, for modes and classes

_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT: Final = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _annotations(found: Document) -> Document:
    return found["metadata"].get("annotations") or {}


def class_of(found: Document, now: float) -> Cell:
    """Return the storage class of a volume or of a claim."""
    own = _annotations(found).get(_CLASS)
    return word(found, "spec.storageClassName") if own is None else str(own)


def phase(found: Document, now: float) -> Cell:
    """Return the phase of a volume or of a claim."""
    return "Terminating" if found["metadata"].get("deletionTimestamp") else word(found, "status.phase")


def claim_of(found: Document, now: float) -> Cell:
    """Return the claim of a volume."""
    claim = at(found, "spec.claimRef")
    return f"{word(claim, 'namespace')}/{word(claim, 'name')}" if claim else ""


def bound_volume(found: Document, now: float) -> list[Cell]:
    """Return the capacity and the access modes of a claim that has a volume."""
    if not word(found, "spec.volumeName"):
        return ["", ""]
    return [word(found, "status.capacity.storage", "0"), modes(at(found, "status.accessModes"))]


def modes(found: Any) -> str:
    """Return access modes in short form."""
    return ",".join(short for mode, short in _MODES.items() if mode in (found or ()))


def class_name(found: Document, now: float) -> Cell:
    """Return the name of a storage class, and whether it is the default."""
    is_default = any(_annotations(found).get(name) == "true" for name in _IS_DEFAULT)
    return str(found["metadata"]["name"]) + (" (default)" if is_default else "")


def token_audiences(found: Document, now: float) -> Cell:
    """Return the audiences of the tokens that a CSI driver requests."""
    tokens = at(found, "spec.tokenRequests")
    return "<unset>" if tokens is None else ",".join(str(one.get("audience", "")) for one in tokens)


def claim_state(found: Document, now: float) -> Cell:
    """Return the state of a resource claim."""
    states = ["deleted"] if found["metadata"].get("deletionTimestamp") else []
    if at(found, "status.allocation") is not None:
        states += ["allocated", "reserved"] if items(found, "status.reservedFor") else ["allocated"]
    elif not states:
        states.append("pending")
    return ",".join(states)
