"""Build the explanation of one pod from its decision, or from the present state, in the values of reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace as with_fields

from moorage.api.core import Pod
from moorage.basis.printable import counted, some
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.cycle_input import CycleInput
from moorage.core.cycle.decision import Decision
from moorage.core.extenders.consultation import Asking, Consultation, ExtenderAnswer, HTTPExtender, T
from moorage.core.extenders.wire import EXTENDER, ExtenderError, Whole
from moorage.core.preemption.what_if import Nominated
from moorage.errors import MoorageError
from moorage.framework.effects import Question
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status, Verdicts
from moorage.laboratory.explain.headline import why_nowhere
from moorage.laboratory.explain.named_causes import attached_elsewhere
from moorage.laboratory.explain.placement_report import choice_of, score_report
from moorage.laboratory.explain.pod_state import ExplainedState, standing_of, standing_without_attempt
from moorage.laboratory.explain.preemption_report import find_preemption, preemption_of
from moorage.laboratory.explain.refusals import all_conflicts, conflict_terms, eligible_conflict, funnel, groups, nearest_of
from moorage.laboratory.explain.verdicts import Constraint, EveryVerdict, Judgement, Stage, off_its_node, verdicts_of_all
from moorage.laboratory.trial.recorded_state import RecordedClusterState, UndoLog
from moorage.plugins.shared.term_names import selector_name, taint_name
from moorage.report.answer import Assumption
from moorage.report.explanation import ExplainRequest, Explanation, PodStanding, Proof
from moorage.report.explanation_values import PreemptionReport
from moorage.report.score_values import ScoreReport
from moorage.state.cluster import ClusterState, Snapshot
from moorage.state.node_matching import required_node_affinity
from moorage.state.pod_info import PodInfo

if TYPE_CHECKING:
    from moorage.simulator.simulation import PodRecord


# -- moments -----------------------------------------------------------------------------------------------------------
# Report decisions on the pods to explain while the state is still the one of the decision.
#
# Every decision changes the state, so an explanation computes what it needs at once: ``WatchingCycle`` calls back right after
# it has decided on a watched pod, before the engine acts on that decision.


@dataclass(frozen=True)
class Moment:
    """A decision, and the state before it; valid until the callback returns."""

    profile: Profile
    decision: Decision
    snapshot: Snapshot
    nominated: Nominated


@dataclass
class WatchingCycle(Cycle):
    """A cycle that reports decisions on some pods. ``watched``: UID → the callback that gets each decision."""

    watched: dict[str, Callable[[Moment], None]] = field(default_factory=dict)

    def deciding(self, given: CycleInput, *, ask: bool = True) -> Asking[Decision]:
        decision = yield from super().deciding(given, ask=ask)
        self._report(Moment(given.profile, decision, given.snapshot, given.nominated))
        return decision

    def _report(self, moment: Moment) -> None:
        heard = self.watched.get(moment.decision.pod.uid)
        if heard is not None:
            heard(moment)


# -- without node ------------------------------------------------------------------------------------------------------
# Find the node of a pod without one node: remove the node, decide on the pod again, and put the node back.


def choice_without(
    cluster: RecordedClusterState, profile: Profile, pod: PodInfo, nominated: Nominated, seed: int, node: str
) -> str | None:
    """Return the node that would be chosen without ``node``; None if none fits. The state is unchanged afterwards."""
    outer, cluster.log = cluster.log, UndoLog()
    cluster.log.begin()
    try:
        cluster.remove_node(node)
        cycle = Cycle(seed, by_class=False, nominated_first=False, errors_end=False)
        others = {name: pods for name, pods in nominated.items() if name != node}
        return cycle.decide(profile, pod, cluster.snapshot, others).node
    finally:
        cluster.log.roll_back()
        cluster.log = outer


# -- extender verdicts -------------------------------------------------------------------------------------------------
# The verdicts of extenders, which are asked about the nodes that no plugin refuses, as kube-scheduler does.

Ask = Callable[[Question], bytes]


def with_extenders(judged: EveryVerdict, extenders: Iterable[HTTPExtender], whole: Whole, ask: Ask) -> EveryVerdict:
    """Return the verdicts, extended by those of the extenders that filter nodes for the pod.

    An extender that fails refuses all remaining nodes, unless it is ignorable.
    """
    consultation = Consultation.of(judged.pod, extenders, whole)
    filtering = [one.shown for one in consultation.extenders if one.filter_verb]
    rows = np.flatnonzero(judged.feasible)
    if not filtering or not len(rows):
        return judged
    verdicts = Verdicts(len(judged.names))
    try:
        _answered(consultation.filter(rows, judged.snapshot, verdicts), ask)
    except ExtenderError as error:
        verdicts.refuse(rows, Status(Code.ERROR, EXTENDER, (str(error),)))
    name = f"{EXTENDER} {', '.join(filtering)}"
    asked = Judgement(name, Stage.EXTENDER, judged.snapshot.nodes, given=verdicts)
    return replace(judged, judgements=(*judged.judgements, asked))


def _answered(asking: Asking[T], ask: Ask) -> T:
    """Answer the questions of a consultation, one after the other."""
    try:
        questions = next(asking)
        while True:
            questions = asking.send(tuple(_answer(one, ask) for one in questions))
    except StopIteration as end:
        found: T = end.value
        return found


def _answer(question: Question, ask: Ask) -> ExtenderAnswer:
    try:
        return ExtenderAnswer(ask(question))
    except MoorageError as error:
        return ExtenderAnswer(error=str(error))


# -- misspelt ----------------------------------------------------------------------------------------------------------
# Likely typing errors: names in a pod's constraints that no node has, with the closest name that nodes have.

_CLOSE = 0.6


def closest_names(judged: EveryVerdict) -> tuple[str, ...]:
    """Return a sentence for each name that the pod asks for and no node has, with the closest name that nodes do have."""
    return tuple(dict.fromkeys((*_labels(judged), *_resources(judged), *_topologies(judged), *_tolerations(judged))))


def _everywhere(judged: EveryVerdict, constraint: Constraint) -> bool:
    rows = judged.constraints.get(constraint)
    return rows is not None and bool(rows.all())


def _labels(judged: EveryVerdict) -> Iterator[str]:
    required = required_node_affinity(judged.pod)
    for key, value in required.labels.items():
        if _everywhere(judged, Constraint("NodeAffinity", selector_name(key, value))):
            yield from _label(judged, key, (value,))
    for term in required.matcher.terms if required.matcher is not None else ():
        for asked in term.requirements:
            held = {node.labels.get(asked.key) for node in judged.snapshot.table.nodes}
            if asked.operator in {"In", "Exists"} and not any(map(asked.matches, held)):
                yield from _label(judged, asked.key, asked.values)


def _label(judged: EveryVerdict, key: str, values: Iterable[str]) -> Iterator[str]:
    """Yield the closest match for a label that no node has: another value of its key, or another key."""
    held = Counter(node.labels[key] for node in judged.snapshot.table.nodes if key in node.labels)
    if not held:
        yield from _key(judged, key, "label")
        return
    for value in values:
        close = get_close_matches(value, list(held), 1, _CLOSE)
        if close:
            yield f"No node has {key}={value}; closest is {key}={close[0]}, on {counted(held[close[0]], 'node')}."
        else:
            others = ", ".join(f"{known} on {number}" for known, number in held.most_common(3))
            yield f"No node has {key}={value}; values of {key}: {others}{', …' if len(held) > 3 else ''}."


def _key(judged: EveryVerdict, key: str, what: str) -> Iterator[str]:
    keys = Counter(known for node in judged.snapshot.table.nodes for known in node.labels)
    own = key.rpartition("/")[2]
    alike = [known for known in keys if get_close_matches(own, [known.rpartition("/")[2]], 1, _CLOSE)]
    close = get_close_matches(key, alike, 1, _CLOSE)
    near = f"; closest is {close[0]}, on {counted(keys[close[0]], 'node')}" if close else ""
    yield f"No node has the {what} {key}{near}."


def _resources(judged: EveryVerdict) -> Iterator[str]:
    nodes = judged.snapshot.table.nodes
    for constraint in judged.constraints:
        name = constraint.term
        if constraint.plugin != "NodeResourcesFit" or not _everywhere(judged, constraint):
            continue
        if not any(name in node.status.allocatable for node in nodes):
            offered = Counter(known for node in nodes for known in node.status.allocatable)
            close = get_close_matches(name, [known for known in offered if "/" in known or "-" in known], 1, _CLOSE)
            near = f"; closest is {close[0]}, on {counted(offered[close[0]], 'node')}" if close else ""
            yield f"No node offers {name}{near}."


def _topologies(judged: EveryVerdict) -> Iterator[str]:
    pod = judged.pod
    keys = [one.topology_key for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
    for key in dict.fromkeys([*keys, *(term.topology_key for term in pod.required_affinity)]):
        if key and not judged.snapshot.table.labels.is_anywhere(key):
            yield from _key(judged, key, "topology label")
            one = judged.names[0] if judged.names else "NODE"
            yield f"Label each node with its value: kubectl label node {one} {key}=VALUE."


def _tolerations(judged: EveryVerdict) -> Iterator[str]:
    """Yield tolerations that almost match a taint of nodes that refuse the pod."""
    held = [one for one in judged.pod.spec.tolerations if one.key and not one.key.startswith("node.kubernetes.io/")]
    for taint in judged.snapshot.table.taints.values:
        for one in taint:
            refuses = Constraint("TaintToleration", taint_name(one)) in judged.constraints
            for toleration in held if refuses else ():
                if toleration.key == one.key and toleration.operator in {"", "Equal"} and toleration.value != one.value:
                    yield f"It tolerates {one.key}={toleration.value}; the taint is {one.key}={one.value}."
                elif toleration.key == one.key and toleration.effect and toleration.effect != one.effect:
                    yield f"It tolerates {one.key} with effect {toleration.effect}; the taint's effect is {one.effect}."
                elif toleration.key != one.key and get_close_matches(toleration.key, [one.key], 1, 0.8):
                    yield f"It tolerates {toleration.key}; the taint's key is {one.key}."


@dataclass
class Subject:
    """The pod to explain, with the parts of its explanation that were computed when decisions on it were made.

    ``placed`` are the parts of the explanation of its last placement, ``preempting`` those of the last attempt that evicted
    pods for it.
    """

    request: ExplainRequest
    pod: Pod
    placed: dict[str, Any] = field(default_factory=dict)
    preempting: dict[str, Any] = field(default_factory=dict)

    def heard(self, moment: Moment, seed: int, cluster: ClusterState | None = None) -> None:
        """Record a decision, while the state is still the one of the decision. ``cluster``: that state, for what-ifs."""
        decision = moment.decision
        judged = verdicts_of_all(moment.profile, decision.pod, moment.snapshot, moment.nominated)
        if decision.node is not None:
            self.placed = {**_judged_parts(judged), "node": decision.node, "scores": _scores(moment, judged, seed, cluster)}
        elif decision.post_filter is not None and decision.post_filter.nominated:
            story = preemption_of(moment.profile, decision.pod, moment.snapshot, moment.nominated)
            self.preempting = {"preemption": story, "victims": [pod.key for pod in decision.post_filter.victims]}


def _judged_parts(judged: EveryVerdict) -> dict[str, Any]:
    """Return the fields of an explanation that follow from the verdicts."""
    found = groups(judged)
    return {
        "nodes": tuple(judged.names),
        "funnel": funnel(judged),
        "groups": found,
        "nearest": nearest_of(found, closest_names(judged)),
    }


def _scores(moment: Moment, judged: EveryVerdict, seed: int, cluster: ClusterState | None = None) -> ScoreReport | None:
    decision, nominated = moment.decision, moment.nominated
    rerun = None
    if isinstance(cluster, RecordedClusterState):
        rerun = partial(choice_without, cluster, moment.profile, decision.pod, nominated, seed)
    choice = choice_of(
        moment.profile, decision.pod, moment.snapshot, {k: tuple(v) for k, v in nominated.items()},
        decision.node or "", seed, decision.scores, rerun,
    )  # fmt: skip
    if choice is None:
        return None
    feasible = int(judged.feasible.sum())
    return score_report(choice, feasible=feasible, refused=len(judged.names) - feasible)


def explain_untried(request: ExplainRequest, standing: PodStanding) -> Explanation:
    """Return the explanation of a pod that no profile here tries."""
    outcome = "notOurs" if standing.name == "otherScheduler" else "ended"
    words = {"otherScheduler": "is not scheduled here", "ended": "has ended", "beingDeleted": "is being deleted"}
    summary = f"{request.pod} {words[standing.name]}: {standing.text}."
    return Explanation(
        request=request, outcome=outcome, summary=summary, standing=PodStanding(standing.name, ended_by=standing.ended_by)
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """An explanation without its report on preemption. ``preemption`` makes the report; it reads no state of the engine."""

    explanation: Explanation
    preemption: Callable[[], PreemptionReport | None] | None = None

    def finished(self) -> Explanation:
        """Return the whole explanation. Any thread may call this, and the engine may go on meanwhile."""
        if self.preemption is None:
            return self.explanation
        return with_fields(self.explanation, preemption=self.preemption())


def explain_now(state: ExplainedState, subject: Subject, record: PodRecord | None = None) -> Explanation:
    """Return the explanation of a pod in the present state, without its earlier decisions."""
    return find_now(state, subject, record).finished()


def find_now(state: ExplainedState, subject: Subject, record: PodRecord | None = None) -> Findings:
    """Return all that the explanation of a pod in the present state needs of that state."""
    outside = standing_without_attempt(subject.pod, state.profiles)
    if outside is not None:
        return Findings(explain_untried(subject.request, outside))
    if subject.pod.spec.node_name:
        return Findings(explain_bound(state, subject))
    return find_pending(state, subject, record)


def explain_bound(state: ExplainedState, subject: Subject) -> Explanation:
    """Return the explanation of a pod that is on a node: where it would go if it were scheduled again now."""
    pod, request = subject.pod, subject.request
    scheduler = state.scheduler
    table, profile = scheduler.cluster.table, state.profiles.get(pod.spec.scheduler_name)
    row = table.row_of.get(pod.spec.node_name)
    here = f"{request.pod} is on {pod.spec.node_name}"
    if profile is None or row is None or pod.uid not in table.pods[row]:
        return _bound(request, pod, f"{here}, where it was bound before.")
    free = PodInfo(with_fields(pod, spec=with_fields(pod.spec, node_name="")))
    with off_its_node(scheduler.cluster, pod.uid, pod.spec.node_name):
        judged = verdicts_of_all(profile, free, scheduler.snapshot, scheduler.queue.nominated)
        parts = _judged_parts(judged)
        scores = _scored_now(state, profile, free, judged)
    if scores is None:
        why = why_nowhere(judged, sorted(eligible_conflict(judged) or frozenset()))
        return _bound(request, pod, f"{here}; scheduled again now, it would find no node: {why}.", **parts)
    return _bound(request, pod, f"{here}; scheduled again now, it would {_again(scores, row, judged)}.", scores=scores, **parts)


def _bound(request: ExplainRequest, pod: Pod, summary: str, **parts: Any) -> Explanation:
    return Explanation(
        request=request,
        outcome="placed",
        summary=summary,
        standing=PodStanding("placed"),
        node=pod.spec.node_name,
        proof=Proof("run"),
        **parts,
    )


def _again(scores: ScoreReport, row: int, judged: EveryVerdict) -> str:
    if scores.winner == row:
        return f"stay there {_by(scores, judged.names)}"
    to = judged.names[scores.winner]
    refused = [status.plugin for status in judged.statuses(row)]
    if refused:
        return f"go to {to}: {', '.join(refused)} would refuse {judged.names[row]}"
    return f"go to {to} {_by(scores, judged.names)}"


def _scored_now(state: ExplainedState, profile: Profile, pod: PodInfo, judged: EveryVerdict) -> ScoreReport | None:
    """Return the scores of a decision made now; None if no node fits."""
    scheduler = state.scheduler
    if not judged.feasible.any():
        return None
    nominated = scheduler.queue.nominated
    cycle = Cycle(scheduler.cycle.seed, by_class=False, always_score=True, nominated_first=False, errors_end=False)
    decision = cycle.decide(profile, pod, scheduler.snapshot, nominated)
    if decision.node is None:
        return None
    return _scores(Moment(profile, decision, scheduler.snapshot, nominated), judged, scheduler.cycle.seed)


def find_pending(state: ExplainedState, subject: Subject, record: PodRecord | None) -> Findings:
    """Return the explanation of a pod that was pending: from its decision if it was placed, else from the present state."""
    if record is not None and record.node and subject.placed:
        here = record.node
        causes = tuple(attached_elsewhere(PodInfo(record.pod), state.scheduler.snapshot, here))
        return Findings(with_fields(_placed(subject, record), standing=PodStanding("placed", causes=causes)))
    pod = PodInfo(record.pod if record is not None else subject.pod)
    scheduler = state.scheduler
    outside = standing_without_attempt(pod.pod, state.profiles)
    if outside is not None:
        return Findings(explain_untried(subject.request, outside))
    with off_its_node(scheduler.cluster, pod.uid):
        return _pending(state, subject, pod, record)


def _pending(state: ExplainedState, subject: Subject, pod: PodInfo, record: PodRecord | None) -> Findings:
    scheduler, profile = state.scheduler, state.profiles[pod.spec.scheduler_name]
    nominated = scheduler.queue.nominated
    judged = verdicts_of_all(profile, pod, scheduler.snapshot, nominated)
    if state.ask is not None and scheduler.cycle.extenders:
        judged = with_extenders(judged, scheduler.cycle.extenders, scheduler.cycle.whole, state.ask)
    standing = standing_of(state, pod, judged)
    if judged.feasible.any() and standing.name in {"active", "unschedulable"}:
        return Findings(_fits_now(state, subject, pod, judged, standing))
    families = all_conflicts(judged)
    decisive = eligible_conflict(judged) or (families[0] if families else frozenset())
    order = list(judged.constraints)
    why = _why_pending(standing, judged, sorted(decisive, key=order.index))
    explanation = Explanation(
        request=subject.request,
        outcome="gated" if standing.name == "gated" else "pending",
        summary=f"{subject.request.pod} is {'gated' if standing.name == 'gated' else 'pending'}: {why}.",
        standing=standing,
        conflicts=tuple(conflict_terms(judged, one) for one in families),
        eligible_conflict=conflict_terms(judged, decisive) if len(decisive) > 1 else (),
        message=_message(state, pod.pod, record),
        proof=Proof("exhaustive"),
        assumptions=_assumptions(state),
        **_judged_parts(judged),
    )
    gated = standing.name == "gated"
    return Findings(explanation, None if gated else find_preemption(profile, pod, scheduler.snapshot, nominated))


def _assumptions(state: ExplainedState) -> tuple[Assumption, ...]:
    """Return the assumptions of the answer: extenders that were not asked."""
    unasked = state.skipped_extenders or (len(state.scheduler.cycle.extenders) if state.ask is None else 0)
    if not unasked:
        return ()
    are = "was" if unasked == 1 else "were"
    return (Assumption("extenders", f"{counted(unasked, 'extender')} {are} not asked, and may refuse more nodes"),)


def _fits_now(
    state: ExplainedState, subject: Subject, pod: PodInfo, judged: EveryVerdict, standing: PodStanding
) -> Explanation:
    """Return the explanation of a pending pod that would be placed if it were tried now."""
    profile = state.profiles[pod.spec.scheduler_name]
    scores = _scored_now(state, profile, pod, judged)
    went = "others went first" if standing.attempts else "it was not tried yet"
    where = "" if scores is None else f"; tried now, it would go to {judged.names[scores.winner]} {_by(scores, judged.names)}"
    return Explanation(
        request=subject.request,
        outcome="pending",
        summary=f"{subject.request.pod} is pending: {went}{where}.",
        standing=standing,
        scores=scores,
        assumptions=_assumptions(state),
        **_judged_parts(judged),
    )


def _why_pending(standing: PodStanding, judged: EveryVerdict, decisive: Sequence[Constraint]) -> str:
    if standing.name in {"gated", "nominated", "permit", "binding"}:
        return standing.text
    if judged.feasible.any():
        fits = [name for name, fits in zip(judged.names, judged.feasible.tolist(), strict=True) if fits]
        return f"{standing.text}; it would fit now on {counted(len(fits), 'node')} ({some(fits)})"
    return why_nowhere(judged, decisive)


def _message(state: ExplainedState, pod: Pod, record: PodRecord | None) -> str:
    """Return the event's text: that of the run, else the gate's reasons, else the scheduler's message in the pod's status."""
    if record is not None and record.message:
        return record.message
    queued = state.scheduler.queue.get(pod.metadata.uid)
    if queued is not None and queued.gate is not None:
        return ", ".join(queued.gate.reasons)
    written = (one.message for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False")
    return next(written, "")


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
