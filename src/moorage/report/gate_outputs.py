"""Gates and pending pods for a pipeline: as text, for GitHub Actions, as JUnit XML and as SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct

from moorage.basis.printable import escape_json, one_line, some_lines
from moorage.report.gates import GateResult
from moorage.report.run_values import UnplacedPod

# The results of a comparison or a simulation for a pipeline: gates, and pending pods with their manifests.


class SourceLine(Struct, frozen=True):
    """A line of a file, counted from 1."""

    file: str
    line: int = 1


class PendingFinding(Struct, frozen=True):
    """A pod that stays pending, or pods of one workload that do for one reason, and the manifest that they come from.

    ``is_new``    the pod was not pending before
    ``compared``  there is an earlier run; without one, every pod is new that the input does not show as unschedulable
    ``count``     how many pods; ``pod`` is the first of them
    ``advice``    the cause and the first remedy, as an explanation has them
    """

    pod: UnplacedPod
    where: SourceLine | None = None
    is_new: bool = False
    compared: bool = True
    count: int = 1
    advice: str = ""

    @property
    def name(self) -> str:
        """The pod, or the workload of several."""
        return self.pod.pod if self.count == 1 else f"{self.pod.pod.partition('/')[0]}/{self.pod.workload}"

    @property
    def text(self) -> str:
        """The finding in one sentence."""
        one = self.count == 1
        who = self.name if one else f"{self.count} pods of {self.name}"
        before = f" and {'was' if one else 'were'} not before" if self.is_new and self.compared else ""
        text = f"{who} {'is' if one else 'are'} pending{before}: {self.pod.message or 'not tried'}"
        return f"{text} {self.advice}" if self.advice else text


class GateReport(Struct, frozen=True):
    """``command`` is what ran, ``summary`` its first line, ``where`` the configuration or the first manifest.

    ``version``  of moorage
    ``details``  the whole text, for formats that have room for it
    """

    command: str
    summary: str
    gates: tuple[GateResult, ...] = ()
    pending: tuple[PendingFinding, ...] = ()
    where: SourceLine | None = None
    details: str = ""
    version: str = "0.0.0"

    @property
    def failed(self) -> tuple[GateResult, ...]:
        return tuple(gate for gate in self.gates if not gate.passed)

    def problems(self) -> Iterator[tuple[str, str, SourceLine | None]]:
        """Yield title, text and place of each problem, the worst first: failed gates, then newly pending pods."""
        for gate in self.failed:
            about = (one.where for one in self.pending if one.where and (one.name in gate.text or one.pod.pod in gate.text))
            yield f"gate failed: {gate.gate}", gate.text, next(about, self.where)
        for one in self.pending:
            if one.is_new:
                yield f"pod pending: {one.name}" if one.count == 1 else f"pods pending: {one.name}", one.text, one.where


# -- github ------------------------------------------------------------------------------------------------------------
# Gates as workflow commands of GitHub Actions, and as the Markdown of a step summary.

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
    name = one.name if one.count == 1 else f"{one.name} ({one.count} pods)"
    return "new" if one.is_new else "", _inline(name), _place(one.where), _inline(f"{one.pod.message} {one.advice}")


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


# -- junit -------------------------------------------------------------------------------------------------------------
# Gates as JUnit XML, which CI systems such as GitLab and Jenkins show: one test case for each gate.

#: Characters that XML 1.0 does not allow.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: How many pods a failure lists.
_LISTED: Final = 50


def as_junit(report: GateReport) -> str:
    """Return the document. Without gates, the only test case checks that no pod is pending."""
    cases = [_case(report, gate) for gate in report.gates or _implied(report)]
    failures = sum("<failure" in case for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="0"'
    name = quoteattr(f"moorage {report.command}")
    return "\n".join([
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={name} {counts}>",
        f"  <testsuite name={name} {counts}>",
        *cases,
        f"    <system-out>{escape(_clean(report.summary))}</system-out>",
        "  </testsuite>",
        "</testsuites>",
        "",
    ])  # fmt: skip


def _implied(report: GateReport) -> tuple[GateResult, ...]:
    count = len(report.pending)
    return (GateResult("pending > 0", not count, f"pending: {count}", "pending"),)


def _case(report: GateReport, gate: GateResult) -> str:
    where = "" if report.where is None else f" file={_attribute(report.where.file)}"
    head = f"    <testcase classname={_attribute(f'moorage.{report.command}')} name={_attribute(gate.gate)}{where}"
    if gate.passed:
        return f"{head}/>"
    body = escape(_clean("\n".join([gate.text, *_pods(report, gate)])))
    return f'{head}>\n      <failure message={_attribute(gate.text)} type="gate">{body}</failure>\n    </testcase>'


def _pods(report: GateReport, gate: GateResult) -> list[str]:
    """Return the pods that a gate on pending pods is about."""
    if gate.metric.partition(".")[0] not in {"pending", "newPending"}:
        return []
    new = [one for one in report.pending if one.is_new] or list(report.pending)
    lines = [one.text + ("" if one.where is None else f" ({one.where.file}:{one.where.line})") for one in new[:_LISTED]]
    return lines + ([f"and {len(new) - _LISTED} more"] if len(new) > _LISTED else [])


def _attribute(text: str) -> str:
    return quoteattr(_clean(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)


# -- sarif -------------------------------------------------------------------------------------------------------------

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_Rules = dict[str, dict[str, Any]]


def as_sarif(report: GateReport) -> str:
    """Return the document: one rule for each gate, and one for each set of plugins that keeps pods pending."""
    rules: _Rules = {}
    results = [*_gates(report, rules), *_pending_pods(report, rules)]
    numbers = {name: number for number, name in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = numbers[result["ruleId"]]
    run = {
        "tool": {"driver": {"name": "moorage", "semanticVersion": report.version, "rules": list(rules.values())}},
        "invocations": [{"executionSuccessful": True}],
        "automationDetails": {"id": f"moorage/{report.command}/"},
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The directory in which moorage ran."}}},
        "results": results,
        "properties": {"summary": report.summary},
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _gates(report: GateReport, rules: _Rules) -> Iterator[dict[str, Any]]:
    for gate in report.gates:
        name = f"gate/{gate.gate}"
        rules.setdefault(name, _rule(name, "error", f"The gate {gate.gate} fails a comparison when it holds."))
        if not gate.passed:
            yield _result(name, "error", gate, report.where)


def _result(name: str, level: str, gate: GateResult, where: SourceLine | None) -> dict[str, Any]:
    return {
        "ruleId": name, "level": level, "kind": "fail", "message": {"text": gate.text}, "locations": _locations(where),
        "partialFingerprints": {"moorage/v1": _fingerprint(gate.gate)},
    }  # fmt: skip


def _pending_pods(report: GateReport, rules: _Rules) -> Iterator[dict[str, Any]]:
    for one in report.pending:
        plugins = ",".join(one.pod.plugins) or "untried"
        name = f"pending/{plugins}"
        text = f"A pod stays pending because of {plugins}." if one.pod.plugins else "A pod stays pending and is not tried."
        rules.setdefault(name, _rule(name, "warning", text))
        yield {
            "ruleId": name, "level": _level(report, one), "kind": "fail", "message": {"text": one.text},
            "locations": _locations(one.where, one), "partialFingerprints": {"moorage/v1": _fingerprint(f"pod {one.pod.pod}")},
        }  # fmt: skip


def _level(report: GateReport, one: PendingFinding) -> str:
    """Return the SARIF level of a pending pod: with gates, ``note`` for one that was pending before."""
    return "error" if one.is_new else "note" if report.gates else "warning"


def _rule(name: str, level: str, text: str) -> dict[str, Any]:
    return {"id": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}


def _locations(where: SourceLine | None, one: PendingFinding | None = None) -> list[dict[str, Any]]:
    place: dict[str, Any] = {}
    if where is not None:
        place["physicalLocation"] = {"artifactLocation": _artifact(where.file), "region": {"startLine": where.line}}
    if one is not None:
        place["logicalLocations"] = [{"fullyQualifiedName": one.name, "kind": "resource"}]
    return [place] if place else []


def _artifact(file: str) -> Mapping[str, str]:
    if file.startswith("/"):
        return {"uri": f"file://{quote(file)}"}
    return {"uri": quote(file.removeprefix("./")), "uriBaseId": "SRCROOT"}


def _fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
