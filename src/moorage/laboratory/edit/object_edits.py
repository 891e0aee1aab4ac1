"""Translate changes of objects, as programs write them, into the steps of a simulation.

New pods and claims pass the same admission as those of an input, and the missing pods of workloads are created.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace as with_fields
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Object, ObjectMeta, Pod, PodSpec, PodTemplateSpec, ReplicationController
from moorage.api.custom_objects import CustomObject
from moorage.api.decode import decode
from moorage.api.documents.object_fields import stable_uid
from moorage.api.fields.strategic_merge import strategic_merge
from moorage.api.schema.schemas import kind_schema
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.api.workloads import CronJob, DaemonSet, Deployment, Job, ReplicaSet, StatefulSet
from moorage.basis.inputs.objects import FoundObject
from moorage.basis.inputs.simulated_kinds import KINDS, find_kind
from moorage.basis.printable import one_line
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError, StateError
from moorage.framework.changes import Change
from moorage.laboratory.cluster_objects import (
    ASIDE,
    ObjectLike,
    cluster_input,
    documents,
    is_implied,
    key_of,
    present_objects,
    read_given,
)
from moorage.laboratory.edit import scaling
from moorage.laboratory.edit.changes import apply, apply_all
from moorage.laboratory.edit.edits import WORKLOAD_KINDS, parse_edit, parse_field
from moorage.laboratory.inventory import Inventory, kinds_by_name, served_as
from moorage.laboratory.plan.node_types import daemon_pods, drawn_daemon_pods, policies_of
from moorage.laboratory.trial.history import Deleted, Step, Told
from moorage.simulator.admission import admit
from moorage.simulator.cluster_input import SLOTS, ClusterInput, WrittenObjects
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.owners import Claimed, controller_of, deployment_name
from moorage.simulator.pod_creation import create_missing_pods

# -- replaced objects --------------------------------------------------------------------------------------------------
# Replace objects of an earlier input by those of a later one, as ``kubectl replace`` does, and add the others.
#
# An object keeps the identity and the status of the one that it replaces, unless it has its own. A pod that is given without a
# node is a new pod. Where a workload's template changes, its pods are replaced, as after its rollout; where only its size
# changes, it is scaled.

_READ_SLOTS: Final = tuple(kind.slot for kind in KINDS if kind.slot in SLOTS)


def replaced(before: ClusterInput, later: ClusterInput) -> ClusterInput:
    """Return the earlier input with its objects replaced by the later ones, and the others added."""
    fields: dict[str, Any] = {slot: _merged(getattr(before, slot), getattr(later, slot)) for slot in _READ_SLOTS}
    fields["others"] = _merged(before.others, later.others)
    fields["custom"] = _merged(before.custom, later.custom)
    fields["job_objects"] = _merged(before.job_objects, later.job_objects)
    notes = (*before.report.notes, *later.report.notes)
    report = with_fields(before.report, unused=(*before.report.unused, *later.report.unused), notes=tuple(dict.fromkeys(notes)))
    after = with_fields(before, **fields, written=_joined(before, later), report=report)
    for slot in ("deployments", "stateful_sets", "daemon_sets", "replica_sets", "replication_controllers"):
        for old, new in _pairs(getattr(before, slot), getattr(later, slot)):
            after = _followed(after, old, new)
    return after


def without(given: ClusterInput, refs: Iterable[str]) -> ClusterInput:
    """Return an input without these objects, each ``kind/namespace/name`` or ``kind/name``, and without what they own.

    Raises  InputError for one that is not there
    """
    names = kinds_by_name()
    gone: set[int] = set()
    uids: set[str] = set()
    every = [obj for slot in _READ_SLOTS for obj in getattr(given, slot)]
    for ref in refs:
        head, _, rest = ref.partition("/")
        kind = names.get(head.lower())
        keys = {rest, f"default/{rest}"} if kind is not None and kind.namespaced and "/" not in rest else {rest}
        found = [obj for obj in every if kind is not None and type(obj) is kind.type and obj.key in keys]
        if not found:
            raise InputError(f"--removed {ref}: there is no such object; write KIND/NAMESPACE/NAME")
        gone |= set(map(id, found))
        uids |= {obj.metadata.uid for obj in found}
    while owned := [
        obj for obj in every if id(obj) not in gone and any(one.uid in uids for one in obj.metadata.owner_references)
    ]:  # fmt: skip
        gone |= set(map(id, owned))
        uids |= {obj.metadata.uid for obj in owned}
    slots: dict[str, Any] = {slot: tuple(obj for obj in getattr(given, slot) if id(obj) not in gone) for slot in _READ_SLOTS}
    return with_fields(given, **slots)


def _joined(before: ClusterInput, later: ClusterInput) -> WrittenObjects | None:
    """Return what admission policies read of two inputs, of which the later one replaces objects of the earlier one."""
    first, second = before.written or WrittenObjects(), later.written or WrittenObjects()
    policies = {**first.policies, **second.policies}
    if not policies:
        return None
    known = {(slot, *obj.key.rpartition("/")[::2]): obj for slot in _READ_SLOTS for obj in getattr(before, slot)}
    earlier = {key: first.objects.get(key) or msgspec.json.encode(known[key]) for key in second.objects if key in known}
    return WrittenObjects(
        policies, {**first.parameters, **second.parameters}, {**first.objects, **second.objects}, {**first.replaced, **earlier}
    )


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
        return scaling.scale_object(cluster, current, now)
    return cluster


def rolled_out(cluster: ClusterInput, old: Any) -> ClusterInput:
    """Return the cluster without the pods and replica sets of a workload's earlier template; new ones are created later."""
    if not isinstance(old, Deployment):
        return scaling.without_running(cluster, Claimed(cluster.pods).of(type(old).__name__, old.metadata))
    gone = {one.metadata.uid for one in Claimed(cluster.replica_sets).of("Deployment", old.metadata)}
    pods = list(_pods_of(cluster, old, gone))
    kept = tuple(one for one in cluster.replica_sets if one.metadata.uid not in gone)
    return scaling.without_running(with_fields(cluster, replica_sets=kept), pods)


