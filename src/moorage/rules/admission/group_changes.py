"""Pod groups, groups of groups and workloads since release 1.37: in which form they are checked, and what may change.

They are stored in the form of 1.36. From 1.37 on a template may be updated where its fields allow it, and faults name the
fields of the newer versions.

Source  api, scheduling/v1beta1/types.go and v1alpha3/types.go (the tags ``+k8s:immutable`` and ``+k8s:update``)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.documents.served_kinds import VERSIONS, Document, ServedKind
from moorage.api.feature_gates import FeatureGates
from moorage.api.schema.versions import convert
from moorage.errors import Fault

_FIXED: Final = "field is immutable"
_KINDS: Final = frozenset(["CompositePodGroup", "PodGroup", "Workload"])
#: The form that is checked, by kind; groups of groups are stored in it.
_CHECKED: Final[Mapping[str, ServedKind]] = {
    one.kind: one for one in VERSIONS if one.kind in _KINDS and one.version == "v1beta1" and one.stored_as is not None
}
_POLICY: Final = "schedulingPolicy"
_LAST: Final = ("priorityClassName", "priority", "preemptionPolicy")
#: The fields of each that may not change, in the order in which faults name them. Of a policy a part may change in some.
_GROUP: Final = (
    "parentCompositePodGroupName", "workloadRef", _POLICY, "schedulingConstraints", "resourceClaims", "disruptionMode", *_LAST,
)  # fmt: skip
_COMPOSITE: Final = (
    "parentCompositePodGroupName", "workloadRef", _POLICY, "schedulingConstraints", "disruptionMode", *_LAST,
)  # fmt: skip
_TEMPLATE: Final = (_POLICY, "schedulingConstraints", "resourceClaims", "disruptionMode", *_LAST)
_LISTS: Final = ("podGroupTemplates", "compositePodGroupTemplates")


def is_checked_anew(kind: ServedKind, gates: FeatureGates) -> bool:
    """Return whether a kind has the rules of this module."""
    return kind.custom is None and kind.native in _KINDS and gates.emulated.groups_as_one


def as_checked(kind: ServedKind, document: Document) -> Document:
    """Return a stored object of such a kind in the form in which it is checked; the object itself if it is stored in that."""
    served = _CHECKED.get(kind.native)
    if served is None:
        return document
    shown = copy.deepcopy(document)
    convert(served, kind, shown)
    return shown


def group_changes(kind: ServedKind, old: Document, new: Document) -> Iterator[Fault]:
    """Yield the fields of an update that may not change; both objects are in the form in which they are checked."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    match kind.native:
        case "PodGroup":
            yield from _fields("spec", before, after, _GROUP)
        case "CompositePodGroup":
            yield from _fields("spec", before, after, _COMPOSITE, is_policy_fixed=True)
        case _:
            if before.get("controllerRef") != after.get("controllerRef"):
                yield Fault("Invalid value", "spec.controllerRef", _FIXED)
            yield from _lists("spec", before, after)


def _lists(path: str, before: Document, after: Document) -> Iterator[Fault]:
    for name in _LISTS:
        held = {one.get("name"): one for one in before.get(name) or ()}
        given: list[Document] = after.get(name) or []
        added = [at for at, one in enumerate(given) if one.get("name") not in held]
        yield from (Fault("Forbidden", f"{path}.{name}[{at}]", "item may not be added") for at in added)
        removed = held.keys() - {one.get("name") for one in given}
        if removed:
            yield Fault("Forbidden", f"{path}.{name}", "item may not be removed")
        if added or removed:
            continue  # nothing more is said about this list
        for at, one in enumerate(given):
            yield from _fields(f"{path}.{name}[{at}]", held[one.get("name")], one, _TEMPLATE)
            yield from _lists(f"{path}.{name}[{at}]", held[one.get("name")], one)


def _fields(
    path: str, before: Document, after: Document, names: tuple[str, ...], *, is_policy_fixed: bool = False
) -> Iterator[Fault]:
    for name in names:
        held, given = (_bare(one.get(name)) for one in (before, after))
        if held == given:
            continue
        if name != _POLICY or is_policy_fixed:
            yield Fault("Invalid value", f"{path}.{name}", _FIXED)
            continue
        held, given = before.get(name) or {}, after.get(name) or {}
        if held.get("basic") != given.get("basic"):
            yield Fault("Invalid value", f"{path}.{name}.basic", _FIXED)
        if (held.get("gang") is None) != (given.get("gang") is None):
            why = "field cannot be set once created" if held.get("gang") is None else "field cannot be cleared once set"
            yield Fault("Invalid value", f"{path}.{name}.gang", why)


def _bare(value: Any) -> Any:
    """Return a value in which what is empty is absent."""
    return None if value in ("", []) else value
