"""Why a job waits in Kueue's queue, and the least changes that would start it.

The cluster is simulated with its queues until the job has arrived: that is its state. The run goes on until nothing more
happens: that says when it starts by itself. Each proposed change is made in a fresh run up to the same moment, without nodes if
no time has passed, and is kept if the job gets quota then: it answers what would start the job at once, by the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from moorage.api.core import PodSpec
from moorage.api.pod_requests import add_amounts
from moorage.basis.printable import counted, some
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.report.answer import AnswerRequest, Proof
from moorage.report.queue_report import amount_text
from moorage.report.workload_explanation import (
    Borrower,
    KeptQuota,
    NeededQuota,
    PreemptedWork,
    StartingChange,
    WorkloadExplanation,
    WrittenCondition,
    headline,
)
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.job_groups import create_for
from moorage.simulator.kueue.batch_jobs import QueuedCluster
from moorage.simulator.kueue.figures import why_waiting
from moorage.simulator.kueue.flavors import refusal_of
from moorage.simulator.kueue.integrations import QueuedWork
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.timeline import QueueTimeline, TimedWork
from moorage.simulator.kueue.workloads import Key, Workload
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster

#: How long after the arrival the state is taken: evicted pods have given their quota back, and others were woken.
_SETTLED_S: Final = 35.0
_PREEMPTING: Final = "WaitingForPreemptedWorkloads"


class _Trial(NamedTuple):
    """A run up to a moment, or further, and the work in question."""

    queued: QueuedCluster
    simulation: SimulatedCluster
    timeline: QueueTimeline
    one: TimedWork

    @property
    def queue(self) -> ClusterQueue | None:
        return self.queued.objects.queue_of(self.one.work.workload.namespace, self.one.work.workload.queue_name)


def names_work(queued: QueuedCluster, name: str, namespace: str = "") -> int | None:
    """Return the number of the work that ``KIND/NAME`` or ``workload/NAME`` names; None if there is none.

    Raises  InputError if several have the name
    """
    kind, _, rest = name.partition("/")

    def is_named(one: QueuedWork) -> bool:
        if kind.lower() in {"workload", "wl"}:
            return rest in {one.workload.name, one.title.partition("/")[2]}
        return one.title.lower() == name.lower()

    found = [at for at, one in enumerate(queued.works) if namespace in {"", one.workload.namespace} and is_named(one)]
    if len(found) > 1:
        spaces = ", ".join(sorted({queued.works[at].workload.namespace for at in found}))
        raise InputError(
            f"{name}: {len(found)} workloads have this name (namespaces: {spaces}); give -n NAMESPACE, or its kind"
        )
    return found[0] if found else None


def work_of_pods(queued: QueuedCluster, name: str, namespace: str = "") -> int | None:
    """Return the number of the one work that has this name, or whose pods begin with it and a dash; None if there is none."""
    found = [
        at
        for at, one in enumerate(queued.works)
        if namespace in {"", one.workload.namespace} and _is_of(name, one.title.partition("/")[2])
    ]
    return found[0] if len(found) == 1 else None


def _is_of(name: str, job: str) -> bool:
    return name == job or name.startswith(f"{job}-")


def explain_workload(
    queued: QueuedCluster, number: int, options: Options, request: AnswerRequest, *, probes: int = 200,
    alternatives: int = 5, budget: TimeBudget | None = None,
) -> WorkloadExplanation:  # fmt: skip
    """Return why a work of the cluster waits, when it starts, and up to so many changes that start it at once."""
    search = _Search(queued, number, options, probes, budget or TimeBudget())
    state = search.run(lambda _: None, nodes=True)
    one, workload = state.one, state.one.work.workload
    waits_for, queue = _waits_for(state), state.queue
    waiting: list[str] = []
    needed, borrowers = tuple[NeededQuota, ...](), tuple[Borrower, ...]()
    if queue is not None:
        waiting = [each.key for each in state.timeline.admission.waiting[queue.name]]
        needed, borrowers = tuple(_needed(state, queue)), tuple(_borrowers(state, queue))
    preempts = tuple(_preempted(state))
    kept = tuple(_kept(state, queue)) if waits_for in {"quota", "turn"} and queue is not None else ()
    without_node, reason, now_s = len(one.pods) - len(one.placed), _reason(state, waits_for), state.simulation.now
    starts_s: float | None = None
    changes: tuple[StartingChange, ...] = ()
    if waits_for != "started":
        changes = tuple(search.changes(state, waits_for, queue, alternatives))
        state.simulation.run()
        starts_s = one.ready_s
    return WorkloadExplanation(
        request=request, summary=headline(workload.namespace, one.work.title, waits_for, [each.object for each in preempts]),
        proof=Proof("run" if search.budget.stopped is None else "bounded", runs=search.runs, probes=search.runs),
        stopped=search.budget.stopped, namespace=workload.namespace, object=one.work.title,
        local_queue=workload.queue_name, cluster_queue="" if queue is None else queue.name,
        cohort="" if queue is None else queue.cohort, priority=workload.priority,
        pods=sum(pod_set.count for pod_set in workload.pod_sets), waits_for=waits_for, reason=reason,
        position=waiting.index(workload.key) + 1 if workload.key in waiting else None, waiting=len(waiting),
        without_node=without_node, now_s=now_s, starts_s=starts_s,
        ends=any(each.work.duration_s is not None for each in state.timeline.works if each is not one), needed=needed,
        borrowers=borrowers, kept=kept, preempts=preempts, written=tuple(_written(queued.works[number].workload)),
        changes=changes, tried=probes > 0,
    )  # fmt: skip


def _waits_for(state: _Trial) -> str:
    one, workload = state.one, state.one.work.workload
    if one.finished_s is not None or (one.holds and one.pods and one.is_ready):
        return "started"
    if one.deactivated:
        return "given up"
    if one.holds:
        return "nodes" if one.pods else "checks"
    if state.queue is None or not state.queue.active:
        return "queue"
    status, why, message = state.timeline.admission.waiting[state.queue.name].refusal(workload)
    if status != "False":
        return "turn"
    if ': topology "' in message:
        return "topology"
    return {_PREEMPTING: "preemption", "WaitingForPodsReady": "pods ready"}.get(why, "quota")


def _reason(state: _Trial, waits_for: str) -> str:
    if waits_for == "nodes":
        records = (state.simulation.records.get(uid) for uid in state.one.pods if uid not in state.one.placed)
        texts = list(dict.fromkeys(record.message.splitlines()[0] for record in records if record and record.message))
        return f"no node for {counted(len(state.one.pods) - len(state.one.placed), 'pod')}: {'; '.join(texts)}"
    return "" if state.one.holds else why_waiting(state.timeline.admission, state.one)


def _needed(state: _Trial, queue: ClusterQueue) -> Iterator[NeededQuota]:
    """Yield what the work needs in each flavor that its queue could give it; what it holds itself counts as free."""
    workload = state.one.work.workload
    total: dict[str, int] = {}
    for pod_set in workload.pod_sets:
        add_amounts(total, {**pod_set.counted, "pods": pod_set.counted.get("pods", 0) + 1}, pod_set.count)
    for group in queue.groups:
        for flavor in group.flavors:
            why = refusal_of(state.queued.objects.flavors.get(flavor), flavor, workload.pod_sets[0].spec) or ""
            for resource in sorted(name for name in group.resources if total.get(name)):
                key = (flavor, resource)
                free = queue.free(key) + workload.usage.get(key, 0)
                yield NeededQuota(*key, total[resource], queue.quota(key).nominal, queue.usage.get(key, 0), free, why)


def _borrowers(state: _Trial, queue: ClusterQueue) -> Iterator[Borrower]:
    holding = [one for one in state.timeline.works if one.holds]
    for other in queue.root().all_queues():
        for key, quota in queue.quotas.items():
            over = other.usage.get(key, 0) - other.quota(key).nominal
            if other is not queue and over > 0 and quota.nominal:
                held = (each for each in holding if each.work.workload.cluster_queue == other.name)
                names = tuple(dict.fromkeys(_title(each) for each in held if key in each.work.workload.uses))
                yield Borrower(other.name, *key, over, names)


def _kept(state: _Trial, queue: ClusterQueue) -> Iterator[KeptQuota]:
    """Yield the quota that is kept free for the heads of other queues of the tree."""
    admission = state.timeline.admission
    for other in queue.root().all_queues():
        if other is queue or other.name not in admission.kept:
            continue
        rules, (head, amounts) = state.queued.objects.queues[other.name], admission.kept[other.name]
        title = next((_title(one) for one in state.timeline.works if one.work.workload is head), head.key)
        for key, amount in amounts.items():
            if key in state.one.work.workload.usage or queue.group_of(key[1]) is not None:
                strategy = "StrictFIFO" if rules.strict else "BestEffortFIFO"
                yield KeptQuota(other.name, strategy, rules.preemption.reclaim, title, *key, amount)


def _preempted(state: _Trial) -> Iterator[PreemptedWork]:
    """Yield the works that lost their quota to this one."""
    title = _title(state.one)
    for other in state.timeline.works:
        for episode in other.episodes:
            if episode.reason and episode.by == title:
                queue, at = other.work.workload.cluster_queue, episode.until_s or 0.0
                yield PreemptedWork(_title(other), queue, at, episode.reason, episode.message)


def _written(workload: Workload) -> Iterator[WrittenCondition]:
    """Yield the conditions that the input's Workload has: those that say why it waits or was evicted, then the others."""
    for name, (status, reason, message) in workload.conditions.items():
        yield WrittenCondition(name, status, reason, message)