def _pods_of(cluster: ClusterInput, deployment: Deployment, sets: Collection[str]) -> Iterator[Pod]:
    """Yield the pods of a deployment: of its replica sets, or with the names that those would have."""
    for pod in cluster.pods:
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != "ReplicaSet" or pod.namespace != deployment.namespace:
            continue
        if owner.uid in sets or deployment_name(pod) == deployment.name:
            yield pod


# -- workload edits ----------------------------------------------------------------------------------------------------
# Edits of workloads: ``deployment/web replicas=5``, ``statefulset/shop/db cpu=500m``.
#
# A field of the pod template is edited like the field of a pod. All pods of the workload are then created again, as after its
# rollout, even where a real cluster would keep old pods.

_HEAD: Final = re.compile(r"\s*([A-Za-z]+)/([^\s=]+)\s+(\S.*?)\s*", re.DOTALL)
_TEMPLATE_SLOTS: Final = {kind.name: kind.slot for kind in KINDS if kind.name in WORKLOAD_KINDS.values()}
#: Fields of a pod that its template does not have, or that admission sets.
_OF_PODS_ONLY: Final = frozenset({"nodeName", "priority", "evict"})
#: Fields of the template's spec that are set as they are.
_PLAIN: Final = {"priorityClassName": "priority_class_name", "runtimeClassName": "runtime_class_name"}
_INSTEAD: Final = {"priority": "; set priorityClassName"}
_SELECTOR: Final = re.compile(r"nodeSelector\.([^=]+)=(.*)")


class WorkloadEdit(Struct, frozen=True):
    """A workload and one field to set. An empty ``namespace`` stands for any."""

    kind: str
    namespace: str
    name: str
    field: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.lower()}/{where}{self.name} {self.field}"


def is_workload_edit(text: str) -> bool:
    """Return True for text that begins like an edit of a workload."""
    found = _HEAD.fullmatch(text)
    return found is not None and "\n" not in text and found[1].lower() in WORKLOAD_KINDS


