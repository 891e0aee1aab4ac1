"""Find the differences between two servers' responses to the same request, and between their objects after it.

Values that every server chooses by itself (uids, versions, times, generated names, addresses) count as equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from moorage.api.documents.served_kinds import Document
from moorage.api.schema.protobuf import PROTOBUF, read_protobuf
from tools.attacks.judging import read_answer
from tools.attacks.wire import AttackResponse

__all__ = [
    "ASPECTS",
    "AnswerDifference",
    "IsOwn",
    "differences_of_answers",
    "differences_of_objects",
    "masked",
    "read_body",
    "status_causes",
    "without_empty",
    "without_own",
]

#: The kinds of differences between two servers, worst first.
ASPECTS: Final = (
    "accepted here only", "rejected here only", "no response", "code", "state", "reason", "causes", "body", "message",
    "warnings", "content type",
)  # fmt: skip
#: Fields of metadata and statuses that each server fills in by itself.
_OWN: Final = frozenset(["uid", "resourceVersion", "creationTimestamp", "continue", "time", "token", "expirationTimestamp"])
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_GENERATED: Final = re.compile(r"\b(g-|x-|g{58}|seeded-|made-|kube-api-access-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_ADDRESS: Final = re.compile(r"\b10\.(9[6-9]|1[01]\d)\.\d+\.\d+\b")
_NODE_PORT: Final = re.compile(r"\b3[0-2]\d{3}\b")
_RECENT: Final = re.compile(r"\b20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b")
_AGE: Final = re.compile(r"^(\d+[smhdy]){1,2}$")
#: Where a Go program registered its kinds, which depends on how it was built.
_SCHEME: Final = re.compile(r'"(?:k8s\.io/[\w/.-]+/)?pkg/[\w/]+/(?:register|scheme|customresource_handler)\.go:\d+"')
_VERSION: Final = re.compile(r"((?:resourceVersion|ResourceVersion in record)\W{1,6})\d+")


_CURRENT: Final = re.compile(r"(Too large resource version: \d+, current: )\d+")


@dataclass(frozen=True)
class AnswerDifference:
    """One difference: its kind, its place, and the value of each server."""

    aspect: str
    at: str
    here: str
    there: str

    def __str__(self) -> str:
        return f"{self.aspect}{f' at {self.at}' if self.at else ''}: {self.here} here, {self.there} there"


#: Returns whether metadata is that of an object that a server made by itself.
IsOwn = Callable[[Document], bool]


def differences_of_answers(
    ours: AttackResponse | None, theirs: AttackResponse | None, *, has_body: bool, is_own: IsOwn = lambda _: False
) -> list[AnswerDifference]:
    """Return the differences of two responses; if their codes differ, only that. Lists omit objects with ``is_own``."""
    if ours is None or theirs is None:
        return [] if ours is theirs else [AnswerDifference("no response", "", _outline(ours), _outline(theirs))]
    if ours.code != theirs.code:
        return [AnswerDifference(_aspect(ours.code, theirs.code), "", _outline(ours), _outline(theirs))]
    found = [*_of_texts("warnings", "", [masked(one) for one in ours.warnings], [masked(one) for one in theirs.warnings])]
    found += _of_texts("content type", "", ours.headers.get("content-type"), theirs.headers.get("content-type"))
    if has_body and not ours.streams and not theirs.streams:
        found += _of_bodies(*(without_own(one, is_own) for one in _documents(ours, theirs)))
    return found


def _documents(ours: AttackResponse, theirs: AttackResponse) -> list[Any]:
    """Return the bodies of two responses. Protobuf may leave out what is empty; its lists are not compared."""
    documents = [read_body(one) for one in (ours, theirs)]
    is_protobuf = [one.headers.get("content-type", "") == PROTOBUF for one in (ours, theirs)]
    if any(is_protobuf):
        documents = [without_empty(one) for one in documents]
        if any(isinstance(one, str) for one in documents):
            return [None, None]
    return documents


def without_own(document: Any, is_own: IsOwn) -> Any:
    """Return a list or a table without the objects that a server made by itself."""
    if isinstance(document, dict):
        for name, metadata_of in (("items", lambda one: one.get("metadata")), ("rows", _row_metadata)):
            if isinstance(held := document.get(name), list):
                kept = [one for one in held if not (isinstance(one, dict) and is_own(metadata_of(one) or {}))]
                document = {**document, name: kept}
    return document


def _row_metadata(row: Document) -> Document:
    return (row.get("object") or {}).get("metadata") or {"name": (row.get("cells") or [""])[0]}


def _aspect(ours: int, theirs: int) -> str:
    if (ours < 400) != (theirs < 400):
        return "accepted here only" if ours < 400 else "rejected here only"
    return "code"


def _outline(answer: AttackResponse | None) -> str:
    if answer is None:
        return "nothing"
    text = str(answer.code)
    if answer.code >= 400:
        document = read_body(answer)
        message = document.get("message", "") if isinstance(document, dict) else document
        text += f" {masked(str(message))[:300]}"
    return text


def read_body(answer: AttackResponse) -> Any:
    """Return the decoded body of a response, its text where it cannot be decoded."""
    try:
        if answer.headers.get("content-type", "") == PROTOBUF:
            return read_protobuf(answer.body)
        return read_answer(answer)
    except Exception:  # decoders raise various exceptions
        return answer.body.decode("utf-8", "replace")


def without_empty(value: Any) -> Any:
    """Return a document from protobuf without empty fields, which the encoding may omit."""
    if isinstance(value, dict):
        kept = {name: without_empty(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in ({}, [], "", None)}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def _of_texts(aspect: str, at: str, ours: Any, theirs: Any) -> Iterator[AnswerDifference]:
    if ours != theirs:
        yield AnswerDifference(aspect, at, _short(ours), _short(theirs))


def _of_bodies(here: Any, there: Any) -> Iterator[AnswerDifference]:
    if isinstance(here, dict) and isinstance(there, dict) and here.get("kind") == there.get("kind") == "Status":
        yield from _of_statuses(here, there)
    else:
        yield from differences_of_objects("body", here, there)


def _of_statuses(ours: Document, theirs: Document) -> Iterator[AnswerDifference]:
    yield from _of_texts("reason", "", ours.get("reason"), theirs.get("reason"))
    here, there = ours.get("details") or {}, theirs.get("details") or {}
    causes = [status_causes(details) for details in (here, there)]
    yield from _of_texts("causes", "", *causes)
    if causes[0] == causes[1]:
        yield from _of_texts("message", "", masked(ours.get("message", "")), masked(theirs.get("message", "")))
    for name in sorted({*here, *there} - {"causes", "uid"}):
        yield from _of_texts("body", f"details.{name}", here.get(name), there.get(name))


def status_causes(details: Document) -> list[tuple[str, str, str]]:
    """Return the causes in the details of an error as fields, reasons and messages, sorted."""
    return sorted(
        (one.get("field", ""), one.get("reason", ""), masked(one.get("message", ""))) for one in details.get("causes") or ()
    )


def differences_of_objects(aspect: str, ours: Any, theirs: Any) -> Iterator[AnswerDifference]:
    """Yield the places in which two documents differ."""
    for at, here, there in _places(ours, theirs, ""):
        yield AnswerDifference(aspect, at, _short(here), _short(there))


_MISSING: Final = "nothing"


def _places(ours: Any, theirs: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            if name not in _OWN:
                yield from _places(_shown(ours, name), _shown(theirs, name), f"{at}.{name}")
            elif (name in ours) != (name in theirs):
                yield f"{at}.{name}", "set" if name in ours else _MISSING, "set" if name in theirs else _MISSING
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for here, there in zip(ours, theirs, strict=True):
            yield from _places(here, there, f"{at}[]")
    elif _plain(ours) != _plain(theirs):
        yield at, ours, theirs


def _shown(document: Document, name: str) -> Any:
    """Return a field; null, which Go also writes for a time that is not set, counts as missing."""
    value = document.get(name)
    return _MISSING if value in (None, "0001-01-01T00:00:00Z") else value


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, int) and 30_000 <= value <= 32_767:
        return "<port>"
    return value


def masked(text: str) -> str:
    """Return a text with masks in the place of values that every server chooses by itself."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


_MASKS: Final = (
    (_UID, "<uid>"), (_RECENT, "<time>"), (_GENERATED, r"\1<generated>"), (_ADDRESS, "<address>"), (_NODE_PORT, "<port>"),
    (_VERSION, r"\1<version>"), (_CURRENT, r"\1<version>"), (_AGE, "<age>"), (_SCHEME, '"<scheme>"'),
)  # fmt: skip


def _short(value: Any) -> str:
    return masked(value if isinstance(value, str) else repr(value))[:400]
