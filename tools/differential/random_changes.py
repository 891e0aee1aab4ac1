"""Make random clusters that change while pods wait: for recording which pods each change wakes.

A scenario has ``changes``. Each names the pods that wait, with the plugin that rejected each of them, and one object that is
created, updated (``set``) or deleted (``delete``). Pods in ``inFlight`` are being tried meanwhile; then their plugin rejects
them, or their attempt ends with an error if they have none.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from moorage.api.releases import find_release
from tools.differential.bred_clusters import DISKS, cluster, mixed_node

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
#: Kinds of scenario: changes during attempts, and updates of waiting pods themselves.
IN_FLIGHT: Final = "in flight"
OWN_UPDATES: Final = "own updates"
KINDS_OF_SCENARIO: Final = ("", IN_FLIGHT, OWN_UPDATES)
OF_DEVICES: Final = ("ResourceClaim", "ResourceSlice", "DeviceClass")


def changing_cluster(seed: int, release: str, kind: str = "") -> Document:
    """Return the scenario of a seed: changes of all kinds, or those of a ``kind`` (see ``KINDS_OF_SCENARIO``)."""
    made = cluster(seed, release)
    rng = random.Random(f"{release} changes {seed}")  # noqa: S311  draws no secrets
    for field in ("mode", "config", "featureGates"):
        made.pop(field, None)
    for pod in (o for o in made["objects"] if o["kind"] == "Pod"):
        pod["spec"].pop("schedulerName", None)
    if kind == OWN_UPDATES:
        return {**made, "changes": list(_own_updates(random.Random(f"{release} own updates {seed}"), made, release))}  # noqa: S311  draws no secrets
    changes = list(_changes(rng, made, release))
    if kind == IN_FLIGHT:
        flights = random.Random(f"{release} in flight {seed}")  # noqa: S311  draws no secrets
        changes = [_with_attempts(flights, change) for change in changes]
    return {**made, "changes": changes}


def _with_attempts(rng: random.Random, change: Document) -> Document:
    """Let half of the waiting pods be in flight; the attempts of some end with an error."""
    flying = {pod: plugins for pod, plugins in change["rejectedBy"].items() if rng.random() < 0.5}
    waiting = {pod: plugins for pod, plugins in change["rejectedBy"].items() if pod not in flying}
    return {
        **change,
        "rejectedBy": waiting,
        "inFlight": {pod: plugins * (rng.random() < 0.85) for pod, plugins in flying.items()},
    }


def _own_updates(rng: random.Random, made: Document, release: str) -> Iterator[Document]:
    """Yield updates of waiting pods; all that wait are rejected by a plugin, as is the one that is updated."""
    present = copy.deepcopy(made["objects"])
    for _ in range(CHANGES):
        pod = _one(rng, present, lambda o: o["kind"] == "Pod" and not o["spec"].get("nodeName"))
        if pod is None:
            return
        rng.choice(OF_PODS)(rng, pod)
        change = {"set": pod}
        yield {"rejectedBy": _rejections(rng, present, None, release), **change}
        _apply(present, change)


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


def _rejections(rng: random.Random, present: list[Document], change: Document | None, release: str) -> dict[str, list[str]]:
    """Return a plugin for each pending pod, other than the one that the change is about."""
    emulated = find_release(release)
    assert emulated is not None
    known = (
        *PLUGINS,
        *(["DynamicResources"] if _has_devices(release) else ()),
        *(DISKS if emulated.limits_in_tree_disks else ()),
    )
    pending = [o for o in present if o["kind"] == "Pod" and not o["spec"].get("nodeName")]
    about = None if change is None else _key(change.get("set") or change["delete"])
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


# -- updates of waiting pods ----------------------------------------------------------------------------------------------


def _annotated(rng: random.Random, pod: Document) -> None:
    pod["metadata"].setdefault("annotations", {})["changed"] = str(rng.randrange(100))


def _labelled(rng: random.Random, pod: Document) -> None:
    pod["metadata"].setdefault("labels", {})[rng.choice(("app", "changed"))] = str(rng.randrange(100))


def _finalized(rng: random.Random, pod: Document) -> None:
    pod["metadata"]["finalizers"] = [f"example.com/{rng.randrange(100)}"]


def _owned(rng: random.Random, pod: Document) -> None:
    name = f"set{rng.randrange(100)}"
    pod["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name}]


def _tolerant(rng: random.Random, pod: Document) -> None:
    pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", ()), {"key": f"k{rng.randrange(100)}", "operator": "Exists"}]


def _resized(rng: random.Random, pod: Document) -> None:
    for one in pod["spec"].get("containers", ()):
        one.setdefault("resources", {}).setdefault("requests", {})["cpu"] = rng.choice(("1m", "10m", "3", "50"))


def _other_image(rng: random.Random, pod: Document) -> None:
    for one in pod["spec"].get("containers", ()):
        one["image"] = f"app:{rng.randrange(100)}"


def _reported(rng: random.Random, pod: Document) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": str(rng.randrange(100))}
    pod.setdefault("status", {})["conditions"] = [condition]


def _nominated(rng: random.Random, pod: Document) -> None:
    pod.setdefault("status", {})["nominatedNodeName"] = f"n{rng.randrange(3)}"


def _leaving(rng: random.Random, pod: Document) -> None:
    pod["metadata"]["deletionTimestamp"] = f"2026-01-01T00:00:{rng.randrange(10, 60)}Z"


def _unchanged(rng: random.Random, pod: Document) -> None:
    del rng, pod


def _as_it_was(rng: random.Random, pod: Document) -> None:
    """Exchange two tolerations, which keeps their number."""
    held = pod["spec"].get("tolerations") or []
    pod["spec"]["tolerations"] = [*held[1:], *held[:1]]
    _annotated(rng, pod)


OF_PODS: Final = (
    _annotated, _labelled, _finalized, _owned, _tolerant, _resized, _other_image, _reported, _nominated, _leaving, _unchanged,
    _as_it_was,
)  # fmt: skip


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
    return (*KINDS, *(OF_DEVICES if _has_devices(release) else ()))


def _has_devices(release: str) -> bool:
    emulated = find_release(release)
    assert emulated is not None
    return "DynamicResources" not in emulated.lacks and emulated.gates["DynamicResourceAllocation"].default


KINDS_OF_CHANGE: Final = (
    *[_node_updated] * 4, _node_added, _node_added, _node_deleted, _pod_deleted, _pod_deleted, _pod_added, _pod_updated,
    _pod_updated, _other_deleted, _other_added, _other_added, _other_updated,
)  # fmt: skip
