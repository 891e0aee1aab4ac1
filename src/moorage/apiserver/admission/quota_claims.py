"""Quota usage of resource claims: the largest number of devices of each class that a claim can be allocated.

Devices of a class with an extended resource name also count under that name. If a claim was created for a pod, the amount that
the pod itself is charged is subtracted.

Source  kubernetes, pkg/quota/v1/evaluator/core/resource_claims.go
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moorage.api.names import is_native_resource
from moorage.api.quantity import exact
from moorage.apiserver.admission.quota_pods import DEVICE_CLASS, pod_usage
from moorage.apiserver.admission.quota_types import ONE, Facts, Usage, add, raise_to_at_least
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import served

__all__ = ["NAMES", "claim_usage", "is_of_claims"]

NAMES: Final = frozenset(["count/resourceclaims.resource.k8s.io"])
_BY_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_FOR_POD: Final = "resource.kubernetes.io/extended-resource-claim"
#: Maximum number of devices in a claim's allocation.
_MAX_DEVICES: Final = 32
_CLASSES: Final = served("deviceclasses", "resource.k8s.io")
_CLAIMS: Final = served("resourceclaims", "resource.k8s.io")
_PODS: Final = served("pods")


def is_of_claims(name: str, facts: Facts) -> bool:
    """Return True for other quota resources of claims: devices by class, and extended resources backed by devices."""
    if name.endswith(_BY_CLASS):
        return True
    resource = name.removeprefix("requests.")
    if resource == name or (is_native_resource(name) and not resource.startswith(DEVICE_CLASS)):
        return False
    return any(resource in {f"{DEVICE_CLASS}{one['metadata']['name']}", _extended(one)} for one in facts.all(_CLASSES, ""))


def _extended(device_class: Document | None) -> str:
    """Return the extended resource name of a device class, or ""."""
    return str(((device_class or {}).get("spec") or {}).get("extendedResourceName") or "")


def claim_usage(claim: Document, facts: Facts) -> Usage:
    """Return a claim's usage."""
    used: Usage = {"count/resourceclaims.resource.k8s.io": ONE}
    devices: Usage = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        largest: Usage = {}
        for one in request.get("firstAvailable") or [request.get("exactly") or {}]:
            raise_to_at_least(largest, _devices(one))
        add(devices, largest)
    add(used, {f"{name}{_BY_CLASS}": amount for name, amount in devices.items()})
    add(used, _extended_usage(claim, devices, facts))
    return used


def _devices(request: Document) -> Usage:
    """Return the largest number of devices that a request can be allocated, by device class."""
    name, mode = request.get("deviceClassName"), request.get("allocationMode")
    count = {"ExactCount": request.get("count") or 0, "All": _MAX_DEVICES}.get(mode or "", 0)
    return {name: exact(count)} if name else {}


def _extended_usage(claim: Document, devices: Usage, facts: Facts) -> Usage:
    """Return a claim's usage of extended resources, minus the amounts that its pod is charged."""
    used: Usage = {}
    for name, amount in devices.items():
        used[f"requests.{DEVICE_CLASS}{name}"] = amount
        if resource := _extended(facts.find(_CLASSES, "", name)):
            used[f"requests.{resource}"] = amount
    charged = _charged_to_pod(claim, facts)
    left = {name: amount.minus(charged[name]) if name in charged else amount for name, amount in used.items()}
    return {name: amount for name, amount in left.items() if amount.nano > 0}


def _charged_to_pod(claim: Document, facts: Facts) -> Usage:
    """Return the usage of the pod whose extended resources a claim was created for; nothing for other claims."""
    metadata = claim["metadata"]
    owner = _owner(metadata)
    if owner is None or (metadata.get("annotations") or {}).get(_FOR_POD) != "true":
        return {}
    namespace = metadata.get("namespace") or ""
    pod = facts.find(_PODS, namespace, owner.get("name") or "")
    if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
        return {}
    claim_status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if claim_status is not None:
        return pod_usage(pod, facts) if claim_status.get("resourceClaimName") == metadata["name"] else {}
    return pod_usage(pod, facts) if _is_first(metadata, owner, facts.all(_CLAIMS, namespace)) else {}


def _owner(metadata: Document) -> dict[str, Any] | None:
    """Return the owner reference to the pod that controls a claim, or None."""
    owner: dict[str, Any] | None = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    return owner if owner is not None and (owner.get("kind"), owner.get("apiVersion")) == ("Pod", "v1") else None


def _is_first(metadata: Document, owner: dict[str, Any], claims: Iterable[Document]) -> bool:
    """Return True if a claim is the oldest that was created for its pod: only its usage is reduced by that of the pod."""
    own = (metadata.get("creationTimestamp") or "", metadata["name"])
    for one in claims:
        held = one["metadata"]
        if (held.get("annotations") or {}).get(_FOR_POD) != "true" or (_owner(held) or {}).get("uid") != owner.get("uid"):
            continue
        if (held.get("creationTimestamp") or "", held["name"]) < own:
            return False
    return True
