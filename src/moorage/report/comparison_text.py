"""A comparison as text for people: the answer in words, a table of metrics with their intervals, gates, moved pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from moorage.basis.printable import one_line
from moorage.basis.wording import counted
from moorage.report.comparison_values import ComparisonValues, MoveCount, ReleaseChange, TextChange
from moorage.report.gates import GateResult, MetricComparison
from moorage.report.metric_names import amount_text, difference_text, title_of
from moorage.report.run_values import RunMeasures
from moorage.report.style import columns, paragraph

__all__ = ["comparison_text", "gate_lines", "gates_text", "interval_text"]

#: The metrics in the table without ``-o wide``, if A or B has them.
_SHOWN: Final = (
    "pending", "notCreated", "nodesUsed", "cost", "wait.p50", "wait.p99", "utilisation.cpu", "utilisation.memory",
    "balance.cpu", "balance.memory", "fragmentation", "stranded.cpu", "stranded.memory", "preemptions.victims",
)  # fmt: skip
_EVEN_IF_ZERO: Final = frozenset({"pending", "nodesUsed", "wait.p99", "utilisation.cpu", "utilisation.memory"})
#: How many pods are listed before the rest is only counted.
_LISTED = 10
#: Kinds of release changes that are printed as one sentence each.
_ONE_BY_ONE: Final = frozenset({"rule", "plugin", "default"})
#: How many pods are listed with their texts.
_TEXTS: Final = 3
#: The longest gate that fits beside its metric.
_SHORT_GATE = 20


def comparison_text(found: ComparisonValues, *, wide: bool) -> str:
    """Return the text: the summary, the table, what moved, the gates that failed, and how certain it is."""
    parts = [paragraph(one_line(found.summary)), _sides(found), _table(found, wide=wide)]
    if found.moves and wide:
        parts.append(_moves(found))
    if found.new_pending:
        parts.append(_new_pending(found.new_pending, wide=wide))
    if found.texts:
        parts.append(_texts(found.texts, wide=wide))
    if found.release_changes:
        parts.append(_release_changes(found.release_changes))
    if found.gates:
        parts.append("\n".join(gate_lines(found.gates)))
    notes = list(_notes(found))
    if notes:
        parts.append("\n".join(notes))
    parts.append(_certainty(found, wide=wide))
    return "\n\n".join(parts) + "\n"


def _sides(found: ComparisonValues) -> str:
    return "\n".join(paragraph(f"{side}  {one_line(name)}", indent="  ", hanging="     ") for side, name in _named(found))


def _named(found: ComparisonValues) -> Iterator[tuple[str, str]]:
    return zip("AB", found.names, strict=True)


# -- the table -----------------------------------------------------------------------------------------------------------


def _table(found: ComparisonValues, *, wide: bool) -> str:
    gates: dict[str, list[GateResult]] = {}
    for one in found.gates:
        gates.setdefault(one.metric, []).append(one)
    rows = [_row(one, gates.get(name, ())) for name, one in _rows(found, gates, wide=wide)]
    if found.moved is not None:
        rows += _moved_rows(found.moved, gates, wide=wide)
    table = columns(["", "A", "B", "B - A", "95% interval", ""], rows, right=(1, 2, 3))
    return "\n".join(f"  {line}".rstrip() for line in table.splitlines())


def _rows(
    found: ComparisonValues, gated: Mapping[str, object], *, wide: bool
) -> Iterator[tuple[str, MetricComparison]]:  # fmt: skip
    for name, one in found.metrics.items():
        shown = name in _SHOWN and (name in _EVEN_IF_ZERO or bool(one.a) or bool(one.b))
        by_class = name.startswith("pending.") and bool(one.difference)
        if wide or shown or by_class or name in gated:
            yield name, one


def _row(one: MetricComparison, gates: Sequence[GateResult]) -> list[str]:
    return [
        title_of(one.name), amount_text(one.name, one.a), amount_text(one.name, one.b),
        difference_text(one.name, one.difference), interval_text(one), _signs(gates),
    ]  # fmt: skip


def interval_text(one: MetricComparison) -> str:
    """Return the interval of a difference: ``exact``, ``~`` if it contains 0, or its ends; of few pairs, the extremes."""
    if one.exact:
        return "exact"
    if one.interval is None:
        return f"pairs {difference_text(one.name, one.range_of[0])} … {difference_text(one.name, one.range_of[1])}"
    if one.may_be_zero:
        return "~"
    return " … ".join(difference_text(one.name, end) for end in one.interval)


def _signs(gates: Sequence[GateResult]) -> str:
    """Return the sign of a row's gates, and the gate if it is a single short one; all are listed below the table."""
    if not gates:
        return ""
    sign = "✓" if all(gate.passed for gate in gates) else "✗"
    is_short = len(gates) == 1 and len(gates[0].gate) <= _SHORT_GATE
    return f"{sign} {gates[0].gate if is_short else counted(len(gates), 'gate')}"


