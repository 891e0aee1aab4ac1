"""Create what an API server creates for itself when it starts: where it can be reached, and what it serves.

The service ``kubernetes`` gets its endpoints, the range of service addresses an object, each version that is served an
``APIService``, and requests get the flow schemas and priority levels that kube-apiserver has. None of them has an effect here.

Source  kubernetes, pkg/controlplane: controller/kubernetesservice, controller/defaultservicecidr, apiserver/aggregator.go;
        apiserver, pkg/apis/flowcontrol/bootstrap
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.basis import table_of
from moorage.cluster.apiserver.schema.discovery import group_list
from moorage.rules.admission.services import ADDRESSES
from moorage.rules.store.store import Store

_TABLE: Final = table_of("moorage.cluster.apiserver.access", "server_objects.toml")
_FLOWS: Final = "flowcontrol.apiserver.k8s.io"
_ENDPOINTS: Final = served("endpoints")
_SLICES: Final = served("endpointslices", "discovery.k8s.io")
_NAME: Final = "kubernetes"


def publish_server(store: Store, host: str, port: int) -> None:
    """Create the missing objects of a server that can be reached at an address, and correct its endpoints."""
    for kind, document in _objects(store):
        if store.find(kind, "", document["metadata"]["name"]) is None:
            store.adopt(kind, document)
    for kind, document in _endpoints(host, port):
        held = store.find(kind, "default", _NAME)
        if held is None:
            store.adopt(kind, document)
        elif any(held.document().get(name) != value for name, value in document.items() if name != "metadata"):
            store.put(kind, held, {**held.document(), **document, "metadata": held.document()["metadata"]})


def _objects(store: Store) -> Iterator[tuple[ServedKind, Document]]:
    yield _object(
        served("servicecidrs", "networking.k8s.io"), _NAME, {"cidrs": [str(ADDRESSES)]},
        finalizers=["networking.k8s.io/service-cidr-finalizer"],
        conditions=[_condition(store, "Ready", "", "Kubernetes Service CIDR is ready")],
    )  # fmt: skip
    kind = served("prioritylevelconfigurations", _FLOWS)
    for name, row in _TABLE["priority_levels"].items():
        yield _object(kind, name, _priority_level(name, *row), annotations=_UPDATED)
    kind = served("flowschemas", _FLOWS)
    for name, row in _TABLE["flow_schemas"].items():
        found = f'This FlowSchema references the PriorityLevelConfiguration object named "{row[0]}" and it exists'
        dangling = _condition(store, "Dangling", "Found", found, status="False")
        yield _object(kind, name, _flow_schema(*row), annotations=_UPDATED, conditions=[dangling])
    kind = served("apiservices", "apiregistration.k8s.io")
    available = _condition(store, "Available", "Local", "Local APIServices are always available")
    for group, version in _versions(store):
        labels = {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
        spec = _api_service(group, version)
        yield _object(kind, f"{version}.{group}", spec, labels=labels, conditions=[available])


_UPDATED: Final = {"apf.kubernetes.io/autoupdate-spec": "true"}


def _object(
    kind: ServedKind, name: str, spec: Document, conditions: Iterable[Document] = (), **metadata: Any
) -> tuple[ServedKind, Document]:
    status = {"conditions": [*conditions]} if conditions else {}
    head: Document = {"name": name, **metadata, **({"generation": 1} if kind.has_generation else {})}
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": head, "spec": spec, "status": status}


def _condition(store: Store, kind: str, reason: str, message: str, status: str = "True") -> Document:
    return {"type": kind, "status": status, "lastTransitionTime": store.now, "reason": reason, "message": message}


# -- flow control ------------------------------------------------------------------------------------------------------


def _priority_level(name: str, shares: int, lent: int, *queues: int) -> Document:
    common = {"nominalConcurrencyShares": shares, "lendablePercent": lent}
    if name == "exempt":
        return {"type": "Exempt", "exempt": common}
    response: Document = {"type": "Reject"}
    if queues:
        queuing = dict(zip(("queues", "handSize", "queueLengthLimit"), queues, strict=True))
        response = {"type": "Queue", "queuing": queuing}
    return {"type": "Limited", "limited": {**common, "limitResponse": response}}


def _flow_schema(level: str, precedence: int, by: str, subjects: list[str], requests: Any) -> Document:
    rules = [["*", "*", "*", "cluster"], ["*", "*"]] if requests == "*" else requests
    paths = [row for row in rules if len(row) == 2]
    rule: Document = {"subjects": [_subject(*one.split(" ")) for one in subjects]}
    if resources := [_resource_rule(*row) for row in rules if len(row) > 2]:
        rule["resourceRules"] = resources
    if paths:
        rule["nonResourceRules"] = [{"verbs": [verbs], "nonResourceURLs": urls.split()} for verbs, urls in paths]
    spec: Document = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence}
    if by:
        spec["distinguisherMethod"] = {"type": by}
    return {**spec, "rules": [rule]}


def _subject(kind: str, name: str) -> Document:
    if kind == "ServiceAccount":
        namespace, _, own = name.partition("/")
        return {"kind": kind, "serviceAccount": {"namespace": namespace, "name": own}}
    return {"kind": kind, kind.lower(): {"name": name}}


def _resource_rule(verbs: str, groups: str, resources: str, where: str = "") -> Document:
    named = ["" if group == "core" else group for group in groups.split()]
    rule: Document = {"verbs": verbs.split(), "apiGroups": named, "resources": resources.split(), "namespaces": ["*"]}
    return {**rule, "clusterScope": True} if where else rule


# -- versions ----------------------------------------------------------------------------------------------------------


def _versions(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the groups and versions that are served; those of custom kinds come and go with their definitions."""
    yield "", "v1"
    for group in group_list(store.kinds)["groups"]:
        if group["name"] in _TABLE["groups"]:
            yield from ((group["name"], one["version"]) for one in group["versions"])


def _api_service(group: str, version: str) -> Document:
    name = f"{group}/{version}".removeprefix("/")
    priorities = {"groupPriorityMinimum": _TABLE["groups"][group], "versionPriority": _TABLE["versions"].get(name, 15)}
    return {**({"group": group} if group else {}), "version": version, **priorities}


# -- endpoints ---------------------------------------------------------------------------------------------------------


def _endpoints(host: str, port: int) -> Iterator[tuple[ServedKind, Document]]:
    """Yield the endpoints of the service ``kubernetes``."""
    address = str(ipaddress.ip_address(host))
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    metadata: Document = {"name": _NAME, "namespace": "default"}
    yield _ENDPOINTS, {
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {**metadata, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
    }  # fmt: skip
    yield _SLICES, {
        "apiVersion": _SLICES.api_version, "kind": "EndpointSlice",
        "metadata": {**metadata, "generation": 1, "labels": {"kubernetes.io/service-name": _NAME}},
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}], "ports": ports,
    }  # fmt: skip
