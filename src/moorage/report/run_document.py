"""A run as a document for programs: ``kind: SimulationReport``, versioned, in JSON or YAML.

The schema is described in ``docs/reference/simulation-report.md``. Keys are sorted and nothing depends on the machine, so equal
runs give equal bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from moorage.api.yaml_writing import PrintableDumper
from moorage.printable import escape_json
from moorage.report.claim_report import claim_data
from moorage.report.event_lines import EventLog
from moorage.report.group_report import group_data
from moorage.report.outcome import PodOutcome, Run
from moorage.report.refused_report import refused_data
from moorage.report.run_values import RunMeasures, json_number
from moorage.report.scores import ScoreLog

__all__ = ["API_VERSION", "as_data", "as_json", "as_yaml"]

API_VERSION = "moorage.dev/v1"
_STATES = ("Placed", "Pending", "Preempted", "Finished", "Deleted")


def as_data(
    run: Run, events: EventLog | None = None, scores: ScoreLog | None = None, *, listed: Run | None = None
) -> dict[str, Any]:
    """Return the report as plain data, with every decision if ``events`` is given and with ``scores`` if given.

    ``listed`` has the pods to list, if these are not all of the run; the summary counts all.
    Amounts are integers: cpu in millicores, memory in bytes, others in counts.
    """
    shown = listed or run
    data: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "SimulationReport",
        "release": run.release,
        "seed": run.seed,
        "summary": _summary(run),
        "pods": [_pod(pod) for pod in shown.pods],
        "nodes": [
            {
                "name": node.name,
                "pods": node.pods,
                "placed": node.placed,
                "allowedPods": node.allowed_pods,
                "allocatable": dict(node.allocatable),
                "requested": dict(node.requested),
            }
            for node in run.nodes
        ],
        **claim_data(shown.volumes, shown.devices),
        **group_data(shown.groups),
        **({"notCreated": refused_data(shown.refused)} if shown.refused else {}),
        "notes": [{"kind": note.kind, "text": note.text} for note in run.notes],
    }
    if run.before is not None:
        data |= {"changes": list(run.changes), "before": _summary(run.before)}
    if run.measures is not None:
        data |= _measures(run.measures)
    if events is not None:
        data["events"] = events.entries
    if scores is not None:
        data["scores"] = scores.as_data()
    return data


def _measures(found: RunMeasures) -> dict[str, Any]:
    """Return the measurements that let later runs use this report as a baseline, and the gates."""
    gates = [{"gate": one.gate, "passed": one.passed, "metric": one.metric, "text": one.text} for one in found.gates]
    return {
        **({"input": {"digest": found.digest}} if found.digest else {}),
        "metrics": {name: json_number(value, exactly=True) for name, value in found.run.metrics.items()},
        **({"gates": gates} if gates else {}),
        **({"comparedWith": found.against} if found.against else {}),
    }


def _summary(run: Run) -> dict[str, Any]:
    peaks = run.peaks()
    return {
        "pods": {state.lower(): len(run.in_state(state)) for state in _STATES},
        **({"notCreated": run.not_created} if run.refused else {}),
        "nodes": len(run.nodes),
        "attempts": run.attempts,
        "endedSeconds": round(run.ended_s, 3),
        "resources": {
            name: {"allocatable": offered, "requested": asked, "peak": peaks.get(name, 0)}
            for name, (offered, asked) in run.totals().items()
        },
    }


def _pod(pod: PodOutcome) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "state": pod.state,
        "node": pod.node or None,
        "workload": pod.workload or None,
        "schedulerName": pod.scheduler_name,
        "priority": pod.priority,
        "requests": dict(pod.requests),
        "arrivedSeconds": round(pod.arrived_s, 3),
        "placedSeconds": None if pod.placed_s is None else round(pod.placed_s, 3),
        "endedSeconds": None if pod.ended_s is None else round(pod.ended_s, 3),
        "attempts": pod.attempts,
        "message": pod.message or None,
        "nominatedNode": pod.nominated or None,
        "preemptedBy": pod.preempted_by or None,
        "replacedBy": pod.replaced_by or None,
    }
    return {key: value for key, value in shown.items() if value is not None}


def as_json(run: Run, events: EventLog | None = None, scores: ScoreLog | None = None, *, listed: Run | None = None) -> str:
    """Return the report as indented JSON with sorted keys and a newline at the end."""
    text = msgspec.json.encode(as_data(run, events, scores, listed=listed), order="sorted")
    return escape_json(msgspec.json.format(text, indent=2).decode()) + "\n"


def as_yaml(run: Run, events: EventLog | None = None, scores: ScoreLog | None = None, *, listed: Run | None = None) -> str:
    """Return the report as YAML. Every string is quoted, so that no YAML reader parses one as a number."""
    return yaml.dump(
        as_data(run, events, scores, listed=listed), Dumper=_Quoting, sort_keys=True, allow_unicode=True, width=4096
    )


class _Quoting(PrintableDumper):
    """Writes strings in double quotes and keys plain."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Quoting.add_representer(str, _quoted)