def parse_workload_edit(text: str) -> WorkloadEdit:
    """Read an edit, and check its field.

    Raises  InputError
    """
    found = _HEAD.fullmatch(text)
    kind = WORKLOAD_KINDS.get(found[1].lower(), "") if found else ""
    names = found[2].split("/") if found else []
    if found is None or not kind or len(names) not in {1, 2} or not all(names):
        raise InputError(one_line(f"edit {text!r}: write 'KIND/NAME FIELD=VALUE', such as 'deployment/web replicas=5'"))
    edit = WorkloadEdit(kind, names[0] if len(names) == 2 else "", names[-1], found[3])
    if (asked := _scaled(edit)) is None:
        _edited(PodTemplateSpec(spec=PodSpec()), edit, check_only=True)
    else:
        scaling.parse_scaled(str(asked))
    return edit


def edit_workload(cluster: ClusterInput, edit: WorkloadEdit) -> ClusterInput:
    """Return the cluster with a workload changed, and without the pods of its earlier template.

    Raises  InputError
    """
    asked = _scaled(edit)
    if asked is not None:
        return scaling.scale(cluster, asked)
    found = scaling.found_workload(
        getattr(cluster, _TEMPLATE_SLOTS[edit.kind]), edit.kind, edit.namespace, edit.name, str(edit)
    )
    owner = controller_of(found.metadata)
    if owner is not None and owner.kind in _TEMPLATE_SLOTS:
        raise InputError(one_line(f"{edit}: {owner.kind} {owner.name} decides on its pods; edit that"))
    changed = _with_template(found, _edited(_template(found), edit))
    fields: dict[str, Any] = {
        _TEMPLATE_SLOTS[edit.kind]: tuple(
            changed if one is found else one for one in getattr(cluster, _TEMPLATE_SLOTS[edit.kind])
        )
    }
    kept = scaling.without_jobs(cluster, found) if isinstance(found, CronJob) else rolled_out(cluster, found)
    return with_fields(kept, **fields)


def _scaled(edit: WorkloadEdit) -> scaling.Scaled | None:
    field, _, number = edit.field.partition("=")
    if field not in {"replicas", "parallelism"} or (field == "parallelism") != (edit.kind in {"Job", "CronJob"}):
        return None
    return scaling.parse_scaled(f"{edit.kind}/{edit.namespace + '/' if edit.namespace else ''}{edit.name}={number}")


def _template(found: Any) -> PodTemplateSpec:
    template: PodTemplateSpec = found.spec.job_template.spec.template if isinstance(found, CronJob) else found.spec.template
    return template


def _with_template(found: Any, template: PodTemplateSpec) -> Any:
    if not isinstance(found, CronJob):
        return replace(found, spec=replace(found.spec, template=template))
    job = found.spec.job_template
    return replace(found, spec=replace(found.spec, job_template=replace(job, spec=replace(job.spec, template=template))))


def _edited(template: PodTemplateSpec, edit: WorkloadEdit, *, check_only: bool = False) -> PodTemplateSpec:
    field, equals, value = edit.field.partition("=")
    if equals and field in _PLAIN:
        return replace(template, spec=replace(template.spec, **{_PLAIN[field]: value}))
    selected = _SELECTOR.fullmatch(edit.field)
    if selected:
        more = {**template.spec.node_selector, selected[1]: selected[2]}
        return replace(template, spec=replace(template.spec, node_selector=more))
    if field in _OF_PODS_ONLY:
        raise InputError(one_line(f"edit '{edit}': {field} is of a pod, not of a template{_INSTEAD.get(field, '')}"))
    target = f"pod/{edit.namespace or 'default'}/{edit.name}"
    also = ("replicas=N", *(f"{one}=VALUE" for one in _PLAIN))
    change = parse_field("pod", target, edit.field, str(edit), also=also, what=edit.kind.lower())
    if check_only:
        return template
    pod = Pod(metadata=ObjectMeta(name=edit.name, namespace=edit.namespace or "default"), spec=template.spec)
    (changed,) = apply_all([pod], [change])
    assert isinstance(changed, Pod)
    return replace(template, spec=changed.spec)


#: What ``Cluster.apply`` takes: a change, an edit such as ``node/n1 unschedulable=false``, or objects to create or patch.
ChangeLike: TypeAlias = Change | WorkloadEdit | ObjectLike

