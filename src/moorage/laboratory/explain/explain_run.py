"""Run a cluster as ``moorage simulate`` does, and explain the outcome of some of its pods."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from dataclasses import replace as replace_options
from itertools import groupby
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.gc_pause import collector_paused
from moorage.api.pod_requests import amount
from moorage.api.quantity import exact
from moorage.basis.printable import counted
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.amount_text import quantity_of, round_amount
from moorage.laboratory.change.least_change import ChangeLimits
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_objects import aside_of
from moorage.laboratory.costs import Costs
from moorage.laboratory.edit.edits import pods_asked_for
from moorage.laboratory.explain.explained_changes import CHANGEABLE, with_changes
from moorage.laboratory.explain.explanation import Moment, Subject, WatchingCycle, find_now, find_pending
from moorage.laboratory.explain.pending_in_input import as_in_input
from moorage.laboratory.explain.pod_state import state_of
from moorage.laboratory.pending_search import PendingSearch, grouped
from moorage.laboratory.trial.recorded_simulation import RECORDED_PARTS, RecordedSimulation
from moorage.report.answer import AnswerRequest, Proof
from moorage.report.explanation import Explanation, PodStanding
from moorage.report.explanation_values import AtomReport, ChangeReport, ExplainRequest
from moorage.report.narrowing import EVERY, Narrowing
from moorage.report.outcome import InputNote, RefusedPods, Run
from moorage.report.pending_report import PendingGroup, PendingReport, PendingWay, summary_of
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import ignored_fields, input_notes, objects_of, simulate_cluster, workload_names
from moorage.simulator.job_groups import create_for
from moorage.simulator.quota_retries import QuotaRetries
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster
from moorage.state.pod_info import PodInfo

# Explain pods that do not exist because a quota or a limit range refused them, and say what makes room in the quota.

NO_WORKLOADS: Final[Mapping[str, str]] = {}
_NO_REPLICAS: Final[Mapping[tuple[str, str], int]] = {}
_SCALED: Final = frozenset(["Deployment", "StatefulSet", "ReplicaSet"])


def explain_not_created(
    request: ExplainRequest, refused: RefusedPods, pods: Iterable[Pod] = (), workloads: Mapping[str, str] = NO_WORKLOADS,
    replicas: Mapping[tuple[str, str], int] = _NO_REPLICAS,
) -> Explanation:  # fmt: skip
    """Return the explanation of the pods of one workload, or of one pod, that were not created for one reason.

    ``pods`` exist, and ``workloads`` are the names of their workloads, by UID; ``replicas``: how many pods the workloads are to
    have, by namespace and name (``Deployment/web``)
    """
    text = _why(refused)
    return Explanation(
        request=request,
        outcome="notCreated",
        summary=f"{_subject(refused)}: {text}.",
        standing=PodStanding("notCreated", text=text, ended_by=_ended_by(refused)),
        not_created=refused,
        changes=tuple(_changes(refused, pods, workloads, replicas)),
        message=refused.message,
        proof=Proof("exhaustive"),
    )


def _subject(refused: RefusedPods) -> str:
    missing = len(refused.names)
    if not refused.workload:
        return f"{refused.namespace}/{refused.names[0]} does not exist"
    kind, _, name = refused.workload.partition("/")
    verb = "does" if missing == 1 else "do"
    return f"{missing} of {counted(refused.wanted, 'pod')} of {kind} {refused.namespace}/{name} {verb} not exist"


def _why(refused: RefusedPods) -> str:
    said = refused.message.partition(" is forbidden: ")[2] or refused.message.partition(" is ")[2]
    if not refused.amounts:
        return said.removeprefix("failed ") if refused.by == "ResourceQuota" else said
    lacks = ", ".join(f"{one.resource} (used {one.used} of {one.hard}, requested {one.requested})" for one in refused.amounts)
    return f"quota {refused.quota} is full for {lacks}"


def _ended_by(refused: RefusedPods) -> tuple[str, ...]:
    """Return, in words, the limits with which all missing pods could be created."""
    return tuple(f"quota {one.quota}: {one.resource} of {one.needed} or more" for one in refused.limits)


def _round(resource: str, total: str) -> str:
    """Return an amount rounded up to a number that people write: 49800m → 50."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    if name not in {"cpu", "memory", "ephemeral-storage"}:
        return total
    return quantity_of(name, round_amount(name, amount(name, total), up=True))


