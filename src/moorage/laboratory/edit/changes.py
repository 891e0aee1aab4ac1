"""Apply a change to the input objects: the whole change, or an error that says what was found.

Changes of the configuration are applied to the loaded configuration instead: ``moorage.laboratory.edit.changes``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api import storage
from moorage.api.core import Namespace, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Object, ObjectMeta, Pod
from moorage.api.devices import ResourceClaim, ResourceClaimSpec
from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.framework.changes import Change, taint_text
from moorage.laboratory.amount_text import with_amount
from moorage.laboratory.edit.pod_changes import POD_CHANGES, parse_taint
from moorage.simulator.owners import controller_of
from moorage.simulator.replacements import replacement

#: The annotation of a claim whose binding is complete.
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_CORDON: Final = "node.kubernetes.io/unschedulable"
#: Changes by which a pod leaves its node: its controller replaces it only after an eviction.
LEAVING: Final = frozenset(["evict", "wait", "surge", "scale"])
#: The beginnings of the keys of taints for conditions of nodes, and for nodes that an autoscaler deletes.
CONDITIONS: Final = ("node.kubernetes.io/",)
GOING: Final = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupt")
TRANSIENT: Final = CONDITIONS + GOING
#: Parts of the keys of taints that a node has only while it starts, and conditions that every node has at first.
STARTING: Final = ("uninitialized", "agent-not-ready", "unregistered", "startup")
AT_FIRST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable")
_KINDS: Final[Mapping[str, type[Pod] | type[Node] | type[Namespace]]] = {"pod": Pod, "namespace": Namespace}
#: How many names an error lists.
_SHOWN: Final = 5


def target_of(obj: Pod | Node | Namespace) -> str:
    """Return the text by which changes name an object: ``pod/default/web``, ``node/general-c2``, ``namespace/shop``."""
    return f"{type(obj).__name__.lower()}/{obj.key if isinstance(obj, Pod) else obj.name}"


def apply_all(objects: Iterable[Object], changes: Iterable[Change]) -> list[Object]:
    """Apply several changes, in order."""
    changed = list(objects)
    for change in changes:
        changed = apply(changed, change)
    return changed


def apply(objects: Iterable[Object], change: Change) -> list[Object]:
    """Return the objects with one of them changed.

    Raises  InputError if the object does not exist, or is not as the change expects it
    """
    held = list(objects)
    if change.verb == "add-node":
        return _with_node(held, change)
    if change.target.startswith("persistentvolumeclaim/"):
        return _with_claim(held, change)
    if change.target.startswith("resourceclaim/"):
        return [_with_device_class(obj, change) if isinstance(obj, ResourceClaim) else obj for obj in held]
    kind = _KINDS.get(change.target.partition("/")[0], Node)
    at = next((i for i, obj in enumerate(held) if isinstance(obj, kind) and target_of(obj) == change.target), None)
    if at is None:
        raise _missing(held, change)
    found: Any = held[at]
    if kind is Pod and change.verb in LEAVING:
        left = [*held[:at], *held[at + 1 :]]
        fresh = replacement(found) if change.verb == "evict" else None
        return [*(_released(obj, found) for obj in left), *(() if fresh is None else (fresh,))]
    known: Mapping[str, Callable[[Any, Change], Any]] = POD_CHANGES if kind is Pod else NODE_CHANGES
    if change.verb not in known:
        raise InputError(f"{change.target}: unknown change {change.verb!r}; known: {', '.join(sorted(known))}")
    held[at] = known[change.verb](found, change)
    if change.verb == "prefer" and change.path == "affinity.podAntiAffinity":
        held = [_softened(obj, found, change) if obj is not held[at] else obj for obj in held]
    return held


def _with_device_class(claim: ResourceClaim, change: Change) -> ResourceClaim:
    """Give the requests of a claim for devices another class, if the change is of this claim."""
    if f"resourceclaim/{claim.key}" != change.target:
        return claim
    text = msgspec.json.encode(claim.spec).decode()
    old, new = (f'"deviceClassName":{json.dumps(str(name))}' for name in (change.old, change.new))
    if old not in text:
        raise InputError(one_line(f"{change.target}: no request has the class {change.old}"))
    return replace(claim, spec=msgspec.json.decode(text.replace(old, new), type=ResourceClaimSpec))


def _softened(obj: Object, pod: Pod, change: Change) -> Object:
    """Make the anti-affinity of the workload's other pods preferred too: the change of its template applies to all its pods."""
    if not isinstance(obj, Pod) or obj.namespace != pod.namespace:
        return obj
    owners = [controller_of(one.metadata) for one in (obj, pod)]
    if owners[0] is None or owners[1] is None or (owners[0].kind, owners[0].name) != (owners[1].kind, owners[1].name):
        return obj
    try:
        return POD_CHANGES[change.verb](obj, change)
    except InputError:
        return obj


