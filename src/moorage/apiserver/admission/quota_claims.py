"""What claims for devices take of resource quotas: devices of each class, the most that a claim may be given.

Devices that stand for an extended resource count under that resource's name as well, less what a pod has been charged for which
the claim was made.

Source  kubernetes, pkg/quota/v1/evaluator/core/resource_claims.go
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moorage.api.names import is_native_resource
from moorage.api.quantity import exact
from moorage.apiserver.admission.quota_pods import DEVICE_CLASS, pod_usage
from moorage.apiserver.admission.quota_types import ONE, Facts, Usage, add, raise_to
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import served

__all__ = ["NAMES", "claim_usage", "is_of_claims"]

NAMES: Final = frozenset(["count/resourceclaims.resource.k8s.io"])
_BY_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_MADE_FOR_PODS: Final = "resource.kubernetes.io/extended-resource-claim"
#: How many devices a claim can have been given.
_MOST: Final = 32
_CLASSES: Final = served("deviceclasses", "resource.k8s.io")
_CLAIMS: Final = served("resourceclaims", "resource.k8s.io")
_PODS: Final = served("pods")


def is_of_claims(name: str, facts: Facts) -> bool:
    """Return True for further names of what claims take: devices by class, and resources that stand for devices."""
    if name.endswith(_BY_CLASS):
        return True
    resource = name.removeprefix("requests.")
    if resource == name or (is_native_resource(name) and not resource.startswith(DEVICE_CLASS)):
        return False
    return any(resource in {f"{DEVICE_CLASS}{one['metadata']['name']}", _extended(one)} for one in facts.all(_CLASSES, ""))


def _extended(device_class: Document | None) -> str:
    """Return the extended resource that devices of a class stand for; nothing where they do not."""
    return str(((device_class or {}).get("spec") or {}).get("extendedResourceName") or "")


def claim_usage(claim: Document, facts: Facts) -> Usage:
    """Return what a claim takes."""
    used: Usage = {"count/resourceclaims.resource.k8s.io": ONE}
    devices: Usage = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        most: Usage = {}
        for one in request.get("firstAvailable") or [request.get("exactly") or {}]:
            raise_to(most, _devices(one))
        add(devices, most)
    add(used, {f"{name}{_BY_CLASS}": amount for name, amount in devices.items()})
    add(used, _extended_usage(claim, devices, facts))
    return used


def _devices(request: Document) -> Usage:
    """Return how many devices of which class a request can come to."""
    name, mode = request.get("deviceClassName"), request.get("allocationMode")
    count = {"ExactCount": request.get("count") or 0, "All": _MOST}.get(mode or "", 0)
    return {name: exact(count)} if name else {}


def _extended_usage(claim: Document, devices: Usage, facts: Facts) -> Usage:
    """Return what a claim takes under the names of extended resources, beyond what its pod was charged."""
    used: Usage = {}
    for name, amount in devices.items():
        used[f"requests.{DEVICE_CLASS}{name}"] = amount
        if resource := _extended(facts.find(_CLASSES, "", name)):
            used[f"requests.{resource}"] = amount
    charged = _charged_to_pod(claim, facts)
    left = {name: amount.minus(charged[name]) if name in charged else amount for name, amount in used.items()}
    return {name: amount for name, amount in left.items() if amount.nano > 0}


def _charged_to_pod(claim: Document, facts: Facts) -> Usage:
    """Return what the pod takes that a claim was made for on account of its extended resources; nothing for other claims."""
    metadata = claim["metadata"]
    owner = _owner(metadata)
    if owner is None or (metadata.get("annotations") or {}).get(_MADE_FOR_PODS) != "true":
        return {}
    namespace = metadata.get("namespace") or ""
    pod = facts.find(_PODS, namespace, owner.get("name") or "")
    if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
        return {}
    told = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if told is not None:
        return pod_usage(pod, facts) if told.get("resourceClaimName") == metadata["name"] else {}
    return pod_usage(pod, facts) if _is_first(metadata, owner, facts.all(_CLAIMS, namespace)) else {}


def _owner(metadata: Document) -> dict[str, Any] | None:
    """Return the reference to the pod that controls a claim."""
    owner: dict[str, Any] | None = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    return owner if owner is not None and (owner.get("kind"), owner.get("apiVersion")) == ("Pod", "v1") else None


def _is_first(metadata: Document, owner: dict[str, Any], claims: Iterable[Document]) -> bool:
    """Return True for the first claim that was made for a pod: it is the one that takes what the pod was charged."""
    own = (metadata.get("creationTimestamp") or "", metadata["name"])
    for one in claims:
        held = one["metadata"]
        if (held.get("annotations") or {}).get(_MADE_FOR_PODS) != "true" or (_owner(held) or {}).get("uid") != owner.get("uid"):
            continue
        if (held.get("creationTimestamp") or "", held["name"]) < own:
            return False
    return True
