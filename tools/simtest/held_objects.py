"""Volumes and devices with their users, and the oracle's independent rules for which node suits a pod that uses them.

It models claims that wait for the first consumer, preprovisioned volumes and their node affinity. All free volumes of a class
that a node can reach are interchangeable; a volume that is reserved for a claim serves no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tools.simtest import oracle_rules
from tools.simtest.recording import HELD

__all__ = ["HeldObjects", "claims_of", "device_claims_of", "holds_any"]

Document = dict[str, Any]

_DONE = "pv.kubernetes.io/bind-completed"


def claims_of(pod: Document) -> list[str]:
    """Return the keys of the volume claims that a pod uses."""
    uses = [one["persistentVolumeClaim"] for one in pod["spec"].get("volumes") or () if one.get("persistentVolumeClaim")]
    return [f"{pod['metadata']['namespace']}/{use['claimName']}" for use in uses]


def holds_any(pod: Document) -> bool:
    """Return True for a pod that uses volumes or devices."""
    return bool(claims_of(pod) or device_claims_of(pod))


def device_claims_of(pod: Document) -> list[str]:
    """Return the keys of the device claims that a pod uses."""
    return [f"{pod['metadata']['namespace']}/{use['resourceClaimName']}" for use in pod["spec"].get("resourceClaims") or ()]


@dataclass
class HeldObjects:
    """All objects of the kinds in ``HELD``, by kind and key, as the API has them or as a scheduler has seen them."""

    held: dict[str, dict[str, Document]] = field(default_factory=lambda: {kind: {} for kind in HELD})

    def put(self, kind: str, key: str, document: Document | None) -> None:
        """Record an object's current state; None for a deleted one."""
        if document is None:
            self.held[kind].pop(key, None)
        else:
            self.held[kind][key] = document

    def replace(self, documents: Iterable[Document]) -> None:
        """Replace all objects with these."""
        self.held = {kind: {} for kind in HELD}
        for one in documents:
            metadata = one["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
            self.held[one["kind"]][key] = one

    # -- volumes --------------------------------------------------------------------------------------------------------

    def volume_of(self, claim: str) -> Document | None:
        """Return the volume that a claim is fully bound to."""
        found = self.held["PersistentVolumeClaim"].get(claim)
        if found is None or _DONE not in (found["metadata"].get("annotations") or {}):
            return None
        return self.held["PersistentVolume"].get(found["spec"].get("volumeName", ""))

    def has_volume(self, claim: str, node: Document) -> bool:
        """Return True for a claim that is fully bound to a volume that the node can reach."""
        volume = self.volume_of(claim)
        return volume is not None and reaches(volume, node)

    def reserved_for(self, claim: Document) -> frozenset[str]:
        """Return the volumes whose ``claimRef`` is this claim, except terminating ones and those of another class."""
        uid, of_class = claim["metadata"]["uid"], claim["spec"]["storageClassName"]
        return frozenset(
            name
            for name, volume in self.held["PersistentVolume"].items()
            if (volume["spec"].get("claimRef") or {}).get("uid") == uid
            and volume["spec"].get("storageClassName") == of_class
            and not volume["metadata"].get("deletionTimestamp")
        )

    def lacks(self, pod: Document, node: Document) -> str:
        """Return why a node does not suit a pod's volumes or devices; "" if it does."""
        return self._lacks_volume(pod, node) or self._lacks_device(pod, node)

    def _lacks_volume(self, pod: Document, node: Document) -> str:
        taken: set[str] = set()
        for key in claims_of(pod):
            claim = self.held["PersistentVolumeClaim"].get(key)
            if claim is None or claim["metadata"].get("deletionTimestamp") or claim["status"].get("phase") == "Lost":
                return f"{key} is not available"
            if claim["spec"].get("volumeName"):
                if not self.has_volume(key, node):
                    return f"the volume of {key} cannot be reached"
                continue
            # A claim gets a volume that is reserved for it, or none; the others are left to the pod's other claims.
            candidates = self.reserved_for(claim) or self.held["PersistentVolume"]
            free = (name for name in candidates if name not in taken and self._is_for(name, claim, node))
            chosen = next(free, None)
            if chosen is None:
                return f"no volume for {key}"
            taken.add(chosen)
        return ""

    # -- devices --------------------------------------------------------------------------------------------------------

    def devices_of(self, claim: Document) -> list[tuple[str, str, str]]:
        """Return the devices that are allocated to a claim."""
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        return [(one["driver"], one["pool"], one["device"]) for one in results]

    def has_devices(self, key: str, pod: Document, node: Document) -> bool:
        """Return True for a claim with allocated devices of a node that is reserved for a pod."""
        claim = self.held["ResourceClaim"].get(key)
        users = ((claim or {}).get("status") or {}).get("reservedFor") or ()
        return claim is not None and self._is_there(claim, node) and pod["metadata"]["uid"] in {one["uid"] for one in users}

    def _is_there(self, claim: Document, node: Document) -> bool:
        pools = {pool for _, pool, _ in self.devices_of(claim)}
        return pools == {node["metadata"]["name"]}

    def _lacks_device(self, pod: Document, node: Document) -> str:
        wanted = 0
        for key in device_claims_of(pod):
            claim = self.held["ResourceClaim"].get(key)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                return f"{key} is not available"
            if self.devices_of(claim) and not self._is_there(claim, node):
                return f"the devices of {key} are elsewhere"
            if not self.devices_of(claim):
                wanted += sum(one["exactly"]["count"] for one in claim["spec"]["devices"]["requests"])
        held = {device for claim in self.held["ResourceClaim"].values() for device in self.devices_of(claim)}
        slices = [one["spec"] for one in self.held["ResourceSlice"].values()]
        mine = [one for one in slices if one.get("nodeName") == node["metadata"]["name"]]
        there = {(one["driver"], one["pool"]["name"], device["name"]) for one in mine for device in one["devices"]}
        return f"{len(there - held)} of {wanted} devices are free" if wanted > len(there - held) else ""

    def _is_for(self, name: str, claim: Document, node: Document) -> bool:
        """Return True for an available volume that suits a claim on a node."""
        volume = self.held["PersistentVolume"][name]
        spec, to = volume["spec"], volume["spec"].get("claimRef")
        if volume["metadata"].get("deletionTimestamp") or spec.get("storageClassName") != claim["spec"]["storageClassName"]:
            return False
        if to is None and volume.get("status", {}).get("phase") != "Available":
            return False
        if to is not None and to.get("uid") != claim["metadata"]["uid"]:
            return False
        return reaches(volume, node)


def reaches(volume: Document, node: Document) -> bool:
    """Return True if a node can reach a volume."""
    affinity = (volume["spec"].get("nodeAffinity") or {}).get("required")
    labels = node["metadata"].get("labels") or {}
    return affinity is None or any(
        oracle_rules.selected(labels, term.get("matchExpressions", ())) for term in affinity["nodeSelectorTerms"]
    )