def _released(obj: Object, pod: Pod) -> Object:
    """Return a resource claim without the reservation of a deleted pod; if none is left, its devices are deallocated."""
    if not isinstance(obj, ResourceClaim) or not any(one.uid == pod.uid for one in obj.status.reserved_for):
        return obj
    left = tuple(one for one in obj.status.reserved_for if one.uid != pod.uid)
    allocation = obj.status.allocation if left else None
    return replace(obj, status=replace(obj.status, reserved_for=left, allocation=allocation))


def _missing(objects: Iterable[Object], change: Change) -> InputError:
    kind = change.target.partition("/")[0]
    wanted = change.target.rpartition("/")[2]
    if kind not in {"pod", "node"}:
        return InputError(f"{one_line(change.target)}: a change names pod/NAMESPACE/NAME or node/NAME")
    names = [target_of(obj) for obj in objects if isinstance(obj, Pod if kind == "pod" else Node)]
    alike = [name for name in names if name.rpartition("/")[2] == wanted] or [name for name in names if wanted in name] or names
    more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
    has = f"the input has {', '.join(alike[:_SHOWN])}{more}" if alike else f"the input has no {kind}s"
    return InputError(one_line(f"{change.target}: no such {kind}; {has}"))


# -- nodes ------------------------------------------------------------------------------------------------------------


def _uncordon(node: Node, change: Change) -> Node:
    """Clear ``unschedulable`` and remove the taint that goes with it, which the node lifecycle controller does."""
    taints = tuple(taint for taint in node.spec.taints if taint.key != _CORDON)
    return replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))


def _cordon(node: Node, change: Change) -> Node:
    taints = tuple(taint for taint in node.spec.taints if taint.key != _CORDON)
    return replace(node, spec=replace(node.spec, unschedulable=True, taints=(*taints, parse_taint(f"{_CORDON}:NoSchedule"))))


def _label(node: Any, change: Change) -> Any:
    """Label a node or a namespace."""
    key, held = change.path.removeprefix("labels."), node.metadata.labels
    if change.old is not None and held.get(key) != change.old:
        raise InputError(f"{change.target}: label {key} is {held.get(key)!r}, not {change.old!r}")
    labels = {name: value for name, value in held.items() if name != key}
    if change.new is not None:
        labels[key] = str(change.new)
    return replace(node, metadata=replace(node.metadata, labels=labels))


def _untaint(node: Node, change: Change) -> Node:
    gone = parse_taint(str(change.old))
    left = tuple(
        held
        for held in node.spec.taints
        if (held.key, held.effect) != (gone.key, gone.effect) or (gone.value and held.value != gone.value)
    )
    if left == node.spec.taints:
        has = ", ".join(map(taint_text, left)) or "none"
        raise InputError(f"{change.target}: no taint {change.old}; it has {has}")
    return replace(node, spec=replace(node.spec, taints=left))


def _taint(node: Node, change: Change) -> Node:
    fresh = parse_taint(str(change.new))
    left = tuple(held for held in node.spec.taints if (held.key, held.effect) != (fresh.key, fresh.effect))
    return replace(node, spec=replace(node.spec, taints=(*left, fresh)))


def _allocatable(node: Node, change: Change) -> Node:
    resource, count = change.path.removeprefix("allocatable."), change.new
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InputError(f"{change.target}: {change.path} must be a whole number of at least 0, not {count!r}")
    return replace(node, status=replace(node.status, allocatable=with_amount(node.status.allocatable, resource, count)))


def _feature(node: Node, change: Change) -> Node:
    features = (*node.status.declared_features, str(change.new))
    return replace(node, status=replace(node.status, declared_features=features))


def _repair(node: Node, change: Change) -> Node:
    """Remove the taint of a condition, which goes when the node works again; ``wait``: all those of a start, or the cordon."""
    if change.path == "unschedulable":
        return _uncordon(node, change)
    if change.path.startswith("allocatable."):
        return _allocatable(node, change)
    is_waiting = change.verb == "wait"
    left = tuple(
        held for held in node.spec.taints
        if not (is_of_start(held.key) if is_waiting else held.key.rpartition("/")[2] == str(change.old))
    )  # fmt: skip
    return replace(node, spec=replace(node.spec, taints=left))