# -- what makes room ---------------------------------------------------------------------------------------------------


def _changes(
    refused: RefusedPods, pods: Iterable[Pod], workloads: Mapping[str, str], replicas: Mapping[tuple[str, str], int]
) -> Iterator[ChangeReport]:
    """Yield what lets all missing pods be created: another workload of the namespace scaled down, or larger quotas.

    A workload of a higher priority is not scaled down. Its replicas are those that its spec asks for: a pod that is being
    deleted is none of them, and neither is one that was not created.
    """
    if not refused.limits:
        return
    held: dict[str, list[PodInfo]] = {}
    for pod in pods:
        name = workloads.get(pod.uid, "")
        lives = pod.status.phase not in ENDED_PHASES and pod.metadata.deletion_timestamp is None
        if lives and pod.namespace == refused.namespace and name != refused.workload and name.partition("/")[0] in _SCALED:
            held.setdefault(name, []).append(PodInfo(pod))
    # the largest workload first: it misses some of its pods least
    for name, some in sorted(held.items(), key=lambda one: (-len(one[1]), one[0])):
        gone = None if any((pod.spec.priority or 0) > refused.priority for pod in some) else _fewer(refused, some)
        if gone is not None:
            workload = f"{name.partition('/')[0].lower()}/{name.partition('/')[2]}"
            has = replicas.get((refused.namespace, name), len(some))
            left = min(has, len(some)) - gone
            change = Change("cluster", "scale", f"pod/{some[0].key}", workload, has, left)
            command = f"kubectl scale {shlex.quote(workload)} -n {refused.namespace} --replicas={left}"
            yield _report([(change, f"scale {workload} {has} → {left}")], [command], "scale", f"the owner of {workload}")
            break
    yield _larger_quotas(refused)


def _larger_quotas(refused: RefusedPods) -> ChangeReport:
    """Return the change that raises every limit that holds the pods, with one command for each quota."""
    made: list[tuple[Change, str]] = []
    commands: list[str] = []
    for quota, some in groupby(refused.limits, key=lambda one: one.quota):
        limits = list(some)
        old = {one.resource: one.hard for one in limits}
        hard = {one.resource: _round(one.resource, one.needed) for one in limits}
        patch = json.dumps({"spec": {"hard": hard}}, separators=(",", ":"))
        commands.append(
            f"kubectl patch resourcequota {shlex.quote(quota)} -n {refused.namespace} --type=merge -p={shlex.quote(patch)}"
        )
        text = ", ".join(f"{name} {old[name]} → {new}" for name, new in hard.items())
        target = f"resourcequota/{refused.namespace}/{quota}"
        change = Change("cluster", "quota", target, "hard", json.dumps(old), json.dumps(hard))
        made.append((change, f"raise quota {quota}: {text}"))
    return _report(made, commands, "grow", "the cluster team")