_WORKLOADS = (Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, ReplicationController)
_SLOTS = {kind.type: kind.slot for kind in KINDS}


class ObjectEdit(Struct, frozen=True):
    """Steps to make, and the objects that the scheduler does not read, after the edit (None: unchanged)."""

    steps: tuple[Step, ...]
    aside: Mapping[str, Object] | None = None


#: Changes of a node after which more DaemonSets may run a pod there.
DRAWING: Final = frozenset(["label", "relabel", "untaint"])


class ObjectEdits:
    """Translates edits of one cluster in its present state."""

    def __init__(self, inventory: Inventory, custom: Iterable[str] = (), *, quota: bool = True) -> None:
        self._inventory = inventory
        self._custom = tuple(custom)
        self._quota = quota

    def add(self, given: Iterable[ObjectLike]) -> ObjectEdit:
        """Add objects that are new.

        Raises  InputError for objects that cannot be read or that exist
        """
        read = read_given(given, custom=self._custom)
        fresh = self._explicit(read)
        for obj in fresh:
            if self._inventory.like(obj) is not None:
                raise InputError(f"{key_of(obj)} exists already; apply() changes it")
        return self._told(self._admitted(fresh))

    def remove(self, refs: Iterable[str | Object]) -> ObjectEdit:
        """Delete objects. Pods are deleted at once, and controllers do not replace them.

        Raises  InputError for an object that does not exist
        """
        aside = dict(self._inventory.aside)
        steps: list[Step] = []
        for obj in [self._inventory.get(ref) for ref in refs]:
            if isinstance(obj, Pod):
                steps.append(Deleted(obj.metadata.uid))
            elif type(obj) in ASIDE:
                del aside[key_of(obj)]
            else:
                steps.append(Told((Gone(obj),)))
        return ObjectEdit(tuple(steps), aside)

    def bind(self, pod: Pod, node: str) -> ObjectEdit:
        """Bind a pod to a node, without checking whether it fits.

        Raises  InputError if there is no such node; StateError if the pod is on a node already
        """
        if self._inventory.find(Node, "", node) is None:
            raise InputError(f"there is no node {node}")
        if pod.spec.node_name:
            raise StateError(f"pod {pod.key} is on {pod.spec.node_name} already; it cannot be bound to {node}")
        status = replace(pod.status, nominated_node_name="")
        return ObjectEdit((Told((Seen(replace(pod, spec=replace(pod.spec, node_name=node), status=status)),)),))

    def apply(self, change: ChangeLike) -> ObjectEdit:
        """Change, patch or create objects.

        Raises  InputError for changes that cannot be read or applied
        """
        if isinstance(change, Change):
            return self._changed(change)
        if isinstance(change, Object):
            return self._replaced([change])
        if isinstance(change, WorkloadEdit):
            return self._of_workload(change)
        # documents are merged into the objects of their names, as by ``kubectl patch``
        return self._replaced([merged for found in documents(change, "patch") for merged in self._merged(found)])

    # -- changes ---------------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> ObjectEdit:
        if change.verb == "add-node":
            before = self._nodes_beside(change)
        elif change.target.startswith("persistentvolumeclaim/"):
            space, _, name = change.target.removeprefix("persistentvolumeclaim/").partition("/")
            claim = self._inventory.find(PersistentVolumeClaim, space, name)
            before = [*([] if claim is None else [claim]), *self._inventory.all_of(StorageClass)]
        elif change.verb == "prefer":  # it changes the other pods of the workload as well
            before = list(self._inventory.simulation.pods.values())
        else:
            before = [self._inventory.get(change.target)]
        after = apply(before, change)
        if len(before) == len(after) == 1 and before[0].uid == after[0].uid:
            old, new = before[0], after[0]
            if change.verb in DRAWING and isinstance(old, Node) and isinstance(new, Node):
                return self._told([new, *drawn_daemon_pods(old, new, policies_of(self._inventory.aside.values()))])
            return ObjectEdit((Told(tuple(Seen(_unversioned(obj)) for obj in after if obj is not before[0])),))
        if change.verb == "add-node":
            known = {id(node) for node in before}
            return self._told(self._admitted([node for node in after if id(node) not in known]))
        known, unchanged = set(map(id, before)), set(map(id, after))
        come = [obj for obj in after if id(obj) not in known]
        keys = set(map(key_of, come))
        gone = [obj for obj in before if id(obj) not in unchanged and key_of(obj) not in keys]
        return ObjectEdit((Told((*map(Gone, gone), *(Seen(_unversioned(obj)) for obj in come))),))

    def _nodes_beside(self, change: Change) -> list[Object]:
        """Return the template of a new node, and a node that has its name already; all nodes if the template does not exist."""
        pattern = self._inventory.find(Node, "", str(change.new).removeprefix("like "))
        if pattern is None:
            return list(self._inventory.all_of(Node))
        taken = self._inventory.find(Node, "", change.target.removeprefix("node/"))
        return [pattern] if taken is None else [pattern, taken]

    def _of_workload(self, edit: WorkloadEdit) -> ObjectEdit:
        """Change a workload: its pods are deleted and created again, or its number of pods changes."""
        present = present_objects(self._inventory.aside, self._inventory.simulation)
        before = {key_of(obj): obj for obj in present}
        whole = edit_workload(cluster_input(before.values()), edit)
        kept = {key_of(obj) for obj in _objects(whole)}
        after = {key_of(obj): obj for obj in _objects(create_missing_pods(whole, quota=self._quota)[0])}
        gone = [obj for key, obj in before.items() if key not in kept]
        taken = {obj.metadata.uid for obj in gone}
        new = (obj for key, obj in after.items() if key not in kept or (before.get(key) is not obj and before.get(key) != obj))
        come = self._told(_renewed(obj, taken) for obj in new)
        aside = {key: obj for key, obj in (come.aside or {}).items() if key in after}
        steps = [
            Deleted(obj.metadata.uid) if isinstance(obj, Pod) else Told((Gone(obj),)) for obj in gone if type(obj) not in ASIDE
        ]
        return ObjectEdit((*steps, *come.steps), aside)

    # -- patches ---------------------------------------------------------------------------------------------------------

    def _replaced(self, given: Iterable[ObjectLike]) -> ObjectEdit:
        """Replace existing objects of the same names; add the others."""
        kept = [self._with_uid(obj) for obj in self._explicit(read_given(given, custom=self._custom))]
        return self._told([obj for obj in self._admitted(kept) if obj != self._inventory.like(obj)])

    def _explicit(self, read: ClusterInput) -> list[Object]:
        """Return the objects that were read, without existing namespaces that the reader added for other objects."""
        return [obj for obj in _objects(read) if not is_implied(obj) or self._inventory.like(obj) is None]

    def _with_uid(self, obj: Any) -> Object:
        known: Any = self._inventory.like(obj)
        if known is not None and known.metadata.uid != obj.metadata.uid:
            obj = replace(obj, metadata=replace(obj.metadata, uid=known.metadata.uid))
        kept: Object = obj
        return kept

    def _merged(self, found: FoundObject) -> Iterator[ObjectLike]:
        kind = find_kind(found.api_version, found.kind)
        plain = found.payload if isinstance(found.payload, dict) else msgspec.json.decode(found.payload)
        metadata = plain.get("metadata") or {}
        if kind is None or not isinstance(metadata, dict):
            yield plain
            return
        space = (metadata.get("namespace") or "default") if kind.namespaced else ""
        known = self._inventory.find(kind.type, space, str(metadata.get("name") or ""))
        if known is None:
            yield plain
            return
        patch = {name: value for name, value in plain.items() if name not in {"apiVersion", "kind"}}
        merged = strategic_merge(kind_schema(served_as(kind)), msgspec.to_builtins(known), patch)
        yield decode(merged, kind.type, found.where)

    # -- admission -------------------------------------------------------------------------------------------------------

    def _admitted(self, objects: list[Object]) -> list[Object]:
        """Return objects after admission, with the pods and claims that are created for workloads among them."""
        if all(isinstance(obj, Node) and self._inventory.like(obj) is None for obj in objects):
            added = [obj for obj in objects if isinstance(obj, Node)]
            return [*objects, *daemon_pods(added, policies_of(self._inventory.aside.values()))]
        makes_pods = any(isinstance(obj, _WORKLOADS) for obj in objects)
        daemons = any(isinstance(obj, DaemonSet) for obj in self._inventory.aside.values())
        if makes_pods or (daemons and any(isinstance(obj, Node) for obj in objects)):
            return self._expanded(objects)
        if all(isinstance(obj, Node) for obj in objects):  # admission changes no nodes
            return objects
        given = {(type(one), key_of(one)) for one in objects}
        around = [obj for obj in present_policies(self._inventory) if (type(obj), key_of(obj)) not in given]
        admitted = admit(cluster_input([*around, *objects]))
        known = {id(obj) for obj in around}
        return [obj for obj in _objects(admitted) if id(obj) not in known]

    def _expanded(self, objects: list[Object]) -> list[Object]:
        keys = {key_of(obj) for obj in objects}
        present = present_objects(self._inventory.aside, self._inventory.simulation)
        before = {key_of(obj): obj for obj in present}
        whole = cluster_input([*(obj for key, obj in before.items() if key not in keys), *objects])
        after = _objects(create_missing_pods(whole, quota=self._quota)[0])
        return [obj for obj in after if before.get(key_of(obj)) is not obj and before.get(key_of(obj)) != obj]

    def _told(self, objects: Iterable[Object]) -> ObjectEdit:
        aside = dict(self._inventory.aside)
        seen: list[Seen | Gone] = []
        for obj in objects:
            if type(obj) in ASIDE:
                aside[key_of(obj)] = obj
            else:
                seen.append(Seen(_unversioned(obj)))
        return ObjectEdit((Told(tuple(seen)),) if seen else (), aside)


