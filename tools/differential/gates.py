"""Turn each feature gate of a release that can be set, and count the decisions of kube-scheduler that change by it.

A gate is set to what it is not by default, with the gates that it needs open, or those that need it closed. The same scenarios
are decided with all gates as they are: a decision changes if kube-scheduler never gives it the other way. Where a gate decides,
Moorage decides as well, and must agree.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from moorage.api.releases import find_release
from moorage.api.releases.release import Release
from moorage.api.releases.release_gates import gates_table
from tools.differential import groups
from tools.differential.bred_clusters import is_drawn
from tools.differential.oracle import record
from tools.differential.scheduler import MAKERS, OF_WAKES, WAITING, compared

Document = dict[str, Any]
#: How often both answers are asked for before a decision counts as changed.
AGAIN: Final = 3
#: Gates that the real program closes while it compares, and why.
CLOSED_THERE: Final = ("SchedulerAsyncPreemption", "SchedulerAsyncAPICalls")
#: Names that set many gates.
OF_MANY: Final = frozenset(["AllAlpha", "AllBeta"])
#: How often the needs of gates are asked for: each answer names the next ones.
PASSES: Final = 4
_NEEDS: Final = re.compile(r"(\w+) is enabled, but depends on features that are disabled: \[([^\]]*)\]")


class RealGate(NamedTuple):
    """A gate as the real program has it."""

    name: str
    default: bool
    stage: str
    locked: bool


class GateRow(NamedTuple):
    """What turning a gate did: decisions asked for, those that changed, those that Moorage decides otherwise."""

    gate: RealGate
    decisions: int
    changed: int
    different: int


def real_gates(program: Path) -> list[RealGate]:
    """Return the gates of the real program, by name."""
    text = subprocess.run([str(program), "-gates"], stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603
    table = json.loads(text)
    return [RealGate(name, one["default"], one["stage"] or "GA", one["locked"]) for name, one in sorted(table.items())]


def needs_of(program: Path, gates: Mapping[str, RealGate]) -> dict[str, set[str]]:
    """Return the gates that each gate needs: those known here, and those that the real program names when it refuses a gate."""
    known = gates_table()["needs"]
    needs = {name: {one for one in known.get(name, "").split() if one in gates} for name in gates}
    left = _settable(gates)
    for _ in range(PASSES):
        asked: list[Document] = [{"name": name, "objects": [], "featureGates": turned(name, gates, {}, needs)} for name in left]
        told = {name: str(one.get("refused", "")) for name, one in zip(left, record(program, asked), strict=True)}
        for dependent, others in (found for text in told.values() for found in _NEEDS.findall(text)):
            needs[dependent] |= {other for other in others.split() if other in gates}
        left = [name for name, text in told.items() if text]
        if not left:
            break
    return needs


def turned(
    gate: str, gates: Mapping[str, RealGate], base: Mapping[str, bool], needs: Mapping[str, set[str]]
) -> dict[str, bool]:
    """Return the settings that turn a gate: itself, what it needs open, what needs it closed."""

    def is_open(name: str) -> bool:
        return base.get(name, gates[name].default)

    value = not is_open(gate)
    found, waiting = dict(base), [gate]
    while waiting:
        one = waiting.pop()
        found[one] = value
        others = needs.get(one, set()) if value else {name for name, needed in needs.items() if one in needed}
        waiting += [other for other in sorted(others) if found.get(other, is_open(other)) is not value]
    return {name: open_ for name, open_ in found.items() if name in base or open_ is not gates[name].default}


def _settable(gates: Mapping[str, RealGate]) -> list[str]:
    return [name for name, one in gates.items() if not one.locked and name not in OF_MANY]


def swept(program: Path, release: str, *, seed: int, count: int) -> Iterator[GateRow]:
    """Yield a row for each gate that can be set: ``count`` scenarios of each kind, one if it changes nothing there."""
    emulated = find_release(release)
    assert emulated is not None
    gates = {one.name: one for one in real_gates(program)}
    needs, settable = needs_of(program, gates), _settable(gates)
    rows: dict[str, Counter[str]] = {name: Counter() for name in settable}
    kinds = [kind for kind in MAKERS if kind != "documents" and (kind != groups.MODE or emulated.series in groups.VERSIONS)]
    for number in range(count):
        named = [name for name in settable if number == 0 or name in emulated.gates or rows[name]["changed"]]
        for at, kind in enumerate(kinds):
            scenario = MAKERS[kind](seed * 1_000_000 + number * len(kinds) + at, release)
            base = scenario.pop("featureGates", {}) if kind == groups.MODE else {}
            variants = {name: {**scenario, "featureGates": turned(name, gates, base, needs)} for name in named}
            for name, counts in _turns(program, kind, {**scenario, "featureGates": base}, variants, emulated):
                rows[name] += counts
    for name in settable:
        yield GateRow(gates[name], rows[name]["decisions"], rows[name]["changed"], rows[name]["different"])


def _turns(
    program: Path, kind: str, scenario: Document, variants: Mapping[str, Document], release: Release
) -> Iterator[tuple[str, Counter[str]]]:
    """Decide a scenario with its gates as they are, and once for each gate with that one turned."""
    asked = [scenario, *variants.values()]
    first, *answers = record(program, asked, at_once=WAITING if kind in OF_WAKES else 1)
    for (name, variant), expected in zip(variants.items(), answers, strict=True):
        if not _parts(first) or not _parts(expected):
            continue
        changed = _changed(program, scenario, variant, first, expected)
        counts: Counter[str] = Counter(decisions=len(_parts(first)), changed=len(changed))
        if changed or name in release.gates:
            counts["different"] = len(compared(program, kind, variant, expected, Counter()))
        yield name, counts


def _changed(program: Path, scenario: Document, variant: Document, first: Document, second: Document) -> set[str]:
    """Return the decisions that kube-scheduler never gives the other way."""
    before, after = [_parts(first)], [_parts(second)]
    found = {key for key in before[0].keys() | after[0].keys() if before[0].get(key) != after[0].get(key)}
    for _ in range(AGAIN - 1):
        if not found:
            break
        here, there = record(program, [scenario, variant])
        before.append(_parts(here))
        after.append(_parts(there))
        found = {key for key in found if not ({one.get(key) for one in before} & {one.get(key) for one in after})}
    return found


def _parts(expected: Mapping[str, Any]) -> dict[str, str]:
    """Return each decision of an answer as a text."""
    if "changes" in expected:
        return {str(at): json.dumps(one, sort_keys=True) for at, one in enumerate(expected["changes"])}
    if "played" in expected:
        played = expected["played"]
        parts = {f"{part} {key}": value for part in ("bound", "failed", "groups") for key, value in played[part].items()}
        return {key: json.dumps(value, sort_keys=True) for key, value in parts.items()}
    return {one["pod"]: json.dumps(one, sort_keys=True) for one in expected.get("results", ())}


def table(rows: Iterable[GateRow], release: str) -> str:
    """Return the gates that decide, or that do in the real program, as a table of Markdown, and a line about the others."""
    emulated = find_release(release)
    assert emulated is not None
    held = list(rows)
    shown = [row for row in held if row.changed or row.different or row.gate.name in emulated.gates]
    lines = [["gate", "by default", "decisions", "changed", "different", "remark"], ["---"] * 6]
    lines += [
        [
            f"`{row.gate.name}`", "open" if row.gate.default else "closed", f"{row.decisions:,}", f"{row.changed:,}",
            f"{row.different:,}", _remark(row, emulated),
        ]
        for row in shown
    ]  # fmt: skip
    others = [row for row in held if row not in shown]
    told = f"{len(others)} other gates that can be set changed none of {sum(row.decisions for row in others):,} decisions."
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", told])


def _remark(row: GateRow, release: Release) -> str:
    name = row.gate.name
    if name in CLOSED_THERE:
        return "closed in other comparisons"
    if name not in release.gates:
        return "decides in kube-scheduler alone"
    return "" if is_drawn(name, release) else "drawn here alone"
