"""Gates and pending pods as SARIF 2.1.0, which code scanning shows beside the line of the manifest or configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from moorage.printable import escape_json
from moorage.report.gate_report import GateReport, PendingFinding, SourceLine
from moorage.report.gates import GateResult

__all__ = ["as_sarif"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_Rules = dict[str, dict[str, Any]]


def as_sarif(report: GateReport) -> str:
    """Return the document: one rule for each gate, and one for each set of plugins that keeps pods pending."""
    rules: _Rules = {}
    results = [*_gates(report, rules), *_pods(report, rules)]
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


def _pods(report: GateReport, rules: _Rules) -> Iterator[dict[str, Any]]:
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
        place["logicalLocations"] = [{"fullyQualifiedName": one.pod.pod, "kind": "resource"}]
    return [place] if place else []


def _artifact(file: str) -> Mapping[str, str]:
    if file.startswith("/"):
        return {"uri": f"file://{quote(file)}"}
    return {"uri": quote(file.removeprefix("./")), "uriBaseId": "SRCROOT"}


def _fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
