"""Frames of a run, for programs that compute with them: nodes, pods, attempts, verdicts on pending pods, scores."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from moorage.core.cycle.decision import Decision
from moorage.laboratory.compare.measured_run import RunInput
from moorage.laboratory.frames import ColumnFrame, frame_of, nodes_frame, pods_frame
from moorage.laboratory.trial.feasibility import feasibility_of
from moorage.report.node_scores import NodeScoring, ScoreLog
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster, State
from moorage.state.pod_info import PodInfo

#: Scores are left out if there would be more of them than this (pods to place, times nodes).
MOST_SCORES: Final = 1_000_000
_ATTEMPTS: Final = ("time_s", "pod", "number", "node", "evaluated", "feasible", "nominated", "victims", "message")
_VERDICTS: Final = ("pod", "node", "plugin", "reason", "resolvable")
_SCORES: Final = ("pod", "node", "chosen", "plugin", "raw", "normalized", "weight", "weighted")


class _EveryScore(ScoreLog):
    """Records how the node of every pod was picked."""

    def __init__(self) -> None:
        super().__init__(())

    def wants(self, decision: Decision) -> bool:
        return True


def frames_of_run(given: RunInput, options: Options) -> dict[str, ColumnFrame]:
    """Run a cluster to its end and return frames by name. ``scores`` is left out for large clusters.

    Raises  ConfigError, InputError
    """
    rows: list[tuple[Any, ...]] = []
    waiting = sum(getattr(getattr(obj, "spec", None), "node_name", None) == "" for obj in given.objects)
    log = _EveryScore() if waiting * len(given.nodes) <= MOST_SCORES else None
    simulation, _ = prepare(replace(options, scores=log), lambda attempt: rows.append(_attempt(attempt)))
    simulation.load(given.objects)
    simulation.run()
    frames = {
        "nodes": nodes_frame(simulation.scheduler.snapshot.table),
        "pods": pods_frame([PodInfo(pod) for pod in simulation.pods_in_order()], simulation.state_of),
        "attempts": frame_of(_ATTEMPTS, rows),
        "verdicts": _verdicts(simulation),
    }
    return frames if log is None else {**frames, "scores": _scores(log.entries)}


def _attempt(attempt: SimulatedAttempt) -> tuple[Any, ...]:
    decision = attempt.decision
    after = decision.post_filter
    victims = " ".join(victim.key for victim in after.victims) if after is not None else ""
    nominated = (after.nominated or "") if after is not None else ""
    return (
        attempt.time_s, decision.pod.key, attempt.number, decision.node or "", decision.evaluated, decision.feasible,
        nominated, victims, decision.message,
    )  # fmt: skip


def _verdicts(simulation: SimulatedCluster) -> ColumnFrame:
    """Return the refusals of every node for every pod that stays pending."""
    rows: list[tuple[Any, ...]] = []
    for record in simulation.records.values():
        if record.state == State.PENDING:
            found = feasibility_of(simulation, PodInfo(record.pod), None)
            rows += [(found.pod, *row.values()) for row in found.verdicts]
    return frame_of(_VERDICTS, rows)


def _scores(entries: Collection[NodeScoring]) -> ColumnFrame:
    rows = [
        (entry.pod, node.name, node.name == entry.node, one.plugin, one.raw, one.normalized, one.weight, one.weighted)
        for entry in entries
        for node in entry.nodes
        for one in node.plugins
    ]
    return frame_of(_SCORES, rows)