def _moved_rows(moved: MoveCount, gates: Mapping[str, Sequence[GateResult]], *, wide: bool) -> Iterator[list[str]]:
    of = amount_text("moved", moved.of)
    chance = sorted(moved.by_chance)
    by_chance = ""
    if chance:
        most = "" if chance[0] == chance[-1] else f" … {chance[-1]}/{of}"
        by_chance = f"by chance: {chance[0]}/{of}{most}"
    yield ["moved", "", f"{amount_text('moved', moved.pods)}/{of}", "", by_chance, _signs(gates.get("moved", ()))]
    parts = {
        "withinGroup": moved.within_group, "toAnotherGroup": moved.to_another_group, "toAnotherZone": moved.to_another_zone,
    }  # fmt: skip
    for name, value in parts.items():
        held = gates.get(f"moved.{name}", ())
        if wide or held or (value and moved.pods):
            yield [
                f"  {title_of(f'moved.{name}').removeprefix('moved ')}",
                "",
                amount_text("moved", value),
                "",
                "",
                _signs(held),
            ]


def _moves(found: ComparisonValues) -> str:
    rows = [[one.pod, one.a or "-", one.b or "-"] for one in found.moves]
    return f"Moved, with the first seed:\n{columns(['POD', 'A', 'B'], rows)}"


def _new_pending(pods: Sequence[str], *, wide: bool) -> str:
    shown = pods if wide else pods[:_LISTED]
    more = f" and {len(pods) - len(shown)} more" if len(pods) > len(shown) else ""
    return paragraph(f"! pending in B alone: {one_line(', '.join(shown))}{more}", indent="  ", hanging="    ")


def _texts(texts: Sequence[TextChange], *, wide: bool) -> str:
    shown = texts if wide else texts[:_TEXTS]
    lines = ["Pending in both, with another text:"]
    for one in shown:
        lines.append(f"  {one_line(one.pod)}")
        lines += (
            paragraph(f"{side}  {one_line(text)}", indent="    ", hanging="       ")
            for side, text in zip("AB", (one.a, one.b), strict=True)
        )
    if len(texts) > len(shown):
        lines.append(f"  and {len(texts) - len(shown)} more")
    return "\n".join(lines)


def _release_changes(changes: Sequence[ReleaseChange]) -> str:
    """Return the release changes by kind: one line for each rule, and one for all names with the same change."""
    kinds: dict[str, list[str]] = {}
    for one in changes:
        kinds.setdefault(one.kind, []).append(one_line(one.text))
    lines = ["With the release of B:"]
    for kind, texts in kinds.items():
        said = texts if kind in _ONE_BY_ONE else _together(texts)
        lines += (paragraph(f"{kind:<7}  {text}", indent="  ", hanging=" " * 11) for text in said)
    return "\n".join(lines)


def _together(texts: Iterable[str]) -> Iterator[str]:
    """Yield ``on: A, B`` for ``A is on`` and ``B is on``."""
    names: dict[str, list[str]] = {}
    for text in texts:
        name, _, what = text.partition(" ")
        names.setdefault(what.removeprefix("is "), []).append(name)
    yield from (f"{what}: {', '.join(listed)}" for what, listed in names.items())


def gate_lines(gates: Sequence[GateResult]) -> Iterator[str]:
    """Yield a line for each gate, the failed ones first."""
    for gate in sorted(gates, key=lambda one: one.passed):
        yield paragraph(f"{'✓' if gate.passed else '✗'} {one_line(gate.text)}", indent="  ", hanging="    ")


def gates_text(found: RunMeasures) -> str:
    """Return the gates of a simulation, after what it was compared with."""
    against = f", compared with {found.against}" if found.against else ""
    return "\n".join([one_line(f"Gates{against}:"), *gate_lines(found.gates)]) + "\n"


def _notes(found: ComparisonValues) -> Iterator[str]:
    for side, notes in zip("AB", found.notes, strict=True):
        for note in notes:
            yield paragraph(f"! {side} alone: {one_line(note)}", indent="  ", hanging="    ")


def _certainty(found: ComparisonValues, *, wide: bool) -> str:
    pairs, runs = len(found.runs[1]), found.proof.runs
    what = f"{counted(pairs, 'pair')} of runs with the same arrivals and seeds ({counted(runs, 'run')} of the engine)"
    many = "" if pairs >= 5 else "; give --seeds 10 for intervals" if pairs > 1 else "; one pair says nothing about chance"
    return paragraph(f"{what}{many}." + ("" if wide else " More: -o wide"))
