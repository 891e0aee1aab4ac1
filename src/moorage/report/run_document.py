"""A run as a document for programs: ``kind: SimulationReport``, versioned, in JSON or YAML.

The schema is described in ``docs/reference/simulation-report.md``. Keys are sorted and nothing depends on the machine, so equal
runs give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from moorage.basis.printable import escape_json, one_line
from moorage.report.claims_and_groups import claim_data, group_data
from moorage.report.node_scores import ScoreLog
from moorage.report.obstacles import EventLog, obstacle_lines
from moorage.report.outcome import PodOutcome, RefusedPods, Run
from moorage.report.run_values import RunMeasures, json_number
from moorage.report.style import PLAIN, Style
from moorage.report.yaml_writing import yaml_text

# The course of a run: pending pods and resources in use, at each time at which they change.


class RunMoment(NamedTuple):
    """The state from a time until the next moment. ``shares`` are requested amounts as shares of the allocatable ones."""

    at_s: float
    pending: int
    shares: dict[str, float]


def moments(run: Run) -> list[RunMoment]:
    """Return the moments of a run, the first at its start."""
    totals = run.totals()
    held = {name: asked for name, (_, asked) in totals.items()}
    changes = list(_changes(run.pods))
    for _, _, amounts in changes:
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) - amount
    pending = 0
    found: dict[float, RunMoment] = {}
    for time_s, waiting, amounts in sorted([(0.0, 0, {}), *changes], key=lambda change: change[0]):
        pending += waiting
        for name, amount in amounts.items():
            held[name] += amount
        shares = {name: held[name] / offered for name, (offered, _) in totals.items() if offered}
        found[time_s] = RunMoment(time_s, pending, shares)
    return list(found.values())


def _changes(pods: Iterable[PodOutcome]) -> Iterator[tuple[float, int, dict[str, int]]]:
    """Yield each change of the number of pending pods and of requested amounts, with its time."""
    for pod in pods:
        if pod.placed_s is not None or pod.state == "Pending":
            yield pod.arrived_s, 1, {}
        wants = {**pod.requests, "pods": 1} if pod.node else {}
        if pod.placed_s is not None:
            yield pod.placed_s, -1, wants
        if pod.ended_s is not None and pod.node:
            yield pod.ended_s, 0, {name: -amount for name, amount in wants.items()}


# -- refused report ----------------------------------------------------------------------------------------------------


def refused_lines(refused: Iterable[RefusedPods], style: Style = PLAIN) -> Iterator[str]:
    """Yield each workload with the API server's message below it."""
    for one in refused:
        title = one.workload or f"Pod/{one.names[0]}"
        count = f": {len(one.names)} of {one.wanted} pods" if one.workload else ""
        yield f"  {style.red(one_line(f'{one.namespace} {title}') + count)}"
        yield from obstacle_lines(one.message, style=style)


def refused_data(refused: Iterable[RefusedPods]) -> list[dict[str, Any]]:
    """Return ``notCreated`` of the document."""
    return [
        {name: part for name, part in msgspec.to_builtins(one).items() if name not in {"labels", "limits", "priority"}}
        for one in refused
    ]


API_VERSION = "moorage.dev/v1"
#: How ``json_pieces`` writes an empty list of pods: other keys of this name are indented further.
_NO_PODS: Final = '\n  "pods": []'
#: How many pods ``json_pieces`` writes at once.
_PIECE: Final = 1000
_STATES = ("Placed", "Pending", "Preempted", "Finished", "Deleted")


def as_data(
    run: Run,
    events: EventLog | None = None,
    scores: ScoreLog | None = None,
    *,
    listed: Run | None = None,
    with_pods: bool = True,
) -> dict[str, Any]:
    """Return the report as plain data, with every decision if ``events`` is given and with ``scores`` if given.

    ``listed`` has the pods to list, if these are not all of the run; the summary counts all. ``with_pods``: list pods at all.
    Amounts are integers: cpu in millicores, memory in bytes, others in counts.
    """
    shown = listed or run
    data: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "SimulationReport",
        "release": run.release,
        "seed": run.seed,
        "summary": _summary(run),
        "pods": msgspec.to_builtins([_pod(pod) for pod in shown.pods]) if with_pods else [],
        "nodes": msgspec.to_builtins(run.nodes),
        **claim_data(shown.volumes, shown.devices),
        **group_data(shown.groups),
        **({"notCreated": refused_data(shown.refused)} if shown.refused else {}),
        "notes": msgspec.to_builtins(run.notes),
    }
    if run.before is not None:
        data |= {"changes": list(run.changes), "before": _summary(run.before)}
    if run.measures is not None:
        data |= _measures(run.measures)
    if run.queues is not None:
        data["queues"] = run.queues.data()
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
    """Return a pod as it is written: of the times and texts, those that have a value."""
    times = {"placedSeconds": pod.placed_s, "endedSeconds": pod.ended_s}
    texts = {
        "node": pod.node, "workload": pod.workload, "message": pod.message, "nominatedNode": pod.nominated,
        "preemptedBy": pod.preempted_by, "replacedBy": pod.replaced_by,
    }  # fmt: skip
    return {
        "namespace": pod.namespace, "name": pod.name, "state": pod.state, "schedulerName": pod.scheduler_name,
        "priority": pod.priority, "requests": pod.requests, "attempts": pod.attempts, "arrivedSeconds": round(pod.arrived_s, 3),
        **{name: round(time_s, 3) for name, time_s in times.items() if time_s is not None},
        **{name: text for name, text in texts.items() if text},
    }  # fmt: skip


def json_pieces(
    run: Run, events: EventLog | None = None, scores: ScoreLog | None = None, *, listed: Run | None = None
) -> Iterator[str]:
    """Yield the report as indented JSON with sorted keys, piece by piece, so that not all pods are in memory as text."""
    pods = (listed or run).pods
    text = _indented(as_data(run, events, scores, listed=listed, with_pods=False))
    if not pods:
        yield f"{text}\n"
        return
    before, _, after = text.partition(_NO_PODS)
    yield f"{before}{_NO_PODS[:-1]}"
    for start in range(0, len(pods), _PIECE):
        items = _indented([_pod(pod) for pod in pods[start : start + _PIECE]]).removeprefix("[").removesuffix("\n]")
        yield ("," if start else "") + items.replace("\n", "\n  ")
    yield f"\n  ]{after}\n"


def _indented(data: object) -> str:
    return escape_json(msgspec.json.format(msgspec.json.encode(data, order="sorted"), indent=2).decode())


def as_yaml(run: Run, events: EventLog | None = None, scores: ScoreLog | None = None, *, listed: Run | None = None) -> str:
    """Return the report as YAML. Every string is quoted, so that no YAML reader parses one as a number."""
    return yaml_text(as_data(run, events, scores, listed=listed), width=4096, quoted="all")
