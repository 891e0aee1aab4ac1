"""Make random clusters that change while pods wait: for recording which pods each change wakes.

A scenario has ``changes``. Each names the pods that wait, with the plugin that rejected each of them, and one object that is
created, updated (``set``) or deleted (``delete``).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, Final

from moorage.releases import find_release
from tests.conformance.random_clusters import DISKS, cluster, mixed_node

Document = dict[str, Any]

PLUGINS: Final = (
    "InterPodAffinity", "NodeAffinity", "NodeName", "NodePorts", "NodeResourcesFit", "NodeUnschedulable", "NodeVolumeLimits",
    "PodTopologySpread", "TaintToleration", "VolumeBinding", "VolumeRestrictions", "VolumeZone",
)  # fmt: skip
CHANGES: Final = 8
#: Kinds whose objects are deleted, created again, and created under another name. Devices are left out before 1.34.
KINDS: Final = (
    "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "Service",
    "VolumeAttachment", "Namespace",
)  # fmt: skip
OF_DEVICES: Final = ("ResourceClaim", "ResourceSlice", "DeviceClass")


def changing_cluster(seed: int, release: str) -> Document:
    """Return the scenario of a seed."""
    made = cluster(seed, release)
    rng = random.Random(f"{release} changes {seed}")
    for field in ("mode", "config", "featureGates"):
        made.pop(field, None)
    for pod in (o for o in made["objects"] if o["kind"] == "Pod"):
        pod["spec"].pop("schedulerName", None)
    return {**made, "changes": list(_changes(rng, made, release))}


def _changes(rng: random.Random, made: Document, release: str) -> list[Document]:
    present = copy.deepcopy(made["objects"])
    found: list[Document] = []
    while len(found) < CHANGES:
        change = rng.choice(KINDS_OF_CHANGE)(rng, present, release)
        if change is None:
            continue
        found.append({"rejectedBy": _rejections(rng, present, change, release), **change})
        _apply(present, change)
    return found


def _rejections(rng: random.Random, present: list[Document], change: Document, release: str) -> dict[str, list[str]]:
    """Return a plugin for each pending pod, other than the one that the change is about."""
    emulated = find_release(release)
    assert emulated is not None
    has_devices = emulated.gates["DynamicResourceAllocation"].default
    known = (*PLUGINS, *(["DynamicResources"] if has_devices else ()), *(DISKS if emulated.limits_in_tree_disks else ()))
    pending = [o for o in present if o["kind"] == "Pod" and not o["spec"].get("nodeName")]
    about = _key(change.get("set") or change["delete"])
    return {f"{o['metadata']['namespace']}/{o['metadata']['name']}": [rng.choice(known)] for o in pending if _key(o) != about}


def _key(thing: Document) -> tuple[str, str, str]:
    return thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def _apply(present: list[Document], change: Document) -> None:
    about = _key(change.get("set") or change["delete"])
    present[:] = [o for o in present if _key(o) != about]
    if "set" in change:
        present.append(copy.deepcopy(change["set"]))


def _one(rng: random.Random, present: list[Document], fits: Callable[[Document], bool]) -> Document | None:
    found = [o for o in present if fits(o)]
    return copy.deepcopy(rng.choice(found)) if found else None


def _renamed(thing: Document, rng: random.Random) -> Document:
    name = f"new{rng.randrange(1000)}"
    thing["metadata"] |= {"name": name, "uid": f"u-{name}"}
    return thing


def _is_placed(thing: Document) -> bool:
    return thing["kind"] == "Pod" and bool(thing["spec"].get("nodeName"))


# -- kinds of change ------------------------------------------------------------------------------------------------------


def _node_updated(rng: random.Random, present: list[Document], release: str) -> Document | None:
    del release
    node = _one(rng, present, lambda o: o["kind"] == "Node")
    return None if node is None else {"set": mixed_node(rng, node, [o for o in present if o["kind"] == "Node"], 0.3)}


def _node_added(rng: random.Random, present: list[Document], release: str) -> Document | None:
    changed = _node_updated(rng, present, release)
    if changed is None:
        return None
    node = _renamed(changed["set"], rng)
    node["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = node["metadata"]["name"]
    return {"set": node}


def _node_deleted(rng: random.Random, present: list[Document], release: str) -> Document | None:
    del release
    node = _one(rng, present, lambda o: o["kind"] == "Node")
    return None if node is None else {"delete": node}


def _pod_deleted(rng: random.Random, present: list[Document], release: str) -> Document | None:
    del release
    pod = _one(rng, present, lambda o: _is_placed(o) or (o["kind"] == "Pod" and "nominatedNodeName" in (o.get("status") or {})))
    return None if pod is None else {"delete": pod}


def _pod_added(rng: random.Random, present: list[Document], release: str) -> Document | None:
    del release
    pod = _one(rng, present, _is_placed)
    return None if pod is None else {"set": _renamed(pod, rng)}


def _pod_updated(rng: random.Random, present: list[Document], release: str) -> Document | None:
    """Exchange the labels of a placed pod, or change its requests as a resize does."""
    del release
    pod, other = _one(rng, present, _is_placed), _one(rng, present, lambda o: o["kind"] == "Pod")
    if pod is None or other is None:
        return None
    if rng.random() < 0.5:
        pod["metadata"]["labels"] = other["metadata"].get("labels", {})
    else:
        for container in pod["spec"].get("containers", ()):
            container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = rng.choice(("10m", "100m", "3"))
    return {"set": pod}


def _other_deleted(rng: random.Random, present: list[Document], release: str) -> Document | None:
    thing = _one(rng, present, lambda o: o["kind"] in _kinds(release) and o["kind"] != "Namespace")
    return None if thing is None else {"delete": thing}


def _other_added(rng: random.Random, present: list[Document], release: str) -> Document | None:
    thing = _one(rng, present, lambda o: o["kind"] in _kinds(release) and o["kind"] != "Namespace")
    return None if thing is None else {"set": _renamed(thing, rng)}


def _other_updated(rng: random.Random, present: list[Document], release: str) -> Document | None:
    """Give an object the spec of another one of its kind, or another label."""
    thing = _one(rng, present, lambda o: o["kind"] in _kinds(release))
    if thing is None:
        return None
    other = _one(rng, present, lambda o: o["kind"] == thing["kind"]) or thing
    if rng.random() < 0.6 and thing["kind"] not in {"Namespace", "PersistentVolumeClaim", "PersistentVolume"}:
        kept = {name: thing[name] for name in ("metadata", "apiVersion", "kind")}
        return {"set": {**other, **kept}}
    thing["metadata"].setdefault("labels", {})["changed"] = str(rng.randrange(100))
    return {"set": thing}


def _kinds(release: str) -> tuple[str, ...]:
    emulated = find_release(release)
    assert emulated is not None
    return (*KINDS, *(OF_DEVICES if emulated.gates["DynamicResourceAllocation"].default else ()))


KINDS_OF_CHANGE: Final = (
    *[_node_updated] * 4, _node_added, _node_added, _node_deleted, _pod_deleted, _pod_deleted, _pod_added, _pod_updated,
    _pod_updated, _other_deleted, _other_added, _other_added, _other_updated,
)  # fmt: skip
