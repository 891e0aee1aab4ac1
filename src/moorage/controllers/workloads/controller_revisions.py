"""Controller revisions: earlier templates of stateful and daemon sets, kept for rollbacks.

Source  kubernetes, pkg/controller/history/controller_history.go
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.controllers.machinery.kind_names import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from moorage.controllers.machinery.object_fields import (
    age_order,
    annotations_of,
    copied,
    name_of,
    namespace_of,
    reference_to,
    spec_of,
    uid_of,
)
from moorage.controllers.machinery.object_index import ObjectIndex
from moorage.controllers.machinery.steps import Create, DeleteStep, Step, Update
from moorage.controllers.workloads.made_from import unknown_revision
from moorage.controllers.workloads.missing_pods import REVISION_HASH, content_hash

__all__ = ["RevisionHistory", "history_of", "template_of"]

#: The hash label on a stateful set's revisions; its pods have the revision's name in the other label.
_OWN_HASH = "controller.kubernetes.io/hash"
_encode = msgspec.json.Encoder(order="deterministic").encode


class RevisionHistory(NamedTuple):
    """Revisions, the oldest first; ``update`` is that of the current template. ``steps`` create or renumber it."""

    revisions: list[Document]
    update: Document
    steps: list[Step]

    def named(self, name: str) -> Document | None:
        return next((one for one in self.revisions if name_of(one) == name), None)

    def truncated(self, limit: int, in_use: Collection[str]) -> list[Step]:
        """Return the deletion of the oldest revisions beyond ``limit``, except those ``in_use`` (their names) by pods."""
        kept = {name_of(self.update), *in_use}
        idle = [one for one in self.revisions if name_of(one) not in kept]
        return [DeleteStep(CONTROLLER_REVISIONS, one) for one in idle[: max(0, len(idle) - limit)]]


def history_of(kind: ServedKind, owner: Document, world: ObjectIndex) -> RevisionHistory:
    """Return an owner's revisions, including one for its current template.

    Pods of that template may name a missing revision, for example in a dump: then it is created under that name.
    """
    held = sorted(world.controlled(CONTROLLER_REVISIONS, owner), key=_order)
    data = _data(owner)
    newest = int(held[-1].get("revision") or 0) if held else 0
    same = [one for one in held if one.get("data") == data]
    if not same:
        known = {name_of(one) for one in held}
        made = _revision(kind, owner, data, newest + 1, unknown_revision(kind, owner, world.controlled(PODS, owner), known))
        return RevisionHistory([*held, made], made, [Create(CONTROLLER_REVISIONS, copied(made), or_keep=True)])
    found = same[-1]
    if int(found.get("revision") or 0) == newest:
        return RevisionHistory(held, found, [])
    # A rollback: this revision becomes the newest.
    moved = {**found, "revision": newest + 1}
    others = [one for one in held if uid_of(one) != uid_of(found)]
    return RevisionHistory([*others, moved], moved, [Update(CONTROLLER_REVISIONS, copied(moved))])


def _order(revision: Document) -> tuple[int, tuple[str, str]]:
    return int(revision.get("revision") or 0), age_order(revision)


def _data(owner: Document) -> dict[str, Any]:
    """Return the data of a revision in canonical field order: it is compared byte for byte."""
    template = {**(spec_of(owner).get("template") or {}), "$patch": "replace"}
    data: dict[str, Any] = msgspec.json.decode(_encode({"spec": {"template": template}}))
    return data


def template_of(revision: Document) -> Document:
    """Return the template in a revision."""
    held = revision["data"]["spec"]["template"]
    return {name: value for name, value in held.items() if name != "$patch"}


def _revision(kind: ServedKind, owner: Document, data: dict[str, Any], number: int, name: str) -> Document:
    """Return a new revision; with ``name``, the name that pods of the template already refer to."""
    template = spec_of(owner).get("template") or {}
    mark = name.removeprefix(f"{name_of(owner)}-") or content_hash(template)
    label = REVISION_HASH if kind is DAEMON_SETS else _OWN_HASH
    labels = {**((template.get("metadata") or {}).get("labels") or {}), label: mark}
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{name_of(owner)}-{mark}",
            "namespace": namespace_of(owner),
            "labels": labels,
            **({"annotations": dict(held)} if (held := annotations_of(owner)) else {}),
            "ownerReferences": [reference_to(kind, owner)],
        },
        "data": data,
        "revision": number,
    }