# -- changes ------------------------------------------------------------------------------------------------------------

_Change = Callable[[QueuedCluster], None]
#: Changes with their texts; the first that starts the work counts.
_Trials = Iterable[tuple[str, _Change]]


class _Search:
    """Tries changes by runs, as many as the limit allows."""

    def __init__(self, queued: QueuedCluster, number: int, options: Options, probes: int, budget: TimeBudget) -> None:
        self._pristine = queued
        self._number = number
        self._options = options
        self._left = probes
        self.budget = budget
        #: Whether others may have ended before the work arrives, or nodes matter for quota.
        self._needs_nodes = queued.works[number].arrival_s > 0 or bool(queued.objects.topologies)
        self.runs = 0
        #: The workloads that hold quota without a change, and whether the work has quota and waits for nodes.
        self._holders: set[str] = set()
        self._nodes = False

    def run(self, change: _Change, *, nodes: bool) -> _Trial:
        """Run until the work has arrived and what that causes is over."""
        self.runs += 1
        queued = self._pristine.fresh()
        change(queued)
        simulation, _ = prepare(self._options)
        given = queued.cluster if nodes else ClusterInput(namespaces=queued.cluster.namespaces)
        queued.attach(simulation)
        timeline = queued.timeline
        assert timeline is not None
        simulation.load(objects_of(create_for(given, self._options).cluster))
        one = timeline.works[self._number]
        simulation.run(one.arrived_s + _SETTLED_S)
        return _Trial(queued, simulation, timeline, one)

    def changes(self, state: _Trial, waits_for: str, queue: ClusterQueue | None, most: int) -> Iterator[StartingChange]:
        """Yield changes that start the work, those of its owner first; which jobs to stop last, as that takes most trials."""
        if queue is None or waits_for in {"queue", "checks"}:
            return
        self._nodes = waits_for == "nodes"
        self._holders = {one.work.workload.key for one in state.timeline.works if one.holds}
        of_quota = {
            "priority": self._priority, "limit": self._limit, "preemption": self._preemption, "quota": self._quota,
            "weight": self._weight, "stop": self._stop,
        }  # fmt: skip
        kinds = {"flavor": self._flavor, **({"stop": self._stop} if self._nodes else of_quota)}
        found = (one for kind, trials in kinds.items() for group in trials(state, queue) for one in self._first(kind, group))
        yield from islice(chain(self._gang(state), found), most)

    def _first(self, kind: str, trials: _Trials) -> Iterator[StartingChange]:
        """Yield the first of the changes that starts the work, with who waits instead."""
        for text, change in trials:
            if (instead := self._starts(change)) is not None:
                yield StartingChange(kind, text if kind == "stop" else f"{text}{instead}")
                return

    def _starts(self, change: _Change) -> str | None:
        """Return who waits instead if the work starts at once with a change, as a text; None if it does not start.

        It starts when it gets quota, or nodes where it has quota already.
        """
        if self._left <= 0 or self.budget.is_over():
            self.budget.leave("further changes that start it now")
            return None
        self._left -= 1
        trial = self.run(change, nodes=self._nodes or self._needs_nodes)
        if not trial.one.holds or (self._nodes and not trial.one.is_ready):
            return None
        lost = [one for one in trial.timeline.works if not one.holds and one.work.workload.active]
        waiting = (one for one in lost if one.work.workload.key in self._holders and one.finished_s is None)
        names = list(dict.fromkeys(map(_title, waiting)))
        return f"; {some(names)} then wait{'s' if len(names) == 1 else ''}" if names else ""

    def _gang(self, state: _Trial) -> Iterator[StartingChange]:
        """Fewer pods in the largest pod set: the most with which it starts."""
        sets = state.one.work.workload.pod_sets
        at = max(range(len(sets)), key=lambda index: sets[index].count)
        low, high, text = 0, sets[at].count, ""
        while high - low > 1:
            middle = (low + high) // 2
            instead = self._starts(partial(self._reduce, at, middle))
            low, high, text = (low, middle, text) if instead is None else (middle, high, instead)
        if low:
            yield StartingChange("gang", f"ask for {low} instead of {sets[at].count} pods in pod set {sets[at].name}{text}")

    def _reduce(self, at: int, count: int, queued: QueuedCluster) -> None:
        work = queued.works[self._number]
        less = with_fields(work.workload.pod_sets[at], count=count, min_count=None)
        work.workload.pod_sets = (*work.workload.pod_sets[:at], less, *work.workload.pod_sets[at + 1 :])
        work.pods = [pods[:count] if index == at else pods for index, pods in enumerate(work.pods)]
        work.workload.shape += f"/{count}"

    def _flavor(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Let the pods use a flavor whose taints or labels refuse them."""
        spec, flavors = state.one.work.workload.pod_sets[0].spec, state.queued.objects.flavors
        for name in dict.fromkeys(flavor for group in queue.groups for flavor in group.flavors):
            if name in flavors and (why := refusal_of(flavors[name], name, spec)):
                yield [(f"let its pods use flavor {name} ({why})", partial(self._tolerate, name))]

    def _tolerate(self, name: str, queued: QueuedCluster) -> None:
        work, flavor = queued.works[self._number], queued.objects.flavors[name]
        queued.objects.flavors[name] = replace(flavor, taints=())

        def freed(spec: PodSpec) -> PodSpec:
            kept = {key: value for key, value in spec.node_selector.items() if key not in flavor.labels}
            return replace(spec, node_selector=kept, affinity=None)

        work.workload.pod_sets = tuple(with_fields(one, spec=freed(one.spec)) for one in work.workload.pod_sets)
        work.workload.shape += f"/{name}"

    def _priority(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Raise its priority above that of others, by as little as helps."""
        own, tree = state.one.work.workload.priority, {one.name for one in queue.root().all_queues()}
        others = {one.work.workload.priority for one in state.timeline.works if one.work.workload.cluster_queue in tree}
        higher = sorted(priority + 1 for priority in others if priority >= own)
        yield ((f"priority {above} instead of {own}", partial(self._raise, above)) for above in higher)

    def _raise(self, priority: int, queued: QueuedCluster) -> None:
        workload = queued.works[self._number].workload
        workload.priority, workload.shape = priority, f"{workload.shape}/{priority}"

    def _stop(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Stop one job that holds quota, the smallest with which it starts; or the fewest of the smallest."""
        held = [one for one in state.timeline.works if one.holds and one is not state.one]
        keys = {(flavor, resource) for group in queue.groups for flavor in group.flavors for resource in group.resources}

        def cost(one: TimedWork) -> tuple[int, int]:
            workload = one.work.workload
            return workload.priority, sum(pod_set.count for pod_set in workload.pod_sets)

        able = sorted((one for one in held if self._nodes or keys & one.work.workload.uses), key=cost)
        alone = (
            (f"stop {_title(one)} of ClusterQueue {one.work.workload.cluster_queue}", partial(_end, [one])) for one in able
        )
        several = ((f"stop {', '.join(map(_title, able[:n]))}", partial(_end, able[:n])) for n in range(2, len(able) + 1))
        yield chain(alone, several)

    def _limit(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Let its queue borrow, or others lend, without a limit."""
        everyone = [queue] if queue.parent is None else state.queued.objects.queues.values()
        fields = (("borrowing_limit", "borrow", [queue]), ("lending_limit", "lend", everyone))
        yield (
            (
                f"let ClusterQueue {other.name} {shown} without a limit",
                partial(_set_quotas, other.name, {key: {field: None} for key in limited}),
            )
            for field, shown, queues in fields
            for other in queues
            if (limited := [key for key, quota in other.quotas.items() if getattr(quota, field) is not None])
        )

    def _preemption(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Let queues for which quota is kept free get it back when they need it; then let its own queue preempt."""
        kept = [one.queue for one in _kept(state, queue)]
        for names in (kept, [queue.name] if queue.parent is not None else []):
            yield [
                (
                    f"set preemption.reclaimWithinCohort of ClusterQueue {name} to Any",
                    partial(_set_preemption, name, {"reclaim": "Any"}),
                )
                for name in dict.fromkeys(names)
                if state.queued.objects.queues[name].preemption.reclaim != "Any"
            ]
        if queue.preemption.within_queue == "Never":
            text = f"set preemption.withinClusterQueue of ClusterQueue {queue.name} to LowerPriority"
            yield [(text, partial(_set_preemption, queue.name, {"within_queue": "LowerPriority"}))]

    def _quota(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Raise the quota of its queue in one flavor by what is missing, and by what those before it in the queue ask for."""
        missing: dict[str, dict[Key, int]] = {}
        for one in (each for each in _needed(state, queue) if each.missing and not each.why):
            missing.setdefault(one.flavor, {})[one.flavor, one.resource] = one.missing

        def raised(flavor: str, factor: int) -> tuple[str, _Change]:
            amounts = {key: amount * factor for key, amount in missing[flavor].items()}
            more = " and ".join(f"{amount_text(key[1], amount)} more {key[1]}" for key, amount in amounts.items())
            quotas = {key: {"nominal": queue.quota(key).nominal + amount} for key, amount in amounts.items()}
            return f"give ClusterQueue {queue.name} {more} in flavor {flavor}", partial(_set_quotas, queue.name, quotas)

        yield from ([raised(flavor, factor) for factor in (1, 2, 4)] for flavor in missing)

    def _weight(self, state: _Trial, queue: ClusterQueue) -> Iterator[_Trials]:
        """Raise the weight of its queue."""
        weights = [queue.weight * factor or 1.0 for factor in (2, 4, 8, 16) if state.queued.settings.fair]
        yield [
            (f"fair-sharing weight {weight:g} instead of {queue.weight:g}", partial(_set_weight, queue.name, weight))
            for weight in weights
        ]


def _end(gone: Sequence[TimedWork], queued: QueuedCluster) -> None:
    keys = {one.work.workload.key for one in gone}
    stopped = [work for work in queued.works if work.workload.key in keys]
    for work in stopped:
        work.workload.active = False
        work.workload.let_go()
    uids = {pod.uid for work in stopped for pods in work.pods for pod in pods}
    queued.cluster = with_fields(queued.cluster, pods=tuple(p for p in queued.cluster.pods if p.uid not in uids))


def _set_weight(name: str, weight: float, queued: QueuedCluster) -> None:
    queued.objects.queues[name].weight = weight


def _set_preemption(name: str, fields: Mapping[str, Any], queued: QueuedCluster) -> None:
    queue = queued.objects.queues[name]
    queue.preemption = with_fields(queue.preemption, **fields)


def _set_quotas(name: str, changes: Mapping[Key, Mapping[str, Any]], queued: QueuedCluster) -> None:
    queue = queued.objects.queues[name]
    for key, fields in changes.items():
        queue.quotas[key] = queue.quota(key)._replace(**fields)
    queue.root().settle()


def _title(one: TimedWork) -> str:
    return f"{one.work.workload.namespace}/{one.work.title}"
