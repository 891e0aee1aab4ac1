"""Preemption as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.printable import one_line
from moorage.report.preemption_values import PreemptionNode, PreemptionReport
from moorage.report.style import WIDTH, columns, paragraph

__all__ = ["preemption_lines"]


#: How many candidates are shown.
_CANDIDATES = 3
_INDENT = "    "


def preemption_lines(report: PreemptionReport, nodes: Sequence[str], *, wide: bool) -> Iterator[str]:
    """Yield what preemption does or would do; the candidates and the reprieve order if ``wide``."""
    by = {"": "", "only candidate": ""}.get(report.decided_by, f" Decided by: {report.decided_by}.")
    yield paragraph(one_line(report.summary + by), indent="  ")
    if report.lowest_priority is not None and report.chosen is None and not report.not_eligible:
        yield f"  A priority of {report.lowest_priority} or more would find a node to preempt on."
    if wide:
        yield from _candidates(report, nodes)


def _candidates(report: PreemptionReport, nodes: Sequence[str]) -> Iterator[str]:
    """Yield the table of the best candidates, then why each victim cannot stay."""
    found = [one for one in report.nodes if one.verdict == "candidate"]
    described = sorted((one for one in found if one.spared or any(victim.short_of for victim in one.victims)), key=_harm)
    first = [one for one in described if one.node == report.chosen]
    best = [*first, *(one for one in described if one not in first)][:_CANDIDATES]
    if best:
        yield _table(best, nodes)
    for victim in best[0].victims if best else ():
        budgets = f", violates {', '.join(victim.budgets)}" if victim.budgets else ""
        why = f": does not fit beside it ({victim.short_of})" if victim.short_of else ""
        yield paragraph(one_line(f"{victim.pod} (priority {victim.priority}{budgets}){why}"), indent="    ", hanging="      ")
    if report.reprieve:
        yield paragraph(one_line(f"Put back in this order: {', '.join(report.reprieve)}"), indent="    ", hanging="      ")


def _table(best: Sequence[PreemptionNode], nodes: Sequence[str]) -> str:
    """Return the numbers of candidates. Where the names are too long for one line, the numbers follow on the next."""
    header = ["CANDIDATE", "VICTIMS", "VIOLATIONS", "HIGHEST", "SUM", "LATEST START", "CONSIDERED"]
    rows = [_row(one, nodes) for one in best]
    text = columns(header, rows, right=(1, 2, 3, 4))
    if max(map(len, text.split("\n"))) + len(_INDENT) <= WIDTH:
        return "\n".join(f"{_INDENT}{line}" for line in text.split("\n"))
    lines = columns(["", *header[1:]], [["", *row[1:]] for row in rows], right=(1, 2, 3, 4)).split("\n")
    named = (f"{_INDENT}{one_line(row[0])}\n{_INDENT}{line}" for row, line in zip(rows, lines[1:], strict=True))
    return "\n".join([f"{_INDENT}{header[0]}\n{_INDENT}{lines[0]}", *named])


def _row(one: PreemptionNode, nodes: Sequence[str]) -> list[str]:
    numbers = (len(one.victims), one.violations, one.highest_priority, one.priority_sum)
    return [nodes[one.node], *map(str, numbers), one.latest_start or "-", "yes" if one.considered else "no"]


def _harm(one: PreemptionNode) -> tuple[int, int, int, int]:
    return one.violations, one.highest_priority, one.priority_sum, len(one.victims)
