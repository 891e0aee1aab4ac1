"""The storage of a world: local and zonal volumes, claims, and the controllers that bind and recycle them.

Simulates kube-controller-manager's volume controller and a provisioner of local volumes: a volume that a scheduler bound to a
claim completes the binding, a released volume is deleted and created again, an unused claim is deleted now and then. It reads
the API's current state, and acts with a random delay after a change.

Source  kubernetes, pkg/controller/volume/persistentvolume/pv_controller.go: syncClaim, syncVolume, bind, unbindVolume
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from tools.simtest.virtual_api import VirtualApi

__all__ = ["CLAIMS", "VOLUMES", "Disks"]

Document = dict[str, Any]

VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_DONE, _BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
#: Storage class → the label that the nodes share from which its volumes can be reached.
_REACHED_BY = {"local": "kubernetes.io/hostname", "zonal": "topology.kubernetes.io/zone"}
_WATCHED = frozenset(["PersistentVolume", "PersistentVolumeClaim", "Pod"])
_SIZE = {"storage": "1Gi"}


class Disks:
    """Creates volumes and claims, and binds. Construct it before the schedulers start; ``run`` it while claims are pending."""

    def __init__(self, api: VirtualApi, rng: random.Random) -> None:
        self._api, self.rng = api, rng
        self._serial = 0
        self._offered: dict[str, tuple[str, str]] = {}
        self._news = asyncio.Event()
        for name in _REACHED_BY:
            self._create(
                _CLASSES, "StorageClass", name, "storage.k8s.io/v1", provisioner="kubernetes.io/no-provisioner",
                volumeBindingMode="WaitForFirstConsumer",
            )  # fmt: skip
        api.store.follow(lambda kind, change: self.look_again() if kind.kind in _WATCHED else None)

    def _create(self, path: str, kind: str, name: str, version: str = "v1", **parts: Any) -> Document | None:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}
        made: Document | None = self._api.do("POST", path, body)
        return made

    # -- objects --------------------------------------------------------------------------------------------------------

    def begin(self, nodes: int) -> None:
        """Create volumes for the nodes of a cluster."""
        for number in range(nodes):
            for disk in range(self.rng.choice([1, 2, 3])):
                self.offer(f"n{number}-d{disk}", "local", f"n{number}")
        for zone in "ab"[:nodes]:
            self.offer(f"zone-{zone}", "zonal", zone)

    def offer(self, name: str, kind: str, where: str) -> None:
        """Create a volume of a class (``local``, ``zonal``) for a node or a zone; it is created again after it was released."""
        self._offered[name] = kind, where
        within = {"matchExpressions": [{"key": _REACHED_BY[kind], "operator": "In", "values": [where]}]}
        self._create(
            VOLUMES, "PersistentVolume", name,
            spec={
                "capacity": _SIZE, "accessModes": ["ReadWriteOnce"], "storageClassName": kind,
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": f"/disks/{name}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [within]}},
            },
        )  # fmt: skip

    def claim(self, kind: str = "local", name: str = "") -> str:
        """Create a claim, and return its name."""
        if not name:
            self._serial += 1
            name = f"c{self._serial}"
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": _SIZE}, "storageClassName": kind}
        self._create(CLAIMS, "PersistentVolumeClaim", name, spec=spec)
        return name

    def any_use(self) -> Document:
        """Return a pod's volumes at random: mostly new claims, sometimes a shared one."""
        rng = self.rng
        if rng.random() < 0.35:
            return {}
        there = [claim["metadata"]["name"] for claim in self._api.items(CLAIMS)]
        if there and rng.random() < 0.25:
            return using(rng.choice(there))
        return using(*(self.claim(rng.choice(["local", "local", "zonal"])) for _ in range(rng.choice([1, 1, 1, 2]))))

    # -- controllers ----------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Wake ``run``, so that it checks for pending actions after its random delay."""
        self._news.set()

    async def run(self) -> None:
        """Bind and recycle until cancelled, with a random delay after each change."""
        while True:
            await self._news.wait()
            await asyncio.sleep(self.rng.choice([0.02, 0.3, 1.0, 3.0]))
            self._news.clear()
            while self._act():
                await asyncio.sleep(self.rng.choice([0.0, 0.05]))

    def _act(self) -> bool:
        """Do the first pending action; return False if there is none."""
        volumes = {one["metadata"]["name"]: one for one in self._api.items(VOLUMES)}
        claims = {one["metadata"]["name"]: one for one in self._api.items(CLAIMS)}
        for path, changed, status in self._due(volumes, claims):
            if changed is None:
                done = self._api.do("DELETE", path)
            else:
                done = self._api.do("PUT", f"{path}/status" if status else path, changed)
            if done is not None:
                return True
        wiped = [name for name in self._offered if name not in volumes]
        for name in wiped:
            self.offer(name, *self._offered[name])
        return bool(wiped)

    def _due(self, volumes: dict[str, Document], claims: dict[str, Document]) -> Iterator[tuple[str, Document | None, bool]]:
        """Yield the updates to write: path, document (None to delete it), and whether only the status changes."""
        for name, volume in volumes.items():
            changed, status = self._volume(volume, claims)
            if changed != volume:
                yield f"{VOLUMES}/{name}", changed, status
        used = {name for pod in self._api.items(PODS) if not _is_over(pod) for name in claims_of(pod)}
        for name, claim in claims.items():
            if claim["metadata"].get("deletionTimestamp"):
                if name not in used and claim["metadata"].get("finalizers"):
                    yield f"{CLAIMS}/{name}", _with(claim, "metadata", finalizers=[]), False
                continue
            changed, status = _claim(claim, volumes)
            if changed != claim:
                yield f"{CLAIMS}/{name}", changed, status

    def _volume(self, volume: Document, claims: dict[str, Document]) -> tuple[Document | None, bool]:
        """Return the desired state of a volume (None to delete it), and whether only its status changes."""
        if volume["metadata"].get("deletionTimestamp"):
            return _with(volume, "metadata", finalizers=[]), False
        to = volume["spec"].get("claimRef")
        if to is None:
            return _with(volume, "status", phase="Available"), True
        claim = claims.get(to["name"])
        if claim is None or claim["metadata"]["uid"] != to.get("uid"):
            if volume.get("status", {}).get("phase") == "Released":
                return None, False
            return _with(volume, "status", phase="Released"), True
        bound_to = claim["spec"].get("volumeName")
        if bound_to and bound_to != volume["metadata"]["name"]:
            return _with(volume, "spec", claimRef=None), False
        return (_with(volume, "status", phase="Bound"), True) if bound_to else (volume, False)

    def clear_away(self) -> None:
        """Delete some of the claims that no pod uses."""
        used = {name for pod in self._api.items(PODS) for name in claims_of(pod)}
        for claim in self._api.items(CLAIMS):
            if claim["metadata"]["name"] not in used and self.rng.random() < 0.5:
                self._api.do("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")