def _with_claim(objects: list[Object], change: Change) -> list[Object]:
    """Create a claim, give one another class, or create a volume for one. Unless its class delays that, it is bound at once."""
    space, _, name = change.target.removeprefix("persistentvolumeclaim/").partition("/")
    held, node = list(objects), str(change.new or "")
    if change.verb == "create":
        meta = ObjectMeta(name=name, namespace=space, uid=f"added/{space}/{name}")
        held.append(
            storage.PersistentVolumeClaim(
                metadata=meta, spec=storage.PersistentVolumeClaimSpec(storage_class_name=node or None)
            )
        )
    if change.verb == "correct":
        held = [
            replace(obj, spec=replace(obj.spec, storage_class_name=node))
            if isinstance(obj, storage.PersistentVolumeClaim) and obj.key == f"{space}/{name}"
            else obj
            for obj in held
        ]
    classes = {obj.metadata.name: obj for obj in objects if isinstance(obj, storage.StorageClass)}
    kind = classes.get(node) if change.verb != "volume" else None
    if kind is not None and kind.volume_binding_mode == "WaitForFirstConsumer":
        return held
    return _with_volume(held, change if change.verb == "volume" else replace(change, new=None))


def _with_volume(objects: list[Object], change: Change) -> list[Object]:
    """Create a volume for a claim without one, and bind them. Only the node that the change names can reach it."""
    key = change.target.removeprefix("persistentvolumeclaim/")
    at = next((i for i, obj in enumerate(objects) if isinstance(obj, storage.PersistentVolumeClaim) and obj.key == key), None)
    claim = objects[at] if at is not None else None
    if at is None or not isinstance(claim, storage.PersistentVolumeClaim):
        raise InputError(one_line(f"{change.target}: no such claim"))
    name = f"for-{claim.metadata.namespace}-{claim.metadata.name}"
    asked = claim.spec
    here = NodeSelectorRequirement(key="metadata.name", operator="In", values=(str(change.new),))
    only = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(here,)),))
    volume = storage.PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"added/{name}"),
        spec=storage.PersistentVolumeSpec(
            capacity=asked.resources.requests,
            access_modes=asked.access_modes,
            storage_class_name=asked.storage_class_name or "",
            volume_mode=asked.volume_mode,
            claim_ref=storage.ObjectReference(
                api_version="v1", kind="PersistentVolumeClaim", namespace=claim.metadata.namespace, name=claim.metadata.name,
                uid=claim.metadata.uid,
            ),
            node_affinity=storage.VolumeNodeAffinity(required=only) if change.new else None,
        ),
        status=storage.PersistentVolumeStatus(phase="Bound"),
    )  # fmt: skip
    bound = replace(
        claim,
        metadata=replace(claim.metadata, annotations={**claim.metadata.annotations, _BOUND: "yes"}),
        spec=replace(asked, volume_name=name),
        status=replace(claim.status, phase="Bound"),
    )
    return [*objects[:at], volume, bound, *objects[at + 1 :]]


def is_of_start(key: str) -> bool:
    """Return whether a taint goes when a starting node is ready."""
    return key in AT_FIRST or any(part in key for part in STARTING)


def is_transient(key: str) -> bool:
    """Return whether a taint stands for a condition of a node, for its start, or for its end."""
    return key.startswith(TRANSIENT) or any(part in key for part in STARTING)


def _with_node(objects: list[Object], change: Change) -> list[Object]:
    """Add an empty node like another: its labels, taints and amounts, with a host name of its own."""
    name, like = change.target.removeprefix("node/"), str(change.new).removeprefix("like ")
    nodes = [obj for obj in objects if isinstance(obj, Node)]
    pattern = next((node for node in nodes if node.name == like), None)
    if pattern is None:
        raise _missing(objects, Change(change.owner, change.verb, f"node/{like}"))
    if any(node.name == name for node in nodes):
        raise InputError(f"{change.target}: a node of that name exists; choose another name")
    labels = {key: name if key == "kubernetes.io/hostname" else value for key, value in pattern.labels.items()}
    meta = replace(pattern.metadata, name=name, uid=f"added/{name}", labels=labels, creation_timestamp=None)
    kept = tuple(taint for taint in pattern.spec.taints if not is_transient(taint.key))
    fresh = replace(pattern, metadata=meta, spec=replace(pattern.spec, taints=kept, unschedulable=False))
    at = max(i for i, obj in enumerate(objects) if isinstance(obj, Node)) + 1
    return [*objects[:at], fresh, *objects[at:]]


#: Verb → how a node changes.
NODE_CHANGES: Final[Mapping[str, Callable[[Node, Change], Node]]] = {
    "uncordon": _uncordon,
    "cordon": _cordon,
    "repair": _repair,
    "wait": _repair,
    "label": _label,
    "relabel": _label,
    "untaint": _untaint,
    "taint": _taint,
    "allocatable": _allocatable,
    "pods": _allocatable,
    "feature": _feature,
}
