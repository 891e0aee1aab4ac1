"""Validation of updates: which fields of an existing object may change.

Source  kubernetes, pkg/apis/*/validation/validation.go, the functions that validate updates
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.documents.records import is_condition_true
from moorage.api.documents.served_kinds import Document, ServedKind, set_or_drop
from moorage.api.documents.statuses import ApiError, invalid
from moorage.api.feature_gates import FeatureGates
from moorage.api.quantity import parse
from moorage.api.schema.go_structs import as_sent, changed_lines, go_value
from moorage.api.schema.schemas import schema
from moorage.api.validation.rule_tables import Holders, check, field_of
from moorage.errors import Fault
from moorage.rules.admission.definition_validation import definition_faults
from moorage.rules.admission.group_changes import as_checked, group_changes, is_checked_anew
from moorage.rules.admission.pod_checks import RULES

_FIXED_FIELD: Final = "field is immutable"
_FIXED_ROLE: Final = "cannot change roleRef"
_POD_UPDATE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def needs_version(kind: ServedKind) -> bool:
    """Return True for kinds that can only be replaced with a resource version (no unconditional update)."""
    return kind.custom is not None or kind.needs_version


def unversioned(kind: ServedKind, name: str) -> ApiError:
    """Return the error for a replacement without the resource version that its kind needs."""
    fault = Fault("Invalid value", "metadata.resourceVersion", "must be specified for an update", 0)
    return invalid(kind.resource, kind.group, name, [fault])


#: The kinds whose fixed fields messages show with their values up to 1.36.
_SHOWN_BEFORE: Final = frozenset(["RuntimeClass", "StorageClass"])


#: The maps of bytes of immutable kinds: an empty one differs from an absent one.
_BYTES: Final[Mapping[str, str]] = {"ConfigMap": "binaryData", "Secret": "data"}


def change_faults(kind: ServedKind, old: Document, new: Document, gates: FeatureGates) -> Iterator[Fault]:
    """Yield the faults of an update that changes immutable fields."""
    for fault in _change_faults(kind, old, new, gates):
        if fault.detail == _FIXED_ROLE and gates.emulated.groups_as_one:
            fault = replace(fault, detail=_FIXED_FIELD)  # noqa: PLW2901 - the text since 1.37
        if kind.native in _SHOWN_BEFORE and fault.detail == _FIXED_FIELD and not gates.emulated.groups_as_one:
            fault = replace(fault, value=field_of(new, fault.field))  # noqa: PLW2901 - null since 1.37
        yield fault


def _change_faults(kind: ServedKind, old: Document, new: Document, gates: FeatureGates) -> Iterator[Fault]:
    if is_checked_anew(kind, gates):
        yield from group_changes(kind, as_checked(kind, old), as_checked(kind, new))
        return
    if kind.native in _FROZEN:
        yield from _frozen(kind, old, new, gates)
        return
    if RULES.has(type_name := f"Changed{kind.native}") and not (kind.native == "Event" and kind.group == ""):
        yield from RULES.faults(type_name, new, "", old)
    if (
        (name := _BYTES.get(kind.native))
        and old.get("immutable")
        and old.get(name) is None
        and as_sent(new.get(name), name) == {}
    ):
        yield Fault("Forbidden", name, "field is immutable when `immutable` is set")
    if kind.native == "CustomResourceDefinition":
        yield from definition_faults(old, new)
        return
    rule = _RULES.get(kind.native)
    if kind.native == "StatefulSet" and gates.emulated.groups_as_one:
        yield from RULES.faults("FixedStatefulSet", new, "", old)  # since 1.37 each field has its fault
    elif rule is not None:
        yield from rule(old, new)


# -- pods --------------------------------------------------------------------------------------------------------------


def _pod(old: Document, new: Document) -> Iterator[Fault]:
    before, after = _spec(old), copy.deepcopy(_spec(new))
    yield from _tokens(after)
    for part in ("containers", "initContainers"):
        if len(before.get(part) or ()) != len(after.get(part) or ()):
            yield Fault("Forbidden", f"spec.{part}", "pod updates may not add or remove containers")
            return
    was, deadline = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if was is not None and deadline is None:
        why = "must not update from a positive integer to nil value"
        yield Fault("Invalid value", "spec.activeDeadlineSeconds", why)
    elif was is not None and was < deadline:
        yield Fault("Invalid value", "spec.activeDeadlineSeconds", "must be less than or equal to previous value", deadline)
    yield from _tolerations(before.get("tolerations") or [], after.get("tolerations") or [])
    yield from _gates(before.get("schedulingGates") or [], after.get("schedulingGates") or [])
    if before.get("schedulingGates"):
        yield from _directives(before, after)
    # Revert the allowed changes, so that the remaining differences are faults.
    for part in ("containers", "initContainers"):
        for one, other in zip(before.get(part) or (), after.get(part) or (), strict=True):
            other["image"] = one.get("image")
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        after[name] = before.get(name)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        after["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if _without_empty(before) != _without_empty(after):
        yield Fault("Forbidden", "spec", f"{_POD_UPDATE}\n{changed_lines('core.PodSpec', before, as_sent(after, 'spec'))}")


def _tokens(spec: Document) -> Iterator[Fault]:
    """Yield the tokens of volumes of a pod without a service account."""
    for i, volume in enumerate(() if spec.get("serviceAccountName") else spec.get("volumes") or ()):
        for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                why = "must not be specified when serviceAccountName is not set"
                yield Fault("Forbidden", f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken", why)


def _spec(document: Document) -> Document:
    return document.get("spec") or {}


def _without_empty(spec: Document) -> Document:
    """Return a spec without empty fields, also of its containers and of what these request."""
    held = {**spec, "resources": _without_empty(spec.get("resources") or {})} if "resources" in spec else {**spec}
    for part in held.keys() & {"containers", "initContainers"}:
        held[part] = [_without_empty(one) for one in held[part] or ()]
    return {name: value for name, value in held.items() if value not in (None, [], {})}


def _tolerations(before: list[Document], after: list[Document]) -> Iterator[Fault]:
    def timeless(one: Document) -> frozenset[tuple[str, str]]:
        return frozenset((name, value) for name, value in one.items() if name != "tolerationSeconds")

    held = {timeless(one) for one in after}
    if any(timeless(one) not in held for one in before):
        yield Fault("Forbidden", "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _gates(before: list[Document], after: list[Document]) -> Iterator[Fault]:
    held = {gate.get("name") for gate in before}
    for i, gate in enumerate(after):
        if gate.get("name") not in held:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield Fault("Forbidden", f"spec.schedulingGates[{i}].name", why)


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _directives(before: Document, after: Document) -> Iterator[Fault]:
    """Yield changes of a gated pod's node selector and affinity that are not additional restrictions; revert allowed ones."""
    old, new = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if any(new.get(key) != value for key, value in old.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield Fault("Invalid value", "spec.nodeSelector", why, new)
    after["nodeSelector"] = before.get("nodeSelector")
    yield from _narrowed(field_of(before, f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms") or [],
                         field_of(after, f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms") or [])  # fmt: skip
    held = field_of(before, "affinity.nodeAffinity")
    affinity = {name: value for name, value in (after.get("affinity") or {}).items() if name != "nodeAffinity"}
    after["affinity"] = {**affinity, "nodeAffinity": held} if held is not None else affinity
    if not after["affinity"] and before.get("affinity") is None:
        after["affinity"] = None


_TERM: Final = "core.NodeSelectorTerm"


def _narrowed(before: list[Document], after: list[Document]) -> Iterator[Fault]:
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if before and len(before) != len(after):
        yield Fault(
            "Invalid value", path, "no additions/deletions to non-empty NodeSelectorTerms list are allowed", after or None
        )
        return
    parts = ("matchExpressions", "matchFields")
    for i, (old, new) in enumerate(zip(before, after, strict=False)):
        is_new = not any(old.get(part) for part in parts) and any(new.get(part) for part in parts)
        if is_new or any((new.get(part) or [])[: len(held)] != held for part in parts if (held := old.get(part))):
            why = "only additions are allowed (no mutations or deletions)"
            yield Fault("Invalid value", f"{path}[{i}]", why, go_value(_TERM, new))


def resize_faults(old: Document, new: Document, qos: Callable[[Document], str]) -> Iterator[Fault]:
    """Yield the faults of a pod resize, which may change only CPU and memory amounts of containers.

    ``qos`` returns the QoS class of a spec.
    """
    before, after = _spec(old), copy.deepcopy(_spec(new))
    if qos(before) != qos(after):
        yield Fault("Invalid value", "spec", "Pod QOS Class may not change as a result of resizing", qos(before))
    for part in ("containers", "initContainers"):
        held, given = before.get(part) or [], after.get(part) or []
        if moved := [*_moved(part, held, given)]:
            yield from moved
            return
        for i, (one, other) in enumerate(zip(held, given, strict=True)):
            if part == "containers" or one.get("restartPolicy") == "Always":
                yield from _resized(f"spec.{part}[{i}].resources", one, other)
    if _without_empty(before) != _without_empty(after):
        yield Fault("Forbidden", "spec", "only cpu and memory resources are mutable")


def _moved(part: str, held: list[Document], given: list[Document]) -> Iterator[Fault]:
    """Yield the faults of containers that a resize adds, removes, renames or reorders."""
    if len(held) != len(given):
        yield Fault("Forbidden", f"spec.{part}", f"{part} may not be added or removed on resize")
        return
    for i, (one, other) in enumerate(zip(held, given, strict=True)):
        if one.get("name") != other.get("name"):
            yield Fault("Forbidden", f"spec.{part}[{i}].name", f"{part} may not be renamed or reordered on resize")


def ephemeral_faults(old: Document, new: Document) -> Iterator[Fault]:
    """Yield the faults of an update that removes or changes existing ephemeral containers."""
    path = "spec.ephemeralContainers"
    given = {one.get("name"): one for one in _spec(new).get("ephemeralContainers") or ()}
    for held in _spec(old).get("ephemeralContainers") or ():
        name = held["name"]
        if name not in given:
            yield Fault("Forbidden", path, f'existing ephemeral containers "{name}" may not be removed')
        elif given[name] != held:
            yield Fault("Forbidden", path, f'existing ephemeral containers "{name}" may not be changed')


def _resized(path: str, old: Document, new: Document) -> Iterator[Fault]:
    """Yield removed amounts, and revert the allowed changes in ``new``."""
    for side, word in (("requests", "resource requests"), ("limits", "resource limits")):
        held, given = field_of(old, f"resources.{side}") or {}, field_of(new, f"resources.{side}") or {}
        for name in ("cpu", "memory"):
            if name in held and name not in given:
                yield Fault("Forbidden", f"{path}.{side}", f"{word} cannot be removed")
                break
        kept = {name: amount for name, amount in given.items() if name not in {"cpu", "memory"}}
        kept |= {name: amount for name, amount in held.items() if name in {"cpu", "memory"}}
        resources = new.setdefault("resources", {})
        resources[side] = kept
        if not kept:
            del resources[side]
    if not new["resources"] and "resources" not in old:
        del new["resources"]


# -- storage and other kinds -------------------------------------------------------------------------------------------


def _claim(old: Document, new: Document) -> Iterator[Fault]:
    before, after = copy.deepcopy(_spec(old)), copy.deepcopy(_spec(new))
    sizes = [field_of(spec, "resources.requests.storage") for spec in (before, after)]
    if not before.get("volumeName"):
        before["volumeName"] = after.get("volumeName")
    if before.get("storageClassName") is None and after.get("storageClassName"):
        before["storageClassName"] = after["storageClassName"]
    if field_of(new, "status.phase") == "Bound":
        set_or_drop(after, "volumeAttributesClassName", before.get("volumeAttributesClassName"))
        if isinstance(requests := field_of(after, "resources.requests"), dict):
            set_or_drop(requests, "storage", sizes[0])
    if _without_empty(before) != _without_empty(after):
        why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        yield Fault(
            "Forbidden", "spec", f"{why}\n{changed_lines('core.PersistentVolumeClaimSpec', before, as_sent(after, 'spec'))}"
        )
    asked, least = parse(sizes[1] or 0), parse(field_of(old, "status.capacity.storage") or 0)
    if asked < parse(sizes[0] or 0) and asked <= least:
        yield Fault("Forbidden", "spec.resources.requests.storage", "field can not be less than status.capacity")


@check("volume source", of_holder=True)
def _volume_source(_: str, __: Any, new: Document, up: Holders, *___: Any) -> Iterator[Fault]:
    before, after = _spec(up[0] if up is not None else {}), _spec(new)
    names = schema("core.PersistentVolumeSource").fields
    if any(before.get(name) != after.get(name) for name in names):
        lines = changed_lines("core.PersistentVolumeSource", before, as_sent(after, "spec"))
        yield Fault(
            "Forbidden", "spec.persistentvolumesource", f"spec.persistentvolumesource is immutable after creation\n{lines}"
        )


_STATEFUL: Final = frozenset(
    ["minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit", "template",
     "updateStrategy"]
)  # fmt: skip


def _stateful_set(old: Document, new: Document) -> Iterator[Fault]:
    if any(_spec(old).get(name) != _spec(new).get(name) for name in {*_spec(old), *_spec(new)} if name not in _STATEFUL):
        why = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        yield Fault("Forbidden", "spec", why)


def _job(old: Document, new: Document) -> Iterator[Fault]:
    before, after = _spec(old), _spec(new)
    held, given = copy.deepcopy(before.get("template") or {}), copy.deepcopy(after.get("template") or {})
    path, shown = "spec.template", after.get("template")
    status = old.get("status") or {}
    has_stopped = is_condition_true(status, "Suspended") or not status.get("startTime")
    if before.get("suspend") and has_stopped and not status.get("active"):
        # Without active pods, the scheduling directives and the resources of the template may change.
        held, given = _without_directives(held), _without_directives(given)
        path, shown = "spec.template.spec", field_of(new, "spec.template.spec")
        for part in ("containers", "initContainers"):
            for one, other in zip(held.get(part) or [], given.get(part) or [], strict=False):
                if one.get("name") == other.get("name"):
                    one.pop("resources", None)
                    other.pop("resources", None)
    if held != given:
        yield Fault("Invalid value", path, _FIXED_FIELD, shown)


def _without_directives(template: Document) -> Document:
    """Return a template's spec without its scheduling directives."""
    spec: Document = template.get("spec") or {}
    for name in ("nodeSelector", "schedulingGates", "tolerations"):
        spec.pop(name, None)
    if isinstance(affinity := spec.get("affinity"), dict):
        affinity.pop("nodeAffinity", None)
        if not affinity:
            del spec["affinity"]
    return spec


#: The immutable spec fields of kinds whose whole spec is immutable, in the order in which faults are reported.
_FROZEN: Final[Mapping[str, tuple[str, ...]]] = {
    "PodGroup": (
        "podGroupTemplateRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims", "disruptionMode",
        "priorityClassName", "priority",
    ),
    "Workload": ("controllerRef", "podGroupTemplates"),
}  # fmt: skip


def _frozen(kind: ServedKind, old: Document, new: Document, gates: FeatureGates) -> Iterator[Fault]:
    for name in _FROZEN[kind.native]:
        held, given = _spec(old).get(name), _spec(new).get(name)
        if held == given:
            continue
        if name == "disruptionMode" and not gates["WorkloadAwarePreemption"]:
            yield Fault("Forbidden", f"spec.{name}")
        else:
            yield Fault("Invalid value", f"spec.{name}", _FIXED_FIELD)  # kube-apiserver does not show the value here


def _csi_node(old: Document, new: Document) -> Iterator[Fault]:
    """Yield changes to existing CSI drivers of a node. Drivers may be added or removed, and their limits may change."""
    given = {
        one.get("name"): as_sent(one, f"spec.drivers[{i}]") for i, one in enumerate(_spec(new).get("drivers") or ())
    }  # fmt: skip
    for held in _spec(old).get("drivers") or ():
        other = given.get(held.get("name"))
        fixed = [(one.get("nodeID"), one.get("topologyKeys") or None) for one in (held, other or held)]
        if other is not None and fixed[0] != fixed[1]:
            yield Fault("Invalid value", "spec.drivers", _FIXED_FIELD, {**other, "allocatable": None})


def _quota(old: Document, new: Document) -> Iterator[Fault]:
    scopes = _spec(new).get("scopes") or []
    if set(_spec(old).get("scopes") or []) != set(scopes):
        yield Fault("Invalid value", "spec.scopes", _FIXED_FIELD, scopes or None)


_RULES: Final[Mapping[str, Callable[[Document, Document], Iterator[Fault]]]] = {
    "CSINode": _csi_node,
    "Job": _job,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "ResourceQuota": _quota,
    "StatefulSet": _stateful_set,
}
