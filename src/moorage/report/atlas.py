"""The atlas of pending pods: find the situations that an event's text may stand for.

An event counts the nodes by the reason for which each refused the pod. The table ``atlas.json`` has the reasons of each
situation, with the cause and what to do in its smallest cluster. It is made from ``tests/reports/atlas``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
from msgspec import Struct

from moorage.basis import text_of

#: Where the pages are, relative to the documentation.
PAGES: Final = "atlas"
_MOST: Final = 5
#: How much more like an event a situation is that has the key of a taint in it.
_NAMED: Final = 0.6
_COUNTED: Final = re.compile(r"^[0-9]+ ")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^' ]*'")
_TAINT: Final = re.compile(r"\{([^}:]*)[^}]*\}")
_BREAK: Final = re.compile(r", (?=[0-9]+ |[a-z])|\. (?=[a-z])")
#: Texts of earlier releases, and those of today.
_EARLIER: Final = (
    (re.compile(r"node\(s\) had taint \{([^}]*)\}, that the pod didn't tolerate"), r"node(s) had untolerated taint {\1}"),
    (re.compile(r"node\(s\) had taints that the pod didn't tolerate"), "node(s) had untolerated taint(s)"),
    (re.compile(r"node\(s\) didn't match node selector"), "node(s) didn't match Pod's node affinity/selector"),
    (
        re.compile(r"node\(s\) didn't match pod affinity/anti-affinity(?: rules)?"),
        "node(s) didn't match pod anti-affinity rules",
    ),
    (re.compile(r"node\(s\) didn't satisfy existing pods anti-affinity rules"), "node(s) didn't match pod anti-affinity rules"),
    (re.compile(r"node\(s\) didn't find available persistent volumes to bind"), "node(s) did not have available volumes"),
    (re.compile(r"Insufficient pods"), "Too many pods"),
)


class AtlasRemedy(Struct, frozen=True):
    """A change that helps in the smallest cluster of a situation, with its commands."""

    text: str
    commands: tuple[str, ...] = ()


class AtlasEntry(Struct, frozen=True):
    """A situation. ``reasons``: those of its event; ``cause``: sentences; ``do``: what helps; ``avoid``: what does not."""

    name: str
    title: str
    event: str
    reasons: tuple[str, ...]
    cause: tuple[str, ...]
    do: tuple[AtlasRemedy, ...]
    avoid: str


@cache
def entries() -> tuple[AtlasEntry, ...]:
    """Return all situations."""
    return msgspec.json.decode(text_of("moorage.report", "atlas.json"), type=tuple[AtlasEntry, ...])


def reasons_of(event: str) -> list[str]:
    """Return the reasons in an event's text, sorted, without numbers of nodes and names of objects."""
    text = event.partition(" preemption:")[0]
    for pattern, today in _EARLIER:
        text = pattern.sub(today, text)
    _, found, reasons = text.partition("nodes are available: ")
    parts = _BREAK.split(reasons if found else text)
    return sorted({one for part in parts if (one := _plain(part))})


def _plain(reason: str) -> str:
    text = _COUNTED.sub("", reason.strip().rstrip("."))
    return _QUOTED.sub('"…"', _TAINT.sub(r"{\1}", text)).strip()


def find_entries(event: str) -> list[AtlasEntry]:
    """Return the situations whose events are most like a text, the closest first; none if they have no reason in common.

    Of equally close ones, those in the order of the atlas.
    """
    asked = set(reasons_of(event))
    named = {found[1] for found in _TAINT.finditer(event) if found[1]}
    ranked: list[tuple[float, int, AtlasEntry]] = []
    for place, entry in enumerate(entries()):
        held = set(entry.reasons)
        likeness = _likeness(asked, held)
        if likeness:
            said = " ".join((entry.event, *entry.cause))
            likeness += _NAMED * any(name in said for name in named)
            ranked.append((-likeness, place, entry))
    return [entry for _, _, entry in sorted(ranked, key=lambda one: one[:2])[:_MOST]]


def _likeness(asked: set[str], held: set[str]) -> float:
    """Return how much two sets of reasons have in common, from 0 to 1; of two taints, half."""
    if not asked or not held:
        return 0.0
    common = sum(max((_alike(one, other) for other in held), default=0.0) for one in asked)
    return common / max(len(asked), len(held))


def _alike(one: str, other: str) -> float:
    if one == other:
        return 1.0
    heads = [text.partition(" {")[0].removesuffix("(s)") for text in (one, other)]
    return 0.5 if heads[0] == heads[1] else 0.0


def told(found: Sequence[AtlasEntry]) -> str:
    """Return the situations as text: title, cause, what to do and what not to do, and the page."""
    blocks = []
    for one in found:
        lines = [one.title, f"  {' '.join(f'{text}.' for text in one.cause)}"]
        for remedy in one.do[:2]:
            lines.append(f"  do: {remedy.text}")
            lines += [f"      {command}" for command in remedy.commands]
        lines += [f"  not: {one.avoid}", f"  page: moorage help {one.name}"]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
