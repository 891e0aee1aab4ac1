"""Controller revisions: earlier templates of stateful and daemon sets, kept for rollbacks.

Source  kubernetes, pkg/controller/history/controller_history.go
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.made_from import unknown_revision
from moorage.rules.workloads.missing_pods import REVISION_HASH, content_hash
from moorage.rules.workloads.object_index import ObjectIndex
from moorage.rules.workloads.steps import Create, DeleteStep, Step, Update

#: The hash label on a stateful set's revisions; its pods have the revision's name in the other label.
_OWN_HASH = "controller.kubernetes.io/hash"
_encode = msgspec.json.Encoder(order="deterministic").encode


class RevisionHistory(NamedTuple):
    """Revisions, the oldest first; ``update`` is that of the current template. ``steps`` create or renumber it."""

    revisions: list[Document]
    update: Document
    steps: list[Step]

    def named(self, name: str) -> Document | None:
        return next((one for one in self.revisions if k8s.name_of(one) == name), None)

    def truncated(self, limit: int, in_use: Collection[str]) -> list[Step]:
        """Return the deletion of the oldest revisions beyond ``limit``, except those ``in_use`` (their names) by pods."""
        kept = {k8s.name_of(self.update), *in_use}
        idle = [one for one in self.revisions if k8s.name_of(one) not in kept]
        return [DeleteStep(k8s.CONTROLLER_REVISIONS, one) for one in idle[: max(0, len(idle) - limit)]]


def history_of(kind: ServedKind, owner: Document, world: ObjectIndex) -> RevisionHistory:
    """Return an owner's revisions, including one for its current template.

    Pods of that template may name a missing revision, for example in a dump: then it is created under that name.
    """
    held = sorted(
        world.controlled(k8s.CONTROLLER_REVISIONS, owner), key=lambda one: (int(one.get("revision") or 0), k8s.age_order(one))
    )
    data = _data(owner)
    newest = int(held[-1].get("revision") or 0) if held else 0
    same = [one for one in held if one.get("data") == data]
    if not same:
        known = {k8s.name_of(one) for one in held}
        made = _revision(kind, owner, data, newest + 1, unknown_revision(kind, owner, world.controlled(k8s.PODS, owner), known))
        return RevisionHistory([*held, made], made, [Create(k8s.CONTROLLER_REVISIONS, k8s.copied(made), or_keep=True)])
    found = same[-1]
    if int(found.get("revision") or 0) == newest:
        return RevisionHistory(held, found, [])
    # A rollback: this revision becomes the newest.
    moved = {**found, "revision": newest + 1}
    others = [one for one in held if k8s.uid_of(one) != k8s.uid_of(found)]
    return RevisionHistory([*others, moved], moved, [Update(k8s.CONTROLLER_REVISIONS, k8s.copied(moved))])


def _data(owner: Document) -> dict[str, Any]:
    """Return the data of a revision in canonical field order: it is compared byte for byte."""
    template = {**(k8s.spec_of(owner).get("template") or {}), "$patch": "replace"}
    data: dict[str, Any] = msgspec.json.decode(_encode({"spec": {"template": template}}))
    return data


def _revision(kind: ServedKind, owner: Document, data: dict[str, Any], number: int, name: str) -> Document:
    """Return a new revision; with ``name``, the name that pods of the template already refer to."""
    template = k8s.spec_of(owner).get("template") or {}
    mark = name.removeprefix(f"{k8s.name_of(owner)}-") or content_hash(template)
    label = REVISION_HASH if kind is k8s.DAEMON_SETS else _OWN_HASH
    labels = {**((template.get("metadata") or {}).get("labels") or {}), label: mark}
    return {
        "apiVersion": k8s.CONTROLLER_REVISIONS.api_version,
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{k8s.name_of(owner)}-{mark}",
            "namespace": k8s.namespace_of(owner),
            "labels": labels,
            **({"annotations": dict(held)} if (held := k8s.annotations_of(owner)) else {}),
            "ownerReferences": [k8s.reference_to(kind, owner)],
        },
        "data": data,
        "revision": number,
    }
