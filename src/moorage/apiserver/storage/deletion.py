"""How objects go: if they do at all, how long they may take, and whom they wait for.

Source  apiserver, pkg/registry/rest/delete.go and pkg/registry/generic/registry/store.go
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moorage.apiserver.admission.namespace_lifecycle import finalizers_of
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import conflict, invalid
from moorage.errors import Fault

__all__ = [
    "NO_OPTIONS", "DeleteOptions", "check_finalizers", "check_preconditions", "grace_of", "is_done", "settle_dependents",
]  # fmt: skip


class DeleteOptions(NamedTuple):
    """``propagation`` says what becomes of what the object owns: Background, Foreground or Orphan; empty for what is usual.

    ``is_usual`` says that nobody asked for the propagation, so what the object itself says comes first.
    """

    grace_s: int | None = None
    uid: str = ""
    version: str = ""
    propagation: str = ""
    dry_run: bool = False
    is_usual: bool = False


NO_OPTIONS: Final = DeleteOptions()


def check_preconditions(kind: ServedKind, metadata: Document, options: DeleteOptions) -> None:
    """Check what a deletion is conditional on.

    Raises  ApiError 409 where it does not hold
    """
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.kind, kind.group, metadata["name"], why)
    if options.version and options.version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(kind.kind, kind.group, metadata["name"], why)


def grace_of(kind: ServedKind, document: Document, options: DeleteOptions) -> int:
    """Return how long an object may take to end, in seconds: nothing but a pod on a node that has not ended."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if kind.kind != "Pod" or not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0
    asked = spec.get("terminationGracePeriodSeconds", 30) if options.grace_s is None else options.grace_s
    asked = 1 if asked < 0 else int(asked)
    metadata = document["metadata"]
    if metadata.get("deletionTimestamp"):
        # Once it is ending, a pod's time can get shorter, not longer.
        held = int(metadata.get("deletionGracePeriodSeconds") or 0)
        return held if options.grace_s is None else min(held, asked)
    return asked


def check_finalizers(kind: ServedKind, old: Document, new: Document) -> None:
    """Check that nobody else is to be waited for.

    Raises  ApiError 422 for a finalizer that is new to an object on its way out
    """
    before, after = (document["metadata"].get("finalizers") or [] for document in (old, new))
    held = frozenset(before)
    added = [one for one in after if one not in held]
    if added and old["metadata"].get("deletionTimestamp"):
        shown = ", ".join(f'"{one}"' for one in sorted(added))
        why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
        raise invalid(kind.kind, kind.group, old["metadata"]["name"], [Fault("Forbidden", "metadata.finalizers", why)])


def is_done(document: Document) -> bool:
    """Return True for an object that waited for its last finalizer only."""
    metadata = document["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if document["kind"] == "Namespace":
        waits = waits or finalizers_of(document)
    return bool(metadata.get("deletionTimestamp")) and not waits


#: How an object waits for the garbage collector, which removes these: for its dependents to be gone, or to be let go.
_WAITS: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def settle_dependents(metadata: Document, propagation: str, *, is_usual: bool = False) -> None:
    """Have an object that is deleted wait for the garbage collector, or not, where the caller said how it is to go."""
    held = metadata.get("finalizers") or []
    if not propagation or (is_usual and any(one in held for one in _WAITS.values())):
        return
    wait = _WAITS.get(propagation)
    kept = [one for one in held if one not in _WAITS.values()]
    metadata["finalizers"] = [*kept, wait] if wait else kept
    if not metadata["finalizers"]:
        del metadata["finalizers"]
