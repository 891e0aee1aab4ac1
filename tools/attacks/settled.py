"""Check a server after attacks: every stored object is valid and can be read, written, watched and deleted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.schema.protobuf import PROTOBUF
from moorage.rules.store.watches import StoreChange
from tools.attacks.ground import Ground
from tools.attacks.judging import read_answer
from tools.attacks.routes import object_path
from tools.attacks.wire import AttackConnection, AttackResponse

__all__ = ["faults_of_store", "faults_of_written"]

_JSON: Final = "application/json"
_FORMS: Final = (
    "application/yaml", PROTOBUF, f"{_JSON};as=Table;v=v1;g=meta.k8s.io",
    f"{_JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
)  # fmt: skip


class _Asking:
    """Sends requests as the administrator."""

    def __init__(self, ground: Ground, line: AttackConnection) -> None:
        self._ground, self._line = ground, line

    async def ask(self, method: str, path: str, document: Any = None, accept: str = _JSON) -> AttackResponse:
        body = b"" if document is None else msgspec.json.encode(document)
        lines = [
            f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {self._ground.tokens['admin']}",
            f"Accept: {accept}", "Content-Type: application/json", f"Content-Length: {len(body)}", "", "",
        ]  # fmt: skip
        answer = await self._line.ask("\r\n".join(lines).encode() + body)
        return answer if answer is not None else AttackResponse("", 0, {})


async def faults_of_store(ground: Ground, line: AttackConnection) -> list[str]:
    """Return the faults of all stored objects. Deletes everything in the process."""
    asking = _Asking(ground, line)
    served = [kind for kind in ground.store.kinds.served if kind.stored_as is None]
    kinds = sorted(served, key=lambda kind: kind.custom is None)  # objects of custom kinds are deleted with their definition
    faults = [fault for kind in kinds async for fault in _of_kind(ground, asking, kind)]
    for kind in kinds:
        if "delete" in kind.verbs and kind.kind != "Namespace":
            faults += [fault async for fault in _deleted(ground, asking, kind)]
    return faults


async def faults_of_written(ground: Ground, line: AttackConnection, written: list[tuple[ServedKind, StoreChange]]) -> list[str]:
    """Return the faults of the objects that a request wrote and that still exist."""
    asking = _Asking(ground, line)
    faults = []
    for written_kind, change in written:
        kind, found = _found(ground, written_kind, change.after)
        if kind is not None and found is not None:
            faults += [f"{kind.qualified} {found.key}: {fault}" async for fault in _of_object(asking, kind, found)]
    return faults


def _found(ground: Ground, was: ServedKind, record: Record) -> tuple[ServedKind | None, Record | None]:
    """Return a kind and an object of it as they are stored now: a definition may have changed or ended the kind since."""
    kind = ground.store.kinds.find_stored(was.qualified)
    return kind, None if kind is None else ground.store.find(kind, record.namespace, record.name)


async def _of_kind(ground: Ground, asking: _Asking, kind: ServedKind) -> AsyncIterator[str]:
    listed = await asking.ask("GET", object_path(kind, ""))
    if listed.code != 200:
        yield f"{kind.qualified} cannot be listed: {listed.code} {listed.body[:300]!r}"
        return
    items = msgspec.json.decode(listed.body)["items"]
    records = [*ground.store.all(kind)]
    if len(items) != len(records):
        yield f"{kind.qualified}: {len(items)} are listed, {len(records)} are stored"
    for form in _FORMS if kind.custom is None else set(_FORMS) - {PROTOBUF}:
        answer = await asking.ask("GET", object_path(kind, ""), accept=form)
        if fault := _unread(answer):
            yield f"{kind.qualified} cannot be listed as {form}: {fault}"
    if "watch" in kind.verbs:
        watched = await asking.ask("GET", object_path(kind, "") + "?watch=1&resourceVersion=0&allowWatchBookmarks=true")
        events = watched.body.count(b'"type":"ADDED"')
        if watched.code != 200 or events != len(records):
            yield f"{kind.qualified}: a watch begins with {events} of {len(records)} objects, code {watched.code}"
    for record in records:
        async for fault in _of_object(asking, kind, record):
            yield f"{kind.qualified} {record.key}: {fault}"


def _unread(answer: AttackResponse) -> str:
    if answer.code != 200:
        return f"{answer.code} {answer.body[:300]!r}"
    try:
        read_answer(answer)
    except Exception as error:  # the decoders raise various exceptions
        return f"{type(error).__name__} {str(error)[:200]}"
    return ""


async def _of_object(asking: _Asking, kind: ServedKind, record: Record) -> AsyncIterator[str]:
    path = object_path(kind, record.namespace, record.name)
    shown = await asking.ask("GET", path)
    if shown.code != 200:
        yield f"cannot be read: {shown.code} {shown.body[:300]!r}"
        return
    document: Document = msgspec.json.decode(shown.body)
    if document != record.document():
        yield "is returned differently than it is stored"
    if "update" in kind.verbs:
        again = await asking.ask("PUT", f"{path}?dryRun=All&fieldValidation=Strict", document)
        if again.code == 422 and _is_unchecked(kind, document, again):
            return
        if again.code != 200:
            yield f"is not valid by the server's own rules: {again.code} {again.body[:400]!r} {record.body[:1500]!r}"
        elif changed := [*_changes(document, msgspec.json.decode(again.body))]:
            yield f"changes when it is written back unchanged, at {changed[:3]}"


def _is_unchecked(kind: ServedKind, document: Document, answer: AttackResponse) -> bool:
    """Return True if all faults are in fields that kube-apiserver does not check either: a write of a status may set any
    ``generateName`` and, of a definition, any stored versions, and a binding any node, labels and annotations.
    """
    causes = msgspec.json.decode(answer.body)["details"].get("causes") or [{}]
    unchecked = {"metadata.generateName"} if "status" in kind.subresources else set()
    if kind.kind == "Pod" and document["spec"].get("nodeName"):
        unchecked |= {"metadata.annotations", "metadata.labels", "spec.nodeName"}
    fields = {re.sub(r"\[[0-9]+\]$", "", cause.get("field") or "") for cause in causes}
    return fields <= unchecked | ({"status.storedVersions"} if kind.kind == "CustomResourceDefinition" else set())


def _changes(before: Any, after: Any, at: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            if (name in before) != (name in after):
                yield f"{at}.{name}"
            elif name != "managedFields":
                yield from _changes(before[name], after[name], f"{at}.{name}")
    elif before != after:
        yield at


async def _deleted(ground: Ground, asking: _Asking, kind: ServedKind) -> AsyncIterator[str]:
    for record in [*ground.store.all(kind)]:
        path = object_path(kind, record.namespace, record.name)
        held = record.document()["metadata"].get("finalizers")
        answer = await asking.ask("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        is_kept = answer.code == 403 and record.name.startswith("system-")
        if answer.code not in {200, 202, 404} and not is_kept:
            yield f"{kind.qualified} {record.key} cannot be deleted: {answer.code} {answer.body[:300]!r}"
        _, left = _found(ground, kind, record)  # the last object of a kind ends it, if its definition is being deleted
        is_same = left is not None and left.document()["metadata"]["uid"] == record.document()["metadata"]["uid"]
        if answer.code == 200 and left is not None and is_same and not held and not _finalizers(left):
            yield f"{kind.qualified} {record.key} is deleted and still there"


def _finalizers(record: Record) -> Any:
    return record.document()["metadata"].get("finalizers")
