"""Field management: which manager owns which field in ``metadata.managedFields``, and server-side apply.

A manager is identified by its name, its operation (Apply or Update), its subresource and, for Update, its API version. An
update that changes a field takes it from all other managers. An apply that changes a field which another manager owns is a
conflict, unless forced. A field that a manager stops applying is removed if no other manager owns it.

Source  apimachinery, pkg/util/managedfields/internal; structured-merge-diff, merge/update.go
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import ApiError, Cause
from moorage.api.fields import field_merge, fieldsets
from moorage.api.fields.field_merge import Differences, compare, field_set, merge, named_members, remove
from moorage.api.fields.fieldsets import FieldSet, difference, intersection, ordered, union, union_all
from moorage.api.schema.field_types import Struct
from moorage.api.validation.metadata import MAX_ANNOTATIONS

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Number of Update managers that are kept separate; older ones are merged.
_MAX_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"
_BEFORE: Final = "before-first-apply"
_MAX_NAME: Final = 128
_NOTHING: Final[FieldSet] = {}
#: Fields that are never managed.
_STRIPPED_METADATA: Final = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip
_STRIPPED: Final[FieldSet] = {
    "f:apiVersion": {}, "f:kind": {}, "f:metadata": {".": {}, **{f"f:{name}": {} for name in _STRIPPED_METADATA}},
}  # fmt: skip


class FieldManager(NamedTuple):
    """The identity of a field manager. ``version`` is empty for managers that apply."""

    name: str
    applies: bool = False
    version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        return _quoted(self.name) + (f" with subresource {_quoted(self.subresource)}" if self.subresource else "")

    @property
    def described(self) -> str:
        return str(self) if self.applies else f"{self} using {self.version}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Entry:
    fields: FieldSet
    version: str
    time: str = ""


_Managed = dict[FieldManager, _Entry]


def manager_of(given: str, user_agent: str) -> str:
    """Return the name of a manager: the ``fieldManager`` parameter, or the user agent's first part."""
    if given:
        return given
    name = "".join(letter for letter in user_agent.partition("/")[0] if letter.isprintable())
    return name.encode()[:_MAX_NAME].decode(errors="ignore") or "unknown"


# -- reading and writing managedFields ---------------------------------------------------------------------------------


def _read(entries: Any) -> _Managed | None:
    """Return an object's managers from its ``managedFields``, or None if they are invalid."""
    managed: _Managed = {}
    for entry in entries if isinstance(entries, list) else ():
        fields = entry.get("fieldsV1") or {}
        version, operation = entry.get("apiVersion", ""), entry.get("operation")
        is_valid = operation in {"Apply", "Update"} and version and entry.get("fieldsType") == "FieldsV1"
        if not is_valid or not fieldsets.is_field_set(fields):
            return None
        applies = operation == "Apply"
        manager = FieldManager(entry.get("manager", ""), applies, "" if applies else version, entry.get("subresource", ""))
        managed[manager] = _Entry(fields, version, entry.get("time", ""))
    return managed


def _write(document: Document, managed: _Managed) -> None:
    order = ("operation", "time", "manager", "apiVersion", "subresource")
    entries = [_entry(manager, entry) for manager, entry in managed.items()]
    entries.sort(key=lambda one: tuple(one.get(name, "") for name in order))
    if entries:
        document["metadata"]["managedFields"] = entries
    else:
        document["metadata"].pop("managedFields", None)


def _entry(manager: FieldManager, entry: _Entry) -> Document:
    written: Document = {
        "manager": manager.name, "operation": "Apply" if manager.applies else "Update", "apiVersion": entry.version,
        "time": entry.time, "fieldsType": "FieldsV1", "fieldsV1": entry.fields, "subresource": manager.subresource,
    }  # fmt: skip
    return {name: value for name, value in written.items() if value or name in {"fieldsV1", "manager"}}


def _managers_before(live: Document, new: Document, is_sub: bool) -> _Managed:
    """Return the managers before a change. A client may send its own list, and an empty list resets it."""
    sent = None if is_sub else new["metadata"].get("managedFields")
    if sent in ([], [{}]):
        return {}
    return (_read(sent) if sent else None) or _read(live["metadata"].get("managedFields")) or {}


