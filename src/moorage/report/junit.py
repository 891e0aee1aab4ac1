"""Gates as JUnit XML, which CI systems such as GitLab and Jenkins show: one test case for each gate."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from moorage.report.gate_report import GateReport
from moorage.report.gates import GateResult

__all__ = ["as_junit"]

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
