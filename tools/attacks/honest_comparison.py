"""Compare the embedded server with a kube-apiserver, or with its recorded answers, under honest traffic."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from moorage.api.documents.served_kinds import set_or_drop
from tools.attacks.differences import (
    AnswerDifference,
    IsOwn,
    differences_of_objects,
    masked,
    read_body,
    without_empty,
    without_own,
)
from tools.attacks.honest_requests import Exchange, play
from tools.attacks.sides import ComparedServer, ServerAddress, embedded_side, is_own, reference_side

__all__ = ["compare_honest", "honest_answers", "honest_differences"]

#: One answer: label, code, media type, warnings and body.
Answer = tuple[str, int, str, list[str], Any]
#: Differences that the documentation names: descriptions of columns, service accounts, the generation of daemon sets.
_KNOWN: Final = re.compile(r"columnDefinitions|serviceAccount(Name)?$|deprecated\.daemonset|status\.conditions$")
_MANAGED: Final = re.compile(r"managedFields")
#: Kinds whose managed fields differ, and kinds whose deletion takes a moment on a kube-apiserver.
_UNMANAGED: Final = re.compile(r"/(events|daemonsets)\b")
#: Watches of kinds of which a kube-apiserver writes unchanged versions, too: events, and kinds with a finalizer from the start.
_REWRITTEN: Final = re.compile(r"^watch .*/(events|persistentvolumeclaims|podgroups)\?")
#: Definitions have a form of their own in protobuf.
_OTHER_FORM: Final = re.compile(r"^get as protobuf: GET \S+/customresourcedefinitions/")
_LEAVING: Final = re.compile(r"^(release|get the deleted|list.*|delete): \w+ \S+/customresourcedefinitions\b")


def compare_honest(against: ServerAddress) -> tuple[int, list[str]]:
    """Return the number of requests, and a line for each difference between the servers."""
    ours, theirs = honest_answers(), honest_answers(against)
    return len(ours), [*honest_differences(ours, theirs)]


def honest_answers(server: ServerAddress | None = None, resources: Collection[str] = ()) -> list[Answer]:
    """Return the answers of a server, the embedded one without an address. ``resources`` restricts the requests."""
    return asyncio.run(_play(embedded_side(1) if server is None else reference_side(server), resources))


async def _play(server: AbstractAsyncContextManager[ComparedServer], resources: Collection[str]) -> list[Answer]:
    async with server as side:
        return _answers(await play(side, resources))


def _answers(exchanges: Iterable[Exchange]) -> list[Answer]:
    """Return the compared parts of each answer. Requests with the same label are numbered."""
    seen: dict[str, int] = {}
    found: list[Answer] = []
    for one in exchanges:
        label = re.sub(r"(resourceVersion|continue)=[^&]*", r"\1=…", one.label)
        seen[label] = seen.get(label, 0) + 1
        label = f"{label} #{seen[label]}" if seen[label] > 1 else label
        form = one.answer.headers.get("content-type", "")
        warnings = [masked(text) for text in one.answer.warnings]
        found.append((label, one.answer.code, form, warnings, _body(one)))
    return found


def _body(exchange: Exchange) -> Any:
    kind = exchange.kind
    is_made: IsOwn = (lambda one: is_own(kind, one)) if kind is not None else (lambda _: False)
    if exchange.answer.streams or "watch=1" in exchange.label:
        return _sorted([json.loads(line) for line in exchange.answer.body.splitlines() if line])
    document = _sorted(without_own(read_body(exchange.answer), is_made))
    return without_empty(document) if "protobuf" in exchange.answer.headers.get("content-type", "") else document


def _sorted(value: Any) -> Any:
    """Return a document with its managed fields in one order; that of entries in the same second depends on chance. The token
    of a service account is left out, which a kube-apiserver without the admission plugin ServiceAccount does not give.
    """
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _sorted(inner) for name, inner in value.items()}
    for name in _MOUNTS & made.keys():
        kept = [one for one in made[name] or () if not one.get("name", "").startswith(_MOUNTED)]
        if len(kept) < len(made[name] or ()):
            set_or_drop(made, name, kept or None)
    if isinstance(entries := made.get("managedFields"), list):
        made["managedFields"] = sorted(entries, key=lambda one: [str(one.get(name)) for name in _ENTRY])
    return made


#: The fields that hold the token of a service account, and how it is named.
_MOUNTS: Final = frozenset(["volumes", "volumeMounts"])
_MOUNTED: Final = "kube-api-access-"
_ENTRY: Final = ("manager", "operation", "subresource", "apiVersion")


def honest_differences(ours: list[Answer], theirs: list[Answer]) -> Iterator[str]:
    """Yield a line for each difference between the answers of two servers to the same requests."""
    if [one[0] for one in ours] != [one[0] for one in theirs]:
        odd = next((pair for pair in zip(ours, theirs, strict=False) if pair[0][0] != pair[1][0]), (("the end",), ("the end",)))
        yield f"the sequences part at {odd[0][0]!r} here, {odd[1][0]!r} there"
        return
    for here, there in zip(ours, theirs, strict=True):
        for one in _of_pair(here, there):
            yield f"{here[0]}\n    {one}"


def _of_pair(here: Answer, there: Answer) -> Iterator[AnswerDifference]:
    if _LEAVING.search(here[0]):
        return
    for aspect, ours, theirs in (("code", here[1], there[1]), ("type", here[2], there[2]), ("warnings", here[3], there[3])):
        if ours != theirs:
            yield AnswerDifference(aspect, "", str(ours), str(theirs))
    if _REWRITTEN.search(here[0]) and _is_part(here[0], here[4], there[4]):
        return
    if not _OTHER_FORM.search(here[0]):
        yield from _of_bodies(here[0], here[4], there[4])


def _of_bodies(label: str, ours: Any, theirs: Any) -> Iterator[AnswerDifference]:
    for one in differences_of_objects("body", ours, theirs):
        is_unmanaged = bool(_MANAGED.search(one.at) and _UNMANAGED.search(label))
        if not _KNOWN.search(one.at) and not is_unmanaged:
            yield one


def _is_part(label: str, ours: list[Any], theirs: list[Any]) -> bool:
    """Return whether a kube-apiserver sent all of our events, in this order, and perhaps more between them."""
    rest = iter(theirs)
    return all(any(not [*_of_bodies(label, one, other)] for other in rest) for one in ours)
