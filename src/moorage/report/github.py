"""Gates as workflow commands of GitHub Actions, and as the Markdown of a step summary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moorage.printable import one_line, some_lines
from moorage.report.gate_report import GateReport, PendingFinding, SourceLine

__all__ = ["MOST_ANNOTATIONS", "MOST_SUMMARY_BYTES", "as_github", "github_summary"]

#: Maximum number of annotations of one kind that GitHub shows for a step.
MOST_ANNOTATIONS: Final = 10
#: Maximum size in bytes of a step summary that GitHub accepts.
MOST_SUMMARY_BYTES: Final = 1 << 20
_CUT: Final = "\n\n… cut, as GitHub shows at most 1 MiB\n"


def as_github(report: GateReport) -> str:
    """Return the workflow commands: up to ten errors, the worst first, and the summary as a notice."""
    problems = list(report.problems())
    lines = [_command("error", title, text, where) for title, text, where in problems[:MOST_ANNOTATIONS]]
    more = len(problems) - MOST_ANNOTATIONS
    rest = f" {more} more are in the step summary." if more > 0 else ""
    kind = "warning" if problems else "notice"
    return "\n".join([*lines, _command(kind, f"moorage {report.command}", report.summary + rest, None)]) + "\n"


def _command(kind: str, title: str, text: str, where: SourceLine | None) -> str:
    place = "" if where is None else f"file={_property(where.file)},line={where.line},"
    return f"::{kind} {place}title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return some_lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# -- the step summary ----------------------------------------------------------------------------------------------------


def github_summary(report: GateReport) -> str:
    """Return the step summary in Markdown, below 1 MiB."""
    parts = [f"### moorage {report.command}", _inline(report.summary)]
    if report.gates:
        gates = sorted(report.gates, key=lambda gate: gate.passed)
        cells = [("✓" if gate.passed else "✗", _inline(gate.gate), _inline(gate.text)) for gate in gates]
        parts.append(_table(("", "gate", "figures"), cells))
    if report.pending:
        listed = sorted(report.pending, key=lambda one: not one.is_new)
        parts.append(_table(("", "pending pod", "manifest", "why"), map(_pod, listed)))
    if report.details:
        parts.append(f"<details><summary>The whole answer</summary>\n\n{_fenced(some_lines(report.details))}\n\n</details>")
    return _limited("\n\n".join(parts) + "\n")


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *map(list, rows))]
    return "\n".join(lines)


def _pod(one: PendingFinding) -> tuple[str, ...]:
    return "new" if one.is_new else "", _inline(one.pod.pod), _place(one.where), _inline(one.pod.message)


def _place(where: SourceLine | None) -> str:
    return "" if where is None else _inline(f"{where.file}:{where.line}")


def _inline(text: str) -> str:
    """Return text that Markdown and HTML show as it is, in one line."""
    plain = one_line(" ".join(text.split()))
    for sign in "\\`*_[]|~":
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _limited(text: str) -> str:
    data = text.encode()
    if len(data) < MOST_SUMMARY_BYTES:
        return text
    return data[: MOST_SUMMARY_BYTES - len(_CUT.encode()) - 1].decode(errors="ignore") + _CUT