def using(*claims: str) -> Document:
    """Return the part of a pod's spec that refers to these claims."""
    return {
        "volumes": [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)]
    }


def claims_of(pod: Document) -> list[str]:
    """Return the names of the claims that a pod uses."""
    uses = [volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes") or ()]
    return [use["claimName"] for use in uses if use]


def _claim(claim: Document, volumes: dict[str, Document]) -> tuple[Document, bool]:
    """Return the desired state of a claim, and whether only its status changes."""
    annotations = claim["metadata"].get("annotations") or {}
    if _DONE in annotations:
        volume = volumes.get(claim["spec"].get("volumeName", ""))
        to = volume["spec"].get("claimRef") if volume is not None else None
        lost = to is None or to.get("uid") != claim["metadata"]["uid"]
        return _with(claim, "status", phase="Lost" if lost else "Bound"), True
    for name, volume in volumes.items():
        to = volume["spec"].get("claimRef") or {}
        if to.get("uid") == claim["metadata"]["uid"] and not volume["metadata"].get("deletionTimestamp"):
            bound = _with(claim, "metadata", annotations={**annotations, _DONE: "yes", _BY_CONTROLLER: "yes"})
            return _with(bound, "spec", volumeName=name), False
    return claim, False


def _with(document: Document, part: str, **changes: Any) -> Document:
    """Return a document with changed fields in one part; None removes a field."""
    after = {**document.get(part, {}), **changes}
    return {**document, part: {key: value for key, value in after.items() if value is not None}}


def _is_over(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
