"""How namespaces go: nothing new is let in, what is in them is deleted, and only then are they gone.

A namespace that is deleted waits for whoever is named in ``spec.finalizers``. By default that is ``kubernetes``, the namespace
controller: it deletes the content and then takes its name off the list, through the ``finalize`` path, which is the only one
that changes it. Where no controllers run, the store does their part (``Store.empties_namespaces``).

Source  kubernetes, pkg/registry/core/namespace: strategy.go, storage/storage.go; apiserver, pkg/admission/plugin/namespace
"""

from __future__ import annotations

from typing import Final

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import Cause, forbidden, not_found

__all__ = ["FOREVER", "check_may_go", "check_open", "finalized", "finalizers_of", "keep_finalizers", "with_finalizer"]

#: Namespaces that every cluster has, and those among them that cannot be deleted.
FOREVER: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_IMMORTAL: Final = ("default", "kube-public", "kube-system")
_FINALIZER: Final = "kubernetes"


def check_may_go(kind: ServedKind, name: str) -> None:
    """Check that an object may be deleted.

    Raises  ApiError 403 for namespaces and priority classes that no cluster can be without
    """
    if kind.kind == "Namespace" and name in _IMMORTAL:
        raise forbidden("namespaces", "", name, "this namespace may not be deleted")
    if kind.kind == "PriorityClass" and name in SYSTEM_PRIORITY_CLASSES:
        raise forbidden(kind.resource, kind.group, name, "this is a system priority class and cannot be deleted")


def check_open(home: Record | None, namespace: str, kind: ServedKind, name: str) -> None:
    """Check that something may be created in a namespace.

    Raises  ApiError 404 where there is none, 403 where it is on its way out
    """
    if home is None:
        raise not_found("namespaces", "", namespace)
    if home.fields["status.phase"] == "Terminating":
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
        raise forbidden(kind.resource, kind.group, name, why, [cause])


def finalizers_of(namespace: Document) -> list[str]:
    """Return for whom a namespace waits before it goes, besides those whom any object may wait for."""
    return (namespace.get("spec") or {}).get("finalizers") or []


def with_finalizer(namespace: Document) -> None:
    """Have a new namespace wait for its content to be gone."""
    held = finalizers_of(namespace)
    if _FINALIZER not in held:
        namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": [*held, _FINALIZER]}


def keep_finalizers(old: Document, new: Document) -> None:
    """Let a new version wait for whom the old one did."""
    new["spec"] = {**(new.get("spec") or {}), "finalizers": finalizers_of(old)}
    if not new["spec"]["finalizers"]:
        del new["spec"]["finalizers"]


def finalized(namespace: Document) -> Document:
    """Return a namespace whose content is gone, for all that its controller knows."""
    left = [one for one in finalizers_of(namespace) if one != _FINALIZER]
    spec = {name: value for name, value in (namespace.get("spec") or {}).items() if name != "finalizers"}
    return {**namespace, "spec": {**spec, "finalizers": left} if left else spec}
