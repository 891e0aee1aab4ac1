"""Answers of two API servers to one request: how they differ, and which differences are one kind of fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Answer", "Difference", "Request", "differences", "masked"]

#: Fields whose values each server chooses; that they are there is compared.
_OWN: Final = frozenset([
    "uid", "resourceVersion", "creationTimestamp", "continue", "token", "expirationTimestamp", "deletionTimestamp",
    "remainingItemCount", "lastPhaseTransitionTime",
])  # fmt: skip
_MASKS: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\b2026-(1[012])-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)"), "<time>"),
    (re.compile(r"\b10\.(9[6-9]|1[01]\d)\.\d+\.\d+\b"), "<address>"),
    (re.compile(r"\b3[0-2]\d{3}\b"), "<port>"),
    (re.compile(r"\b(gen-|kube-api-access-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"), r"\1<generated>"),
    (re.compile(r"0xc[0-9a-f]{9}"), "<pointer>"),
    (re.compile(r"((?:resourceVersion|ResourceVersion in record|current)\W{1,6})\d+"), r"\1<version>"),
    (re.compile(r'"(?:k8s\.io/[\w/.-]+/)?pkg/[\w/]+/(?:register|scheme|customresource_handler)\.go:\d+"'), '"<scheme>"'),
)  # fmt: skip


#: The age of an object in a table.
_AGE: Final = re.compile(r"(\d+[smhdy]){1,2}")


@dataclass(frozen=True)
class Request:
    """A request. ``kind`` is the resource that it is about, ``label`` what it does."""

    method: str
    path: str
    body: Any = None
    form: str = "application/json"
    accept: str = "application/json"
    kind: str = ""
    label: str = ""

    def __str__(self) -> str:
        body = "" if self.body is None else f"\n{json.dumps(self.body)}"
        return f"{self.method} {self.path} {self.form if self.body is not None else self.accept}{body}"


@dataclass(frozen=True)
class Answer:
    """A status code, the decoded body, and the warnings."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The message of an error; "" for another answer."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) and self.body.get("kind") == "Status" else ""


@dataclass(frozen=True)
class Difference:
    """The first difference of two answers. ``aspect`` is ``code``, ``warnings`` or ``body``."""

    aspect: str
    at: str
    here: str
    there: str

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """What the differences of one fault share."""
        return self.aspect, self.at, _pattern(self.here), _pattern(self.there)


def differences(ours: Answer, theirs: Answer) -> Iterator[Difference]:
    """Yield the differences of two answers. If their codes differ, that is the only one."""
    if ours.code != theirs.code:
        yield Difference("code", "", f"{ours.code} {ours.message}", f"{theirs.code} {theirs.message}")
        return
    if ours.message != theirs.message and masked(ours.message) != masked(theirs.message):
        yield Difference("body", ".message", ours.message, theirs.message)
        return
    for at, here, there in _places(ours.body, theirs.body, ""):
        yield Difference("body", at, str(here), str(there))
    mine, other = ([masked(text) for text in one.warnings] for one in (ours, theirs))
    if mine != other:
        yield Difference("warnings", "", "; ".join(mine), "; ".join(other))


def masked(text: str) -> str:
    """Return a text with marks in the place of what each server chooses."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def _pattern(text: str) -> str:
    """Return a text without the values in it."""
    text = re.sub(r"\[\d+\]", "[]", masked(text))
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', text)
    text = re.sub(r"Invalid value: .*?: ", "Invalid value: …: ", text)
    return re.sub(r"-?\d+", "0", text)[:240]


def _places(ours: Any, theirs: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            if (name in ours) != (name in theirs):
                yield f"{at}.{name}", ours.get(name, "nothing"), theirs.get(name, "nothing")
            elif name in _UNORDERED:
                yield from _places(_in_order(ours[name]), _in_order(theirs[name]), f"{at}.{name}")
            elif name not in _OWN and not (name == "time" and "managedFields" in at):
                yield from _places(ours[name], theirs[name], f"{at}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        for here, there in zip(ours, theirs, strict=False):
            yield from _places(here, there, f"{at}[]")
        if len(ours) != len(theirs):
            yield f"{at}[]#", [*ours[len(theirs) :]] or "nothing", [*theirs[len(ours) :]] or "nothing"
    elif not _is_same(ours, theirs, at):
        yield at, ours, theirs


def _is_same(ours: Any, theirs: Any, at: str) -> bool:
    """Return whether two values differ in nothing but what each server chooses: ages, names, node ports."""
    if at.endswith("cells[]") and _AGE.fullmatch(str(ours)) and _AGE.fullmatch(str(theirs)):
        return True
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours == theirs or masked(ours) == masked(theirs)
    is_port = at.endswith("odePort") and isinstance(ours, int) and isinstance(theirs, int) and min(ours, theirs) >= 30_000
    return type(ours) is type(theirs) and (ours == theirs or is_port)


def _in_order(entries: Any) -> Any:
    """Return managed fields or causes in one order; that of entries of the same second depends on chance."""
    return sorted(entries, key=lambda one: [str(one.get(name)) for name in _ENTRY]) if isinstance(entries, list) else entries


_UNORDERED: Final = frozenset(["causes", "managedFields"])
_ENTRY: Final = ("manager", "operation", "subresource", "apiVersion", "field", "reason", "message")
