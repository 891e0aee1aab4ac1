"""Run a cluster as ``moorage simulate`` does, and explain the outcome of some of its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_options
from typing import Any

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.gc_pause import collector_paused
from moorage.errors import InputError
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.edit.edits import pods_asked_for
from moorage.laboratory.explain.explained_changes import CHANGEABLE, ChangeLimits, with_changes
from moorage.laboratory.explain.explanation import Moment, Subject, WatchingCycle, explain_now, explain_pending
from moorage.laboratory.explain.not_created import explain_not_created
from moorage.laboratory.explain.simulated_state import state_of
from moorage.laboratory.pending import PendingSearch, grouped
from moorage.laboratory.present import aside_of
from moorage.laboratory.trial.recorded_simulation import RECORDED_PARTS, RecordedSimulation
from moorage.report.answer import AnswerRequest
from moorage.report.explanation import Explanation, Proof
from moorage.report.explanation_values import ExplainRequest
from moorage.report.obstacles import EVERY, Narrowing
from moorage.report.outcome import InputNote, Run
from moorage.report.pending_report import PendingGroup, PendingReport, PendingWay, summary_of
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import ignored_fields, input_notes, objects_of, simulate_cluster, workload_names
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.quota_retries import QuotaRetries
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster, State

__all__ = ["ExplainOptions", "explain_cluster", "explain_together", "simulate_and_explain"]


# -- explain run -------------------------------------------------------------------------------------------------------

#: Maximum number of pods to explain while they are placed: explaining a placement takes longer than making it.
_MOST_WATCHED = 200
_LIMITS = ChangeLimits()
#: The least share of the time that is left for the changes of one pod, if there are several.
_LEAST_SHARE = 0.25
#: The same for the pods of one cause, if there are several causes.
_LEAST_PART = 0.12


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Which pods to explain: the named ones, or all that stay pending and those in ``also`` (``namespace/name``) that exist.

    ``among``     the pods to look among
    ``asked_of``: the fields of the request that the input and its changes give, such as ``files``, ``digest`` and ``question``.
    """

    asked: tuple[str, ...] = ()
    every_pending: bool = False
    among: Narrowing = EVERY
    asked_of: Mapping[str, Any] = field(default_factory=dict)
    limits: ChangeLimits = _LIMITS
    also: frozenset[str] = frozenset()


def explain_cluster(
    given: ClusterInput, options: Options, what: ExplainOptions,
    *, on_attempt: Callable[[SimulatedAttempt], None] | None = None,
) -> list[Explanation]:  # fmt: skip
    """Place every pending pod of a cluster, and explain the pods that were asked for.

    Raises  ConfigError, InputError
    """
    found, simulation, cluster = _explained_pods(given, options, what, on_attempt)
    return _with_changes(found, simulation, cluster, options, what.limits)


def explain_together(
    given: ClusterInput, options: Options, what: ExplainOptions,
    *, on_attempt: Callable[[SimulatedAttempt], None] | None = None,
) -> PendingReport:  # fmt: skip
    """Place every pending pod of a cluster, and say what to do about those that stay pending: by cause, and for all of them.

    Raises  ConfigError, InputError
    """
    found, simulation, cluster = _explained_pods(given, options, replace_options(what, every_pending=True), on_attempt)
    at_rest = _at_rest(simulation, cluster, options)
    search = PendingSearch(at_rest, what.limits)
    groups: list[PendingGroup] = []
    causes = grouped(found)
    for at, (cause, some) in enumerate(causes):
        pods = [key for one in some for key in (one.not_created.keys if one.not_created is not None else [one.pod])]
        if some[0].outcome not in CHANGEABLE or not what.limits.probes:
            ways = tuple(PendingWay(one.kind, one.cost, one.who, one.atoms, one.commands, 0) for one in some[0].changes)
            groups.append(PendingGroup(cause, tuple(pods), len(pods), ways, created=some[0].not_created is None))
            continue
        budget = what.limits.budget.part(max(_LEAST_PART, 1 / (len(causes) - at)))
        groups.append(search.group(cause, pods, budget))
    asked = {**what.asked_of, "release": simulation.scheduler.gates.release, "seeds": (options.seed,)}
    return PendingReport(
        request=AnswerRequest(**asked),
        summary=summary_of(groups, search.placed),
        groups=tuple(groups),
        nodes=tuple(node.metadata.name for node in simulation.scheduler.cluster.table.nodes),
        pending=sum(len(one.pods) for one in groups),
        placed=search.placed,
        proof=Proof("run", runs=search.runs),
        stopped=what.limits.budget.stopped,
    )


def _explained_pods(
    given: ClusterInput, options: Options, what: ExplainOptions, on_attempt: Callable[[SimulatedAttempt], None] | None
) -> tuple[list[Explanation], RecordedSimulation, ClusterInput]:
    """Run a cluster. Return the explanations without changes, the simulation at rest, and its input."""
    created = create_pods(given, quota=options.quota)
    cluster = created.cluster
    absent = [one.pod for one in created.refused if _is_among(one.pod, what)]
    workloads = workload_names(cluster, absent)
    named = absent if what.every_pending else _named([*cluster.pods, *absent], workloads, what)
    pods = [*named, *(pod for pod in cluster.pods if pod.key in what.also)]
    simulation, notes = _prepared(options, on_attempt)
    ignored = ignored_fields(cluster, simulation.scheduler.gates)
    texts = tuple(note.text for note in (*input_notes(cluster), *ignored, *notes))
    release, seed = simulation.scheduler.gates.release, options.seed
    subjects = {pod.uid: Subject(_question(pod, release, seed, what, texts), pod) for pod in pods}
    _watch(simulation, subjects.values(), seed)
    retries = QuotaRetries.watch(created.creation, simulation)
    with collector_paused():
        simulation.load(objects_of(cluster))
    simulation.run()
    missing, every = retries.refused(cluster.pods, workloads)
    subjects = {uid: one for uid, one in subjects.items() if uid not in missing}
    asked_for = {pod.key for pod in named}
    refused = [one for one in every if not asked_for.isdisjoint(one.keys)]
    if what.every_pending:
        waiting = {
            pod.uid: Subject(_question(pod, release, seed, what, texts), pod)
            for pod in _waiting(simulation)
            if _is_among(pod, what)
        }
        subjects = waiting | subjects
    asked = [(_request(one.keys[0], release, seed, what, texts), one) for one in refused]
    lacking = [explain_not_created(*one, cluster.pods, workloads) for one in asked]
    found = [*lacking, *(_explained(simulation, one, options) for one in subjects.values())]
    return found, simulation, cluster


