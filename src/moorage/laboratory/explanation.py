"""Put an explanation together: the decision or the state at rest of one pod, in the values that reports are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.api.core import Pod
from moorage.laboratory.headline import why_nowhere
from moorage.laboratory.misspelt import closest_names
from moorage.laboratory.moments import Moment
from moorage.laboratory.placement_report import choice_of, score_report
from moorage.laboratory.pod_state import standing_of, standing_without_attempt
from moorage.laboratory.preemption_report import preemption_of
from moorage.laboratory.refusals import all_conflicts, conflict_terms, eligible_conflict, funnel, groups, nearest_of
from moorage.laboratory.verdicts import Constraint, EveryVerdict, verdicts_of_all
from moorage.report.explanation import ExplainRequest, Explanation, PodStanding, Proof
from moorage.report.score_values import ScoreReport
from moorage.simulator.simulation import PodRecord, Simulation
from moorage.state.pod_info import PodInfo
from moorage.wording import counted, some

__all__ = ["Subject", "explain_bound", "explain_pending", "explain_untried"]


@dataclass
class Subject:
    """The pod that an explanation is about, and what was worked out when decisions on it were made.

    ``placed`` are the parts of the explanation of its last placement, ``preempting`` those of the last attempt that evicted
    pods for it.
    """

    request: ExplainRequest
    pod: Pod
    placed: dict[str, Any] = field(default_factory=dict)
    preempting: dict[str, Any] = field(default_factory=dict)

    def heard(self, moment: Moment, seed: int) -> None:
        """Take note of a decision, while the state is the one that it was made in."""
        decision = moment.decision
        judged = verdicts_of_all(moment.profile, decision.pod, moment.snapshot, moment.nominated)
        if decision.node is not None:
            self.placed = {**_judged_parts(judged), "node": decision.node, "scores": _scores(moment, judged, seed)}
        elif decision.post_filter is not None and decision.post_filter.nominated:
            story = preemption_of(moment.profile, decision.pod, moment.snapshot, moment.nominated)
            self.preempting = {"preemption": story, "victims": [pod.key for pod in decision.post_filter.victims]}


def _judged_parts(judged: EveryVerdict) -> dict[str, Any]:
    """Return the parts of an explanation that follow from the verdicts."""
    found = groups(judged)
    return {
        "nodes": tuple(judged.names),
        "funnel": funnel(judged),
        "groups": found,
        "nearest": nearest_of(found, closest_names(judged)),
    }


def _scores(moment: Moment, judged: EveryVerdict, seed: int) -> ScoreReport | None:
    decision = moment.decision
    choice = choice_of(
        moment.profile, decision.pod, moment.snapshot, {k: tuple(v) for k, v in moment.nominated.items()},
        decision.node or "", seed, decision.scores,
    )  # fmt: skip
    if choice is None:
        return None
    feasible = int(judged.feasible.sum())
    return score_report(choice, feasible=feasible, refused=len(judged.names) - feasible)


def explain_untried(request: ExplainRequest, pod: Pod, standing: PodStanding) -> Explanation:
    """Return the explanation of a pod that no profile here tries."""
    outcome = "notOurs" if standing.name == "otherScheduler" else "ended"
    words = {"otherScheduler": "is not scheduled here", "ended": "has ended", "beingDeleted": "is being deleted"}
    summary = f"{request.pod} {words[standing.name]}: {standing.text}."
    return Explanation(request, outcome, summary, PodStanding(standing.name, ended_by=standing.ended_by))


def explain_bound(request: ExplainRequest, pod: Pod, placed: dict[str, Any] | None = None) -> Explanation:
    """Return the explanation of a pod that was on its node before the run. ``placed``: what would happen to it now."""
    summary = f"{request.pod} is on {pod.spec.node_name}: it was there before, so this run decided nothing about it."
    return Explanation(request, "placed", summary, PodStanding("placed"), node=pod.spec.node_name)


def explain_pending(simulation: Simulation, subject: Subject, record: PodRecord | None) -> Explanation:
    """Return the explanation of a pod that was to be placed: from its decision if it was placed, else from the state now."""
    if record is not None and record.node and subject.placed:
        return _placed(subject, record)
    pod = PodInfo(record.pod if record is not None else subject.pod)
    scheduler = simulation.scheduler
    outside = standing_without_attempt(pod.pod, scheduler.profiles)
    if outside is not None:
        return explain_untried(subject.request, pod.pod, outside)
    profile = scheduler.profiles[pod.spec.scheduler_name]
    nominated = scheduler.queue.nominated
    judged = verdicts_of_all(profile, pod, scheduler.snapshot, nominated)
    standing = standing_of(simulation, pod, judged)
    families = all_conflicts(judged)
    decisive = eligible_conflict(judged) or (families[0] if families else frozenset())
    order = list(judged.constraints)
    why = _why_pending(standing, judged, sorted(decisive, key=order.index))
    return Explanation(
        request=subject.request,
        outcome="gated" if standing.name == "gated" else "pending",
        summary=f"{subject.request.pod} is {'gated' if standing.name == 'gated' else 'pending'}: {why}.",
        standing=standing,
        conflicts=tuple(conflict_terms(judged, one) for one in families),
        eligible_conflict=conflict_terms(judged, decisive) if len(decisive) > 1 else (),
        preemption=None if standing.name == "gated" else preemption_of(profile, pod, scheduler.snapshot, nominated),
        message=_message(simulation, record),
        proof=Proof("exhaustive"),
        **_judged_parts(judged),
    )


def _why_pending(standing: PodStanding, judged: EveryVerdict, decisive: Sequence[Constraint]) -> str:
    if standing.name in {"gated", "nominated", "permit"}:
        return standing.text
    if judged.feasible.any():
        fits = [name for name, fits in zip(judged.names, judged.feasible.tolist(), strict=True) if fits]
        now = f"it would fit now on {counted(len(fits), 'node')} ({some(fits)})"
        return f"{standing.text}; {now}" if standing.name in {"group", "backingOff"} else f"{now}, but others went first"
    return why_nowhere(judged, decisive)


def _message(simulation: Simulation, record: PodRecord | None) -> str:
    if record is None:
        return ""
    if record.message:
        return record.message
    queued = simulation.scheduler.queue.get(record.pod.metadata.uid)
    return ", ".join(queued.gate.reasons) if queued is not None and queued.gate is not None else ""


def _placed(subject: Subject, record: PodRecord) -> Explanation:
    parts = dict(subject.placed)
    scores: ScoreReport | None = parts.pop("scores")
    node = parts.pop("node")
    names = parts["nodes"]
    preempting = subject.preempting if record.nominated or subject.preempting else {}
    outcome = "preempts" if preempting else "placed"
    summary = f"{subject.request.pod} is on {node} {_by(scores, names)}."
    if preempting:
        victims = some(preempting["victims"])
        summary = f"{subject.request.pod} is on {node}, after it evicted {victims or 'pods there'}."
    return Explanation(
        request=subject.request,
        outcome=outcome,
        summary=summary,
        standing=PodStanding("placed", attempts=record.attempts),
        node=node,
        scores=scores,
        preemption=preempting.get("preemption"),
        proof=Proof("run"),
        **parts,
    )


def _by(scores: ScoreReport | None, names: Sequence[str]) -> str:
    if scores is None or scores.runner_up is None:
        return f"because it is the only one of {counted(len(names), 'node')} that fits"
    rival = names[scores.runner_up]
    if len(scores.tied) > 1:
        return f"by a draw among {len(scores.tied)} equally scored nodes"
    points = f"by {counted(scores.margin, 'point')} of {scores.nodes[0].total}"
    return f"{points}: a near tie with {rival}" if scores.near_tie else f"{points} over {rival}"
