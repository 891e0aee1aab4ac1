"""Replace objects of an earlier input by those of a later one, as ``kubectl replace`` does, and add the others.

An object keeps the identity and the status of the one that it replaces, unless it has its own. A pod that is given without a
node is a new pod. Where a workload's template changes, its pods are replaced, as after its rollout; where only its size
changes, it is scaled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace as with_fields
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.custom_objects import CustomObject
from moorage.api.meta import Object
from moorage.api.workloads import DaemonSet, Deployment, StatefulSet
from moorage.basis.inputs.cleaned_objects import KINDS
from moorage.cluster.controllers.workloads.missing_pods import POD_TEMPLATE_HASH
from moorage.laboratory.edit.scaling import scale_object, without_running
from moorage.laboratory.present import is_implied
from moorage.simulator.cluster_input import SLOTS, ClusterInput
from moorage.simulator.owners import Claimed, controller_of

__all__ = ["replaced", "rolled_out"]

_READ_SLOTS: Final = tuple(kind.slot for kind in KINDS if kind.slot in SLOTS)


def replaced(before: ClusterInput, later: ClusterInput) -> ClusterInput:
    """Return the earlier input with its objects replaced by the later ones, and the others added."""
    fields: dict[str, Any] = {slot: _merged(getattr(before, slot), getattr(later, slot)) for slot in _READ_SLOTS}
    fields["others"] = _merged(before.others, later.others)
    fields["custom"] = _merged(before.custom, later.custom)
    notes = (*before.report.notes, *later.report.notes)
    report = with_fields(before.report, unused=(*before.report.unused, *later.report.unused), notes=tuple(dict.fromkeys(notes)))
    after = with_fields(before, **fields, report=report)
    for slot in ("deployments", "stateful_sets", "daemon_sets", "replica_sets", "replication_controllers"):
        for old, new in _pairs(getattr(before, slot), getattr(later, slot)):
            after = _followed(after, old, new)
    return after


def _name(obj: Object) -> tuple[object, str, str]:
    kind = obj.resource if isinstance(obj, CustomObject) else type(obj)
    return kind, obj.metadata.namespace, obj.metadata.name


def _merged(before: Iterable[Any], later: Iterable[Any]) -> tuple[Any, ...]:
    held = {_name(obj): obj for obj in before}
    for obj in later:
        known = held.get(_name(obj))
        if known is None or not is_implied(obj):
            held[_name(obj)] = obj if known is None else _taking_over(known, obj)
    return tuple(held.values())


def _taking_over(known: Any, obj: Any) -> Any:
    """Return the later object with the identity of the earlier one and, if it has no status, with its status."""
    metadata = replace(obj.metadata, uid=known.metadata.uid)
    if isinstance(obj, Pod) and not obj.spec.node_name:
        return replace(obj, metadata=metadata)
    if metadata.creation_timestamp is None:
        metadata = replace(metadata, creation_timestamp=known.metadata.creation_timestamp)
    kept = replace(obj, metadata=metadata)
    status = getattr(obj, "status", None)
    return replace(kept, status=known.status) if status is not None and status == type(status)() else kept


def _pairs(before: Iterable[Any], later: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    held = {_name(obj): obj for obj in before}
    return [(held[_name(obj)], obj) for obj in later if _name(obj) in held]


def _followed(cluster: ClusterInput, old: Any, new: Any) -> ClusterInput:
    """Return the cluster after a workload's controller has followed a change of the workload."""
    if old.spec.template != new.spec.template and isinstance(new, Deployment | StatefulSet | DaemonSet):
        return rolled_out(cluster, old)
    now = getattr(new.spec, "replicas", None)
    if now is not None and now < (1 if old.spec.replicas is None else old.spec.replicas):
        current = replace(new, metadata=replace(new.metadata, uid=old.metadata.uid))
        return scale_object(cluster, current, now)
    return cluster


def rolled_out(cluster: ClusterInput, old: Any) -> ClusterInput:
    """Return the cluster without the pods and replica sets of a workload's earlier template; new ones are created later."""
    if not isinstance(old, Deployment):
        return without_running(cluster, Claimed(cluster.pods).of(type(old).__name__, old.metadata))
    gone = {one.metadata.uid for one in Claimed(cluster.replica_sets).of("Deployment", old.metadata)}
    pods = list(_pods_of(cluster, old, gone))
    kept = tuple(one for one in cluster.replica_sets if one.metadata.uid not in gone)
    return without_running(with_fields(cluster, replica_sets=kept), pods)


def _pods_of(cluster: ClusterInput, deployment: Deployment, sets: Collection[str]) -> Iterator[Pod]:
    """Yield the pods of a deployment: of its replica sets, or with the names that those would have."""
    for pod in cluster.pods:
        owner, mark = controller_of(pod.metadata), pod.labels.get(POD_TEMPLATE_HASH)
        if owner is None or owner.kind != "ReplicaSet" or pod.namespace != deployment.namespace:
            continue
        if owner.uid in sets or (mark and owner.name == f"{deployment.name}-{mark}"):
            yield pod