def _bare(document: Document) -> Document:
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    return {**document, "metadata": metadata}


def equal_but_times(old: Document, new: Document) -> bool:
    """Return True if two versions of an object differ at most in the timestamps of their managers."""
    if _bare(old) != _bare(new):
        return False
    managed = (one["metadata"].get("managedFields") or () for one in (old, new))
    before, after = ([{**entry, "time": ""} for entry in entries] for entries in managed)
    return before == after


# -- updates -----------------------------------------------------------------------------------------------------------


def fields_not_written(kind: ServedKind, subresource: str) -> FieldSet:
    """Return the fields that a write through this subresource ignores, so that it does not make the writer their manager.

    Source  kubernetes, pkg/registry/*/strategy.go (GetResetFields)
    """
    if kind.native == "CertificateSigningRequest":
        return {**_SPEC, **_OF_REQUESTS.get(subresource, _STATUS)}
    if subresource == "status":
        return {**_SPEC, **_OF_STATUS.get(kind.native, {})} if kind.custom is None else _SPEC
    return _STATUS if kind.has_status else _NOTHING


_STATUS: Final[FieldSet] = {"f:status": {}}
_SPEC: Final[FieldSet] = {"f:spec": {}}
_METADATA: Final[FieldSet] = {"f:metadata": {}}
#: What the subresources of certificate requests ignore of the status.
_OF_REQUESTS: Final[Mapping[str, FieldSet]] = {
    "status": {"f:status": {"f:conditions": {}}}, "approval": {"f:status": {"f:certificate": {}}},
}  # fmt: skip
#: What writes of the status ignore of the metadata.
_OF_STATUS: Final[Mapping[str, FieldSet]] = {
    **dict.fromkeys(
        ("CSINode", "CompositePodGroup", "DeviceTaintRule", "Eviction", "EvictionRequest", "FlowSchema",
         "PodCertificateRequest", "PodGroup", "PriorityLevelConfiguration", "ResourceClaim", "ResourcePoolStatusRequest",
         "ServiceCIDR", "StorageVersion", "StorageVersionMigration", "ValidatingAdmissionPolicy", "VolumeAttachment"),
        _METADATA,
    ),
    "Deployment": {"f:metadata": {"f:labels": {}}},
    "Pod": {"f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}},
}  # fmt: skip


def track(
    shape: Struct, live: Document | None, new: Document, manager: FieldManager, now: str, *, ignored: FieldSet = _NOTHING
) -> None:
    """Record in a new version of an object which manager changed its fields. ``live`` is None on create.

    An object without managers stays so until the first apply.
    """
    managed = _managers_before(live or {"metadata": {}}, new, bool(manager.subresource))
    if live is None and not managed:
        changed = _not_ignored(compare(shape, {"metadata": {}}, _bare(new)), ignored)
        fields = difference(union(changed.added, changed.modified), _STRIPPED)
        managed = {manager: _Entry(ordered(fields), manager.version, now)} if fields else {}
    elif managed or live is None:
        changed = compare(shape, _bare(live) if live else {"metadata": {}}, _bare(new))
        changed = _not_ignored(changed, ignored)
        _update(managed, changed, manager, now)
        _merge_oldest(managed)
    _write(new, managed)


def _not_ignored(changed: Differences, ignored: FieldSet) -> Differences:
    return Differences(*(fieldsets.without(one, ignored) for one in changed)) if ignored else changed


def _update(managed: _Managed, changed: Differences, manager: FieldManager, now: str) -> None:
    if changed.is_none:
        return
    version = manager.version
    _disown(managed, changed)
    mine = difference(union(changed.added, changed.modified), _STRIPPED)
    if mine:
        held = managed.get(manager)
        managed[manager] = _Entry(ordered(union(mine, held.fields) if held else mine), version, now)


def _disown(managed: _Managed, changed: Differences, but: FieldManager | None = None) -> None:
    """Remove changed and deleted fields from all other managers."""
    gone = union(union(changed.added, changed.modified), changed.removed)
    for manager in [*managed]:
        if manager != but:
            left = difference(managed[manager].fields, gone)
            if left:
                managed[manager] = replace(managed[manager], fields=left)
            else:
                del managed[manager]


def _merge_oldest(managed: _Managed) -> None:
    """Merge the oldest Update managers by version if there are too many."""
    updaters = sorted((one for one in managed if not one.applies), key=lambda one: (managed[one].time, one))
    firsts: dict[str, FieldManager] = {}
    merged_entries: dict[FieldManager, list[_Entry]] = {}
    over = len(updaters) - _MAX_UPDATERS
    for manager in updaters:
        if over <= 0:
            break
        entry = managed[manager]
        if entry.version not in firsts:
            firsts[entry.version] = manager
            continue
        bucket = FieldManager(_ANCIENT, version=entry.version)
        if bucket not in merged_entries:
            merged_entries[bucket] = [managed[bucket] if bucket in managed else managed.pop(firsts[entry.version])]
        merged_entries[bucket].append(entry)
        managed.pop(manager, None)
        over -= 1
    for bucket, entries in merged_entries.items():
        managed[bucket] = _Entry(ordered(union_all(one.fields for one in entries)), bucket.version, entries[-1].time)


# -- apply -------------------------------------------------------------------------------------------------------------


class _Applied(NamedTuple):
    merged: Document
    managed: _Managed
    changed: Differences


class _Conflicts(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, found: Mapping[FieldManager, FieldSet]) -> None:
        self.found = found


def apply(
    shape: Struct, live: Document | None, config: Document, manager: FieldManager, now: str, *,
    force: bool = False, ignored: FieldSet = _NOTHING,
) -> Document:  # fmt: skip
    """Return an object with an apply configuration merged in and its managers updated. ``live`` of None creates a new object.

    ``config`` has passed ``field_merge.type_faults``. Fields in ``ignored`` do not get a manager.

    Raises  ApiError 409 with a cause for every field that another manager owns with a different value
    """
    held = live or {"metadata": {}}
    managed = _read(held["metadata"].get("managedFields")) or {}
    bare = _bare(held)
    if live is not None and not managed:
        before = FieldManager(_BEFORE, version=_version(config))
        _update(managed, _not_ignored(compare(shape, {}, bare), ignored), before, now)
    try:
        applied = _apply_kubectl(_Task(shape, bare, config, managed, manager, ignored), force=force)
    except _Conflicts as conflicts:
        raise _refusal(conflicts.found) from None
    # An apply without changes keeps the object, including the order of its lists, and the manager's timestamp.
    document = bare if applied.changed.is_none else applied.merged
    if manager in applied.managed and not applied.changed.is_none:
        applied.managed[manager] = replace(applied.managed[manager], time=now)
    if manager.name == "kubectl":
        _renew_last_applied(document, config)
    document = {**document, "metadata": {**(document.get("metadata") or {})}}
    _write(document, applied.managed)
    return document


class _Task(NamedTuple):
    shape: Struct
    live: Document
    config: Document
    managed: _Managed
    manager: FieldManager
    ignored: FieldSet


def _apply_kubectl(task: _Task, *, force: bool) -> _Applied:
    """Apply. For kubectl, fields that its last-applied annotation covers do not conflict."""
    try:
        return _apply(task, force=force)
    except _Conflicts as conflicts:
        allowed = _last_applied(task) if task.manager.name == "kubectl" else {}
        left = {one: rest for one, fields in conflicts.found.items() if (rest := difference(fields, allowed))}
        if left:
            raise _Conflicts(left) from None
        return _apply(task, force=True)


def _apply(task: _Task, *, force: bool) -> _Applied:
    shape, live, config, managed, manager, ignored = task
    last = managed.get(manager)
    mine = ordered(fieldsets.without(field_set(shape, config), ignored))
    after = {**managed, manager: _Entry(mine, _version(config), last.time if last else "")}
    merged = merge(shape, live, config)
    if last is not None and last.fields:
        merged = _prune(shape, merged, after, last.fields)
    every = compare(shape, live, merged)
    changed = _not_ignored(every, ignored)
    touched = union(changed.added, changed.modified)
    conflicts: dict[FieldManager, FieldSet] = {}
    for one, entry in after.items():
        if one != manager and (found := intersection(entry.fields, touched)):
            conflicts[one] = found
    if conflicts and not force:
        raise _Conflicts(conflicts)
    _disown(after, changed, but=manager)
    stripped = difference(mine, _STRIPPED)
    if stripped:
        after[manager] = replace(after[manager], fields=stripped)
    else:
        del after[manager]
    return _Applied(merged, after, every)


def _version(config: Document) -> str:
    return str(config.get("apiVersion", ""))


def _prune(shape: Struct, merged: Document, managed: _Managed, last: FieldSet) -> Document:
    """Remove fields that the manager no longer applies, unless another manager owns them or a field below them."""
    before = named_members(shape, last)
    pruned = remove(shape, merged, before)
    everything = named_members(shape, field_set(shape, merged))
    owned = named_members(shape, union_all(entry.fields for entry in managed.values()))
    kept = union(named_members(shape, field_set(shape, pruned)), owned)
    pruned = remove(shape, merged, difference(everything, kept))
    left = named_members(shape, field_set(shape, pruned))
    found: Document = remove(shape, merged, intersection(difference(everything, left), before)) or {}
    return found


# -- conflicts ---------------------------------------------------------------------------------------------------------


def _refusal(found: Mapping[FieldManager, FieldSet]) -> ApiError:
    each = [(one, fieldsets.shown(path)) for one in sorted(found, key=_sort_key) for path in fieldsets.paths(found[one])]
    causes = [Cause("FieldManagerConflict", f"conflict with {manager.described}", path) for manager, path in each]
    if len(each) == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines = "\n".join(_lines(each))
        message = f"Apply failed with {len(each)} conflicts: {lines}"
    return ApiError(409, "Conflict", message, causes=causes)


def _sort_key(manager: FieldManager) -> str:
    """Return the JSON by which kube-apiserver sorts managers."""
    shown_as = {
        "manager": manager.name, "operation": "Apply" if manager.applies else "Update", "apiVersion": manager.version,
        "subresource": manager.subresource,
    }  # fmt: skip
    return json.dumps({name: value for name, value in shown_as.items() if value})


def _lines(each: Iterable[tuple[FieldManager, str]]) -> Iterator[str]:
    last = None
    for manager, path in each:
        if manager != last:
            yield f"conflicts with {manager.described}:"
            last = manager
        yield f"- {path}"


# -- client-side apply -------------------------------------------------------------------------------------------------


def _last_applied(task: _Task) -> FieldSet:
    """Return the fields of kubectl's last client-side apply that have not changed since."""
    shape, live = task.shape, task.live
    try:
        last = json.loads(((live["metadata"].get("annotations")) or {}).get(LAST_APPLIED) or "null")
    except (ValueError, RecursionError):
        return {}
    if (
        not isinstance(last, dict)
        or last.get("apiVersion") != _version(task.config)
        or any(field_merge.type_faults(shape, last))
    ):
        return {}
    changed = compare(shape, last, live)
    held = field_set(shape, last)
    return difference(held, union(union(changed.added, changed.modified), changed.removed))


def _renew_last_applied(document: Document, config: Document) -> None:
    metadata = document.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    own = {key: value for key, value in (config["metadata"].get("annotations") or {}).items() if key != LAST_APPLIED}
    named = {key: value for key, value in config["metadata"].items() if key != "annotations"}
    bare = {**config, "metadata": {**named, **({"annotations": own} if own else {})}}
    text = json.dumps(bare, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"
    renewed = {**annotations, LAST_APPLIED: text}
    if sum(len(key.encode()) + len(value.encode()) for key, value in renewed.items()) > MAX_ANNOTATIONS:
        del renewed[LAST_APPLIED]
    document["metadata"] = {**metadata, "annotations": renewed}