def _fewer(refused: RefusedPods, pods: list[PodInfo]) -> int | None:
    """Return how many pods of a workload have to go; None if that is all of them, or if a quota does not count them."""
    most = 0
    for one in refused.limits:
        resource = one.resource.removeprefix("requests.")
        each = 1 if resource == "pods" else min(pod.requests.get(resource, 0) for pod in pods)
        freed = exact(str(each) if resource == "pods" else quantity_of(resource, each)).nano
        lack = exact(one.needed).nano - exact(one.hard).nano
        if one.resource.startswith(("limits.", "count/")) or not freed:
            return None
        most = max(most, -(-lack // freed))
    return most if most < len(pods) else None


def _report(made: Sequence[tuple[Change, str]], commands: Iterable[str], kind: str, who: str) -> ChangeReport:
    costs = Costs()
    atoms = tuple(
        AtomReport(one.owner, one.verb, one.target, text, costs.cost_of(one), one.path, one.old, one.new) for one, text in made
    )
    return ChangeReport("cluster", costs.sum_of([one for one, _ in made]), atoms, tuple(commands), (), kind=kind, who=who)


#: Maximum number of pods to explain while they are placed: explaining a placement takes longer than making it.
_MOST_WATCHED = 200
_LIMITS = ChangeLimits()
#: The least share of the time that is left for the changes of one pod, if there are several.
_LEAST_SHARE = 0.25
#: The same for the pods of one cause, if there are several causes.
_LEAST_PART = 0.25


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Which pods to explain: the named ones, or all that stay pending and those in ``also`` (``namespace/name``) that exist.

    ``among``     the pods to look among
    ``is_changed``  the input has changes of the question in it, so that it does not say what is pending in the cluster
    ``asked_of``: the fields of the request that the input and its changes give, such as ``files``, ``digest`` and ``question``.
    """

    asked: tuple[str, ...] = ()
    every_pending: bool = False
    among: Narrowing = EVERY
    asked_of: Mapping[str, Any] = field(default_factory=dict)
    limits: ChangeLimits = _LIMITS
    also: frozenset[str] = frozenset()
    is_changed: bool = False


def explain_cluster(
    given: ClusterInput, options: Options, what: ExplainOptions,
    *, on_attempt: Callable[[SimulatedAttempt], None] | None = None,
    on_found: Callable[[Sequence[Explanation]], None] | None = None,
) -> list[Explanation]:  # fmt: skip
    """Place every pending pod of a cluster, and explain the pods that were asked for.

    ``on_found`` is called with the explanations before changes are searched for.

    Raises  ConfigError, InputError
    """
    found, simulation, cluster = _explained_pods(given, options, what, on_attempt)
    if on_found is not None:
        on_found(found)
    explained = _with_changes(found, simulation, cluster, options, what.limits)
    return explained if what.is_changed else as_in_input(explained, given.pods, options)


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
    nodes = tuple(node.metadata.name for node in simulation.scheduler.cluster.table.nodes)
    groups: list[PendingGroup] = []
    causes = grouped(found)
    waiting = [one.pod for one in found if one.outcome in CHANGEABLE and what.limits.probes]
    with at_rest.transaction() if search.is_small(waiting) else nullcontext():
        for at, (cause, some) in enumerate(causes):
            pods = [key for one in some for key in (one.not_created.keys if one.not_created is not None else [one.pod])]
            if some[0].outcome not in CHANGEABLE or not what.limits.probes:
                ways = tuple(PendingWay(one.kind, one.cost, one.who, one.atoms, one.commands, 0) for one in some[0].changes)
                groups.append(PendingGroup(cause, tuple(pods), len(pods), ways, created=some[0].not_created is None))
                continue
            budget = what.limits.budget.part(max(_LEAST_PART, 1 / (len(causes) - at)))
            groups.append(search.group(cause, pods, budget))
    groups, together, proof = search.together(groups, waiting, what.limits.budget)
    asked = {**what.asked_of, "release": simulation.scheduler.gates.release, "seeds": (options.seed,)}
    return PendingReport(
        request=AnswerRequest(**asked),
        summary=summary_of(groups, together, search.placed),
        groups=tuple(groups),
        together=tuple(together),
        nodes=nodes,
        pending=sum(len(one.pods) for one in groups),
        placed=search.placed,
        proof=proof,
        stopped=what.limits.budget.stopped,
    )


def _explained_pods(
    given: ClusterInput, options: Options, what: ExplainOptions, on_attempt: Callable[[SimulatedAttempt], None] | None
) -> tuple[list[Explanation], RecordedSimulation, ClusterInput]:
    """Run a cluster. Return the explanations without changes, the simulation at rest, and its input."""
    created = create_for(given, options)
    cluster = created.cluster
    absent = [one.pod for one in created.refused if _is_among(one.pod, what)]
    workloads = workload_names(cluster, absent)
    named = absent if what.every_pending else _named([*cluster.pods, *absent], workloads, what, created.lost.pods)
    pods = [*named, *(pod for pod in cluster.pods if pod.key in what.also)]
    simulation, notes = _prepared(options, on_attempt)
    ignored = ignored_fields(cluster, simulation.scheduler.gates)
    texts = tuple(note.text for note in (*input_notes(cluster), *ignored, *notes))
    release, seed = simulation.scheduler.gates.release, options.seed
    subjects = {pod.uid: Subject(_request(pod.key, release, seed, what, texts), pod) for pod in pods}
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
            pod.uid: Subject(_request(pod.key, release, seed, what, texts), pod)
            for pod in simulation.pending_pods()
            if _is_among(pod, what)
        }
        subjects = waiting | subjects
    asked = [(_request(one.keys[0], release, seed, what, texts), one) for one in refused]
    scaled: tuple[Any, ...] = (*cluster.deployments, *cluster.stateful_sets, *cluster.replica_sets)
    replicas = {
        (one.namespace, f"{type(one).__name__}/{one.name}"): 1 if one.spec.replicas is None else one.spec.replicas
        for one in scaled
    }
    lacking = [explain_not_created(*one, cluster.pods, workloads, replicas) for one in asked]
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
    waiting = [Subject(_request(pod.key, release, seed, what, texts), pod) for pod in simulation.pending_pods()]
    found = [*lacking, *(_explained(simulation, one, options) for one in waiting)]
    return run, _with_changes(found, simulation, cluster, options, what.limits)


def _prepared(
    options: Options, on_attempt: Callable[[SimulatedAttempt], None] | None
) -> tuple[RecordedSimulation, list[InputNote]]:
    """Return an empty simulation that reports decisions and can be rolled back, and notes on its plugins."""
    simulation, notes = prepare(options, on_attempt, cycle=WatchingCycle, parts=RECORDED_PARTS, simulation=RecordedSimulation)
    assert isinstance(simulation, RecordedSimulation)
    return simulation, notes


def _with_changes(
    found: list[Explanation], simulation: RecordedSimulation, cluster: ClusterInput, options: Options, limits: ChangeLimits
) -> list[Explanation]:
    """Return the explanations with the changes that would place the pods, found in the simulation at rest."""
    if not limits.probes or not any(one.outcome in CHANGEABLE for one in found):
        return found
    at_rest = _at_rest(simulation, cluster, options)
    present = at_rest.present()
    limits = replace(limits, costs=(limits.costs or Costs()).with_nodes(present))
    waiting = sum(one.outcome in CHANGEABLE for one in found)
    searched: list[Explanation] = []
    for one in found:
        # the first pods leave time for the others
        share = max(_LEAST_SHARE, 1 / max(waiting, 1))
        waiting -= one.outcome in CHANGEABLE
        trials, costs = at_rest.trials_of(one.pod, limits.costs, with_queue=limits.with_queue)
        searched.append(with_changes(one, trials, present, replace(limits, costs=costs, budget=limits.budget.part(share))))
    return searched


def _at_rest(simulation: RecordedSimulation, cluster: ClusterInput, options: Options) -> Cluster:
    """Return a cluster in the state of a simulation that has come to rest."""
    cycle = simulation.scheduler.cycle
    assert isinstance(cycle, WatchingCycle)
    cycle.watched.clear()  # from here on, decisions belong to trials
    return Cluster.of_simulation(simulation, options, aside_of(cluster), cluster.written)


def _is_among(pod: Pod, what: ExplainOptions) -> bool:
    return what.among.keeps(pod.namespace, pod.name, pod.labels)


def _named(pods: Sequence[Pod], workloads: dict[str, str], what: ExplainOptions, lost: Sequence[Pod]) -> list[Pod]:
    """Return the pods that are asked for. ``lost``: those on nodes that are not in the input.

    Raises  InputError for a name that no pod has, and for a lost pod
    """
    found: dict[str, Pod] = {}
    for asked in what.asked:
        for pod in lost:
            if asked in {pod.name, pod.key, f"pod/{pod.name}"} and not any(one.key == pod.key for one in pods):
                raise InputError(
                    f"pod {pod.key} is in the input, and its node {pod.spec.node_name} is not: nothing schedules a pod with a "
                    f"nodeName, no kubelet runs it there, and pod garbage collection deletes it; drop nodeName, or add the node"
                )
        found |= {pod.uid: pod for pod in pods_asked_for(asked, pods, workloads, what.among.namespace)}
    if not found:
        raise InputError("no pod to explain")
    return list(found.values())


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
    return (find_now(state, subject) if record is None else find_pending(state, subject, record)).finished()
