"""Deletion of objects: preconditions, grace periods, finalizers and propagation.

Source  apiserver, pkg/registry/rest/delete.go and pkg/registry/generic/registry/store.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import bad_request, conflict, invalid
from moorage.api.schema.normalization import FieldTypeError, conform
from moorage.api.schema.schemas import schema
from moorage.errors import Fault
from moorage.rules.admission.admission_plugins import finalizers_of

# Decode and validate ``DeleteOptions``.
#
# Source  apimachinery, pkg/apis/meta/v1/validation (ValidateDeleteOptions); apiserver, pkg/endpoints/handlers/delete.go

_POLICIES: Final = ("Foreground", "Background", "Orphan")


def options_of(document: Document | None) -> DeleteOptions:
    """Return the decoded options; None gives the defaults.

    Raises  ApiError 400 for an object of another kind or with wrong types, 422 for invalid values
    """
    document = document or {}
    kind, version = document.get("kind") or "DeleteOptions", document.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"')
    try:
        options, _ = conform(schema("meta.DeleteOptions"), {key: document[key] for key in document if key not in _HEAD})
    except FieldTypeError as misfit:
        raise bad_request(str(misfit)) from None
    dry_run = options.get("dryRun") or []
    if faults := list(_faults(options, dry_run)):
        raise invalid("DeleteOptions", "meta.k8s.io", "", faults)
    only_if, orphans = options.get("preconditions") or {}, options.get("orphanDependents")
    policy = options.get("propagationPolicy") if orphans is None else "Orphan" if orphans else "Background"
    return DeleteOptions(
        options.get("gracePeriodSeconds"), str(only_if.get("uid") or ""), str(only_if.get("resourceVersion") or ""),
        str(policy or ""), "All" in dry_run, is_cascading=orphans is False,
        sent={name: value for name, value in options.items() if value not in (None, [], {})},
    )  # fmt: skip


_HEAD: Final = frozenset(["apiVersion", "kind"])
_SCHEME: Final = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


def _faults(options: Document, dry_run: list[Any]) -> Iterator[Fault]:
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        yield Fault("Invalid value", "propagationPolicy", "orphanDependents and deletionPropagation cannot be both set", policy)
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{one}"' for one in (*_POLICIES, "nil"))
        yield Fault("Unsupported value", "propagationPolicy", f"supported values: {supported}", policy)
    if any(one != "All" for one in dry_run):
        yield Fault("Unsupported value", "dryRun", 'supported values: "All"', dry_run)


class DeleteOptions(NamedTuple):
    """``propagation`` is Background, Foreground, Orphan, or "" for the default.

    ``is_default`` marks a propagation that the client did not request, which the object's own finalizers override.
    ``is_cascading`` marks one that the client requested with ``orphanDependents``. ``sent`` are the options as the client sent
    them.
    """

    grace_s: int | None = None
    uid: str = ""
    version: str = ""
    propagation: str = ""
    dry_run: bool = False
    is_default: bool = False
    is_cascading: bool = False
    sent: Document | None = None


NO_OPTIONS: Final = DeleteOptions()


def check_preconditions(kind: ServedKind, metadata: Document, options: DeleteOptions) -> None:
    """Check the preconditions of a deletion.

    Raises  ApiError 409 if one does not hold
    """
    group = "" if kind.kind == "Event" else kind.group
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.kind, group, metadata["name"], why)
    if options.version and options.version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(kind.kind, group, metadata["name"], why)


def grace_period_of(kind: ServedKind, document: Document, options: DeleteOptions) -> int:
    """Return the grace period of a deletion in seconds: 0 except for a pod on a node that has not ended."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if kind.native != "Pod" or not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0
    grace_s = spec.get("terminationGracePeriodSeconds", 30) if options.grace_s is None else options.grace_s
    grace_s = 1 if grace_s < 0 else int(grace_s)
    metadata = document["metadata"]
    if metadata.get("deletionTimestamp"):
        # The grace period of a terminating pod can only be shortened.
        held = int(metadata.get("deletionGracePeriodSeconds") or 0)
        return held if options.grace_s is None else min(held, grace_s)
    return grace_s


def check_finalizers(kind: ServedKind, old: Document, new: Document) -> None:
    """Check that an update adds no finalizers to a terminating object.

    Raises  ApiError 422
    """
    before, after = (document["metadata"].get("finalizers") or [] for document in (old, new))
    held = frozenset(before)
    added = [one for one in after if one not in held]
    if added and old["metadata"].get("deletionTimestamp"):
        shown = ", ".join(f'"{one}"' for one in sorted(added))
        why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
        raise invalid(kind.kind, kind.group, old["metadata"]["name"], [Fault("Forbidden", "metadata.finalizers", why)])


def is_removable(document: Document) -> bool:
    """Return True for a deleted object without finalizers or a remaining grace period, which can be removed."""
    metadata = document["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if document["kind"] == "Namespace" and document["apiVersion"] == "v1":
        waits = waits or finalizers_of(document)
    return bool(metadata.get("deletionTimestamp")) and not waits


#: The finalizers by which an object waits for the garbage collector to delete or orphan its dependents.
_FINALIZERS: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def set_propagation_finalizers(
    kind: ServedKind, metadata: Document, propagation: str, *, is_default: bool = False
) -> None:  # fmt: skip
    """Set the garbage collector's finalizers on an object that is deleted, according to the requested propagation.

    Events own nothing, so they have none.
    """
    if kind.kind == "Event":
        return
    held = metadata.get("finalizers") or []
    if not propagation or (is_default and any(one in held for one in _FINALIZERS.values())):
        return
    wait = _FINALIZERS.get(propagation)
    kept = [one for one in held if one not in _FINALIZERS.values()]
    metadata["finalizers"] = [*kept, wait] if wait else kept
    if not metadata["finalizers"]:
        del metadata["finalizers"]
