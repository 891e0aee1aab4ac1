"""The devices of a world: devices on each node, claims, and the controller that deallocates unused claims.

Simulates the part of kube-controller-manager's resource claim controller that scheduling depends on: deleted and ended pods are
removed from a claim's reservations, and a claim without any is deallocated. It reads the API's current state, and acts with a
random delay after a change.

Source  kubernetes, pkg/controller/resourceclaim/controller.go, syncClaim
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from tools.simtest.virtual_api import VirtualApi

__all__ = ["DEVICE_CLAIMS", "Gadgets"]

Document = dict[str, Any]

_GROUP = "/apis/resource.k8s.io/v1"
DEVICE_CLAIMS = f"{_GROUP}/namespaces/default/resourceclaims"
_PODS = "/api/v1/namespaces/default/pods"
_WATCHED = frozenset(["ResourceClaim", "Pod"])


class Gadgets:
    """Creates slices and claims, and deallocates. Construct it before the schedulers start; ``run`` it while claims exist."""

    def __init__(self, api: VirtualApi, rng: random.Random) -> None:
        self._api, self.rng = api, rng
        self._serial = 0
        self._news = asyncio.Event()
        self._create(f"{_GROUP}/deviceclasses", "DeviceClass", "gadget", spec={})
        api.store.follow(lambda kind, change: self.look_again() if kind.kind in _WATCHED else None)

    def _create(self, path: str, kind: str, name: str, **parts: Any) -> None:
        self._api.do("POST", path, {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **parts})

    # -- objects --------------------------------------------------------------------------------------------------------

    def begin(self, nodes: int) -> None:
        """Create slices for the nodes of a cluster."""
        for number in range(nodes):
            self.offer(f"n{number}", self.rng.choice([1, 2, 3]))

    def offer(self, node: str, count: int) -> None:
        """Give a node so many devices."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"{node}-g{number}"} for number in range(count)]
        spec = {"driver": "gadgets.example.com", "nodeName": node, "pool": pool, "devices": devices}
        self._create(f"{_GROUP}/resourceslices", "ResourceSlice", f"slice-{node}", spec=spec)

    def claim(self, count: int = 1, name: str = "") -> str:
        """Create a claim for so many devices of one node, and return its name."""
        if not name:
            self._serial += 1
            name = f"rc{self._serial}"
        exactly = {"deviceClassName": "gadget", "allocationMode": "ExactCount", "count": count}
        self._create(DEVICE_CLAIMS, "ResourceClaim", name, spec={"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
        return name

    def claims(self) -> list[Document]:
        """Return all claims in the API."""
        return self._api.items(DEVICE_CLAIMS)

    def any_use(self) -> Document:
        """Return a pod's resourceClaims at random: mostly a new claim, sometimes a shared one."""
        rng = self.rng
        if rng.random() < 0.35:
            return {}
        there = [claim["metadata"]["name"] for claim in self.claims()]
        if there and rng.random() < 0.25:
            return using(rng.choice(there))
        return using(self.claim(rng.choice([1, 1, 1, 2])))

    def clear_away(self) -> None:
        """Delete some of the claims that no pod uses."""
        used = {name for pod in self._api.items(_PODS) for name in _claims_of(pod)}
        for claim in self.claims():
            if claim["metadata"]["name"] not in used and self.rng.random() < 0.5:
                self._api.do("DELETE", f"{DEVICE_CLAIMS}/{claim['metadata']['name']}")

    # -- the controller -------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Wake ``run``, so that it checks for pending updates after its random delay."""
        self._news.set()

    async def run(self) -> None:
        """Deallocate until cancelled, with a random delay after each change."""
        while True:
            await self._news.wait()
            await asyncio.sleep(self.rng.choice([0.02, 0.3, 1.0, 3.0]))
            self._news.clear()
            for path, changed in self._due():
                self._api.do("PUT", path, changed)
                await asyncio.sleep(self.rng.choice([0.0, 0.05]))

    def _due(self) -> Iterator[tuple[str, Document]]:
        """Yield the updates to write, with their paths. A conflicting update is rejected and repeated later."""
        using_now = {pod["metadata"]["uid"] for pod in self._api.items(_PODS) if not _is_done(pod)}
        for claim in self.claims():
            path, status = f"{DEVICE_CLAIMS}/{claim['metadata']['name']}", claim.get("status") or {}
            users = status.get("reservedFor") or []
            left = [user for user in users if user["uid"] in using_now]
            if left != users:
                kept = {key: value for key, value in status.items() if key != "reservedFor" and (left or key != "allocation")}
                yield f"{path}/status", {**claim, "status": {**kept, **({"reservedFor": left} if left else {})}}
            elif claim["metadata"].get("deletionTimestamp") and not users and status.get("allocation"):
                yield f"{path}/status", {**claim, "status": {}}
            elif claim["metadata"].get("finalizers") and not status.get("allocation"):
                metadata = {key: value for key, value in claim["metadata"].items() if key != "finalizers"}
                if claim["metadata"].get("deletionTimestamp"):
                    yield path, {**claim, "metadata": metadata}


def using(claim: str) -> Document:
    """Return the part of a pod's spec that refers to a claim."""
    return {"resourceClaims": [{"name": "r", "resourceClaimName": claim}]}


def _claims_of(pod: Document) -> list[str]:
    return [use["resourceClaimName"] for use in pod["spec"].get("resourceClaims") or ()]


def _is_done(pod: Document) -> bool:
    over = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return over or bool(pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"))