def _unversioned(obj: Object) -> Object:
    """Return an object without the version of the API server: the scheduler ignores updates that do not change it."""
    metadata = obj.metadata
    if not metadata.resource_version:
        return obj
    fresh: Any = obj
    edited: Object = replace(fresh, metadata=replace(metadata, resource_version=""))
    return edited


def _renewed(obj: Object, taken: Collection[str]) -> Object:
    """Return a new pod with the name of a deleted one and a new UID."""
    if not isinstance(obj, Pod) or obj.metadata.uid not in taken:
        return obj
    uid = stable_uid("Pod", obj.metadata.uid, "made again")
    return replace(obj, metadata=replace(obj.metadata, uid=uid))


def present_policies(inventory: Inventory) -> Iterator[Object]:
    """Yield the objects that admission reads: those that the scheduler does not read, except workloads, and storage classes."""
    yield from (obj for obj in inventory.aside.values() if not isinstance(obj, _WORKLOADS))
    cluster = inventory.simulation.scheduler.cluster
    yield from (obj for kind in cluster.kinds if kind.__name__ == "StorageClass" for obj in cluster.objects(kind).values())


def _objects(cluster: ClusterInput) -> list[Object]:
    """Return every object of a cluster, first those that the scheduler does not read."""
    aside = [obj for kind in KINDS if kind.type in ASIDE for obj in getattr(cluster, kind.slot)]
    return [*aside, *objects_of(cluster)]


#: An edit of any kind: ``deployment/web replicas=3``, but not a path or a document.
_LIKE_AN_EDIT: Final = re.compile(r"[a-z]+/[^\s=]+ [A-Za-z][\w.\[\]]*=[^\n]*")


def read_change(change: ChangeLike) -> ChangeLike:
    """Parse the text of an edit into a change; return anything else unchanged.

    Raises  InputError for an edit that cannot be read
    """
    if isinstance(change, str) and is_workload_edit(change):
        return parse_workload_edit(change)
    return parse_edit(change) if isinstance(change, str) and _is_edit(change) else change


def _is_edit(text: str) -> bool:
    head, space, _ = text.partition(" ")
    of_known_kind = bool(space) and "\n" not in text and head.split("/")[0] in {"pod", "node", "config"}
    return of_known_kind or _LIKE_AN_EDIT.fullmatch(text) is not None