def simulate_and_explain(
    given: ClusterInput, options: Options, *, on_attempt: Callable[[SimulatedAttempt], None] | None = None
) -> tuple[Run, list[Explanation]]:
    """Run a cluster as ``simulate_cluster`` does, and explain every pod that stays pending, from the same run.

    Raises  ConfigError, InputError
    """
    prepared = simulation, _ = _prepared(options, on_attempt)
    cluster, run = simulate_cluster(given, options, on_attempt=on_attempt, prepared=prepared)
    what, texts = ExplainOptions(every_pending=True), tuple(note.text for note in run.notes)
    release, seed = simulation.scheduler.gates.release, options.seed
    lacking = [explain_not_created(_request(one.keys[0], release, seed, what, texts), one) for one in run.refused]
    waiting = [Subject(_question(pod, release, seed, what, texts), pod) for pod in _waiting(simulation)]
    found = [*lacking, *(_explained(simulation, one, options) for one in waiting)]
    return run, _with_changes(found, simulation, cluster, options, what.limits)


def _prepared(
    options: Options, on_attempt: Callable[[SimulatedAttempt], None] | None
) -> tuple[RecordedSimulation, list[InputNote]]:
    """Return an empty simulation that reports decisions and can be rolled back, and notes on its plugins."""
    simulation, notes = prepare(options, on_attempt, cycle=WatchingCycle, parts=RECORDED_PARTS, simulation=RecordedSimulation)
    assert isinstance(simulation, RecordedSimulation)
    return simulation, notes


def _waiting(simulation: SimulatedCluster) -> list[Pod]:
    return [record.pod for record in simulation.records.values() if record.state == State.PENDING]


def _with_changes(
    found: list[Explanation], simulation: RecordedSimulation, cluster: ClusterInput, options: Options, limits: ChangeLimits
) -> list[Explanation]:
    """Return the explanations with the changes that would place the pods, found in the simulation at rest."""
    if not limits.probes or not any(one.outcome in CHANGEABLE for one in found):
        return found
    at_rest = _at_rest(simulation, cluster, options)
    present = at_rest.present()
    waiting = sum(one.outcome in CHANGEABLE for one in found)
    searched: list[Explanation] = []
    for one in found:
        # the first pods leave time for the others
        share = max(_LEAST_SHARE, 1 / max(waiting, 1))
        waiting -= one.outcome in CHANGEABLE
        trials, costs = at_rest.trials_of(one.pod, limits.costs, with_queue=limits.with_queue)
        limits = replace(limits, costs=costs)
        searched.append(with_changes(one, trials, present, replace(limits, budget=limits.budget.part(share))))
    return searched


def _at_rest(simulation: RecordedSimulation, cluster: ClusterInput, options: Options) -> Cluster:
    """Return a cluster in the state of a simulation that has come to rest."""
    cycle = simulation.scheduler.cycle
    assert isinstance(cycle, WatchingCycle)
    cycle.watched.clear()  # from here on, decisions belong to trials
    return Cluster.of_simulation(simulation, options, aside_of(cluster))


def _is_among(pod: Pod, what: ExplainOptions) -> bool:
    return what.among.keeps(pod.namespace, pod.name, pod.labels)


def _named(pods: Sequence[Pod], workloads: dict[str, str], what: ExplainOptions) -> list[Pod]:
    found: dict[str, Pod] = {}
    for asked in what.asked:
        found |= {pod.uid: pod for pod in pods_asked_for(asked, pods, workloads, what.among.namespace)}
    if not found:
        raise InputError("no pod to explain")
    return list(found.values())


def _question(pod: Pod, release: str, seed: int, what: ExplainOptions, notes: Sequence[str]) -> ExplainRequest:
    return _request(pod.key, release, seed, what, notes)


def _request(key: str, release: str, seed: int, what: ExplainOptions, notes: Sequence[str]) -> ExplainRequest:
    return ExplainRequest(pod=key, **{**what.asked_of, "release": release, "seeds": (seed,), "notes": tuple(notes)})


def _watch(simulation: SimulatedCluster, subjects: Iterable[Subject], seed: int) -> None:
    cycle = simulation.scheduler.cycle
    cluster = None if cycle.extenders else simulation.scheduler.cluster
    assert isinstance(cycle, WatchingCycle)
    for subject in list(subjects)[:_MOST_WATCHED]:

        def heard(moment: Moment, subject: Subject = subject) -> None:
            subject.heard(moment, seed, cluster)

        cycle.watched[subject.pod.uid] = heard


def _explained(simulation: SimulatedCluster, subject: Subject, options: Options) -> Explanation:
    record = simulation.records.get(subject.pod.uid)
    state = state_of(simulation, options)
    return explain_now(state, subject) if record is None else explain_pending(state, subject, record)
