"""What two servers' responses to the same request, and the objects that they then hold, differ in.

Values that every server chooses by itself (uids, versions, times, generated names, addresses) count as equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from moorage.apiserver.vocabulary.records import Document
from moorage.testing.attacks.judging import read_answer
from moorage.testing.attacks.wire import AttackResponse

__all__ = ["ASPECTS", "AnswerDifference", "differences_of_answers", "differences_of_objects", "masked"]

#: In what two servers can differ, worst first.
ASPECTS: Final = (
    "accepted here only", "rejected here only", "no response", "code", "state", "reason", "causes", "body", "message",
    "warnings", "content type",
)  # fmt: skip
#: Fields of metadata and statuses that each server fills in by itself.
_OWN: Final = frozenset(["uid", "resourceVersion", "creationTimestamp", "continue", "time", "token", "expirationTimestamp"])
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_GENERATED: Final = re.compile(r"\b(g-|x-|g{58}|seeded-|made-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_ADDRESS: Final = re.compile(r"\b10\.(9[6-9]|1[01]\d)\.\d+\.\d+\b")
_NODE_PORT: Final = re.compile(r"\b3[0-2]\d{3}\b")
_RECENT: Final = re.compile(r"\b20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b")
_AGE: Final = re.compile(r"^(\d+[smhdy]){1,2}$")
_VERSION: Final = re.compile(r"((?:resourceVersion|ResourceVersion in record)\W{1,6})\d+")


@dataclass(frozen=True)
class AnswerDifference:
    """One difference: in what, where within it, and what each server says there."""

    aspect: str
    at: str
    here: str
    there: str

    def __str__(self) -> str:
        return f"{self.aspect}{f' at {self.at}' if self.at else ''}: {self.here} here, {self.there} there"


def differences_of_answers(
    ours: AttackResponse | None, theirs: AttackResponse | None, *, has_body: bool
) -> list[AnswerDifference]:
    """Return what two responses differ in; only the code, where that differs."""
    if ours is None or theirs is None:
        return [] if ours is theirs else [AnswerDifference("no response", "", _outline(ours), _outline(theirs))]
    if ours.code != theirs.code:
        return [AnswerDifference(_aspect(ours.code, theirs.code), "", _outline(ours), _outline(theirs))]
    found = [*_of_texts("warnings", "", [masked(one) for one in ours.warnings], [masked(one) for one in theirs.warnings])]
    found += _of_texts("content type", "", ours.headers.get("content-type"), theirs.headers.get("content-type"))
    if has_body and not ours.streams and not theirs.streams:
        found += _of_bodies(ours, theirs)
    return found


def _aspect(ours: int, theirs: int) -> str:
    if (ours < 400) != (theirs < 400):
        return "accepted here only" if ours < 400 else "rejected here only"
    return "code"


def _outline(answer: AttackResponse | None) -> str:
    if answer is None:
        return "nothing"
    text = str(answer.code)
    if answer.code >= 400:
        document = _read(answer)
        message = document.get("message", "") if isinstance(document, dict) else document
        text += f" {masked(str(message))[:300]}"
    return text


def _read(answer: AttackResponse) -> Any:
    try:
        return read_answer(answer)
    except Exception:  # whatever its decoder finds wrong with it
        return answer.body.decode("utf-8", "replace")


def _of_texts(aspect: str, at: str, ours: Any, theirs: Any) -> Iterator[AnswerDifference]:
    if ours != theirs:
        yield AnswerDifference(aspect, at, _short(ours), _short(theirs))


def _of_bodies(ours: AttackResponse, theirs: AttackResponse) -> Iterator[AnswerDifference]:
    here, there = _read(ours), _read(theirs)
    if isinstance(here, dict) and isinstance(there, dict) and here.get("kind") == there.get("kind") == "Status":
        yield from _of_statuses(here, there)
    else:
        yield from differences_of_objects("body", here, there)


def _of_statuses(ours: Document, theirs: Document) -> Iterator[AnswerDifference]:
    yield from _of_texts("reason", "", ours.get("reason"), theirs.get("reason"))
    here, there = ours.get("details") or {}, theirs.get("details") or {}
    causes = [_causes(details) for details in (here, there)]
    yield from _of_texts("causes", "", *causes)
    if causes[0] == causes[1]:
        yield from _of_texts("message", "", masked(ours.get("message", "")), masked(theirs.get("message", "")))
    for name in sorted({*here, *there} - {"causes", "uid"}):
        yield from _of_texts("body", f"details.{name}", here.get(name), there.get(name))


def _causes(details: Document) -> list[tuple[str, str, str]]:
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
                yield from _places(ours.get(name, _MISSING), theirs.get(name, _MISSING), f"{at}.{name}")
            elif (name in ours) != (name in theirs):
                yield f"{at}.{name}", "set" if name in ours else _MISSING, "set" if name in theirs else _MISSING
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for here, there in zip(ours, theirs, strict=True):
            yield from _places(here, there, f"{at}[]")
    elif _plain(ours) != _plain(theirs):
        yield at, ours, theirs


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, int) and 30_000 <= value <= 32_767:
        return "<port>"
    return value


def masked(text: str) -> str:
    """Return a text without what every server chooses by itself."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


_MASKS: Final = (
    (_UID, "<uid>"), (_RECENT, "<time>"), (_GENERATED, r"\1<generated>"), (_ADDRESS, "<address>"), (_NODE_PORT, "<port>"),
    (_VERSION, r"\1<version>"), (_AGE, "<age>"),
)  # fmt: skip


def _short(value: Any) -> str:
    return masked(value if isinstance(value, str) else repr(value))[:400]
