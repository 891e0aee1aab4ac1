"""The lifecycle of namespaces: a terminating namespace accepts no new objects and is removed when its content is deleted.

A deleted namespace waits for the finalizers in ``spec.finalizers``. The default one, ``kubernetes``, belongs to the
namespace controller, which deletes the content and then removes its finalizer through the ``finalize`` subresource, the
only way to change the list. Where no controllers run, the store does that (``Store.empties_namespaces``).

Source  kubernetes, pkg/registry/core/namespace: strategy.go, storage/storage.go; apiserver, pkg/admission/plugin/namespace
"""

from __future__ import annotations

from typing import Final

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import Cause, forbidden, not_found

__all__ = [
    "SYSTEM_NAMESPACES",
    "check_creatable",
    "check_deletable",
    "finalized",
    "finalizers_of",
    "keep_finalizers",
    "with_finalizer",
]

#: Namespaces that every cluster has, and below those that cannot be deleted.
SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_UNDELETABLE: Final = ("default", "kube-public", "kube-system")
_FINALIZER: Final = "kubernetes"


def check_deletable(kind: ServedKind, name: str) -> None:
    """Check that an object may be deleted.

    Raises  ApiError 403 for system namespaces and system priority classes
    """
    if kind.native == "Namespace" and name in _UNDELETABLE:
        raise forbidden("namespaces", "", name, "this namespace may not be deleted")
    if kind.native == "PriorityClass" and name in SYSTEM_PRIORITY_CLASSES:
        raise forbidden(kind.resource, kind.group, name, "this is a system priority class and cannot be deleted")


def check_creatable(record: Record | None, namespace: str, kind: ServedKind, name: str) -> None:
    """Check that an object may be created in a namespace.

    Raises  ApiError 404 if the namespace does not exist, 403 if it is terminating
    """
    if record is None:
        raise not_found("namespaces", "", namespace)
    if record.fields["status.phase"] == "Terminating":
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
        raise forbidden(kind.resource, kind.group, name, why, [cause])


def finalizers_of(namespace: Document) -> list[str]:
    """Return the finalizers in a namespace's spec (not those in its metadata)."""
    return (namespace.get("spec") or {}).get("finalizers") or []


def with_finalizer(namespace: Document) -> None:
    """Add the namespace controller's finalizer to a new namespace, in place."""
    held = finalizers_of(namespace)
    if _FINALIZER not in held:
        namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": [*held, _FINALIZER]}


def keep_finalizers(old: Document, new: Document) -> None:
    """Copy ``spec.finalizers`` of the old version to the new one."""
    new["spec"] = {**(new.get("spec") or {}), "finalizers": finalizers_of(old)}
    if not new["spec"]["finalizers"]:
        del new["spec"]["finalizers"]


def finalized(namespace: Document) -> Document:
    """Return a namespace without the namespace controller's finalizer."""
    left = [one for one in finalizers_of(namespace) if one != _FINALIZER]
    spec = {name: value for name, value in (namespace.get("spec") or {}).items() if name != "finalizers"}
    return {**namespace, "spec": {**spec, "finalizers": left} if left else spec}
