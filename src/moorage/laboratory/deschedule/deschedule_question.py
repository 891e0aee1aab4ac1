"""Ask what a ``DeschedulerPolicy`` does: run its cycles in virtual time, with the scheduler between them.

Time stands still within a cycle. What it evicts is terminating for its later plugins; the replacements are created, and the
scheduler places them before the next cycle begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api.core import Namespace, Pod
from moorage.api.storage import PersistentVolumeClaim
from moorage.api.workloads import PriorityClass
from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.objects import find_objects, plain_object
from moorage.basis.inputs.usage import MeasuredUsage
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.drain.drain_question import course_of
from moorage.laboratory.drain.drain_run import DrainPlan
from moorage.laboratory.drain.virtual_drain import DrainCourse, EvictionApi, EvictionRules, NodeDrain
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran
from moorage.report import moves
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.simulator.descheduler.cycle import run_cycle
from moorage.simulator.descheduler.policy import DefaultEvictor, DeschedulerPolicy, DeschedulerProfile, Evictor
from moorage.simulator.descheduler.scene import PodReport, Scene
from moorage.simulator.owners import is_owned_by
from moorage.simulator.pod_records import State

_TERMINATING = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class DescheduleOptions:
    """``now_s``: when the first cycle runs, in Unix seconds.

    ``reports``  statuses of the pods of the input, by UID; ``usage``: what they use
    """

    now_s: float
    cycles: int = 10
    interval_s: float = 300.0
    ready_after_s: float = 10.0
    reports: Mapping[str, PodReport] = field(default_factory=dict)
    usage: MeasuredUsage | None = None


def deschedule_report(
    cluster: AskedCluster, request: AnswerRequest, policy: DeschedulerPolicy, options: DescheduleOptions,
    budget: TimeBudget | None = None,
) -> moves.DescheduleReport:  # fmt: skip
    """Return what a policy evicts, and where the pods go. Nothing changes.

    Raises  InputError for a priority class that the input does not have
    """
    grace = policy.grace_period_seconds
    rules = EvictionRules(grace_period_s=-1 if grace is None else grace, ready_after_s=options.ready_after_s)
    with cluster.transaction():
        cluster._step(Ran(None))
        run = _Run(course_of(cluster, DrainPlan(rules=rules)), policy, options)
        run.run(TimeBudget() if budget is None else budget)
        return run.report(request, budget)


class _Run:
    """The cycles of a policy in an open transaction."""

    def __init__(self, course: DrainCourse, policy: DeschedulerPolicy, options: DescheduleOptions) -> None:
        self._course, self._policy, self._options = course, policy, options
        self._begun_s = course.now
        self._born: dict[str, float] = {}
        #: The first pod of each chain of replacements, by the UID of a replacement; the nodes that the chain was on.
        self._first: dict[str, Pod] = {}
        self._paths: dict[str, list[str]] = {}
        self._before = self._pending()
        self._daemons = frozenset(pod.metadata.uid for pod in course.simulation.pods.values() if is_owned_by(pod, "DaemonSet"))
        self._busy_before = self._busy()
        self._protected: Counter[str] = Counter()
        self._classes: tuple[moves.NodeClass, ...] = ()
        self._idle: tuple[str, ...] = ()
        self.cycles: list[moves.CycleReport] = []

    def run(self, budget: TimeBudget) -> None:
        for number in range(1, self._options.cycles + 1):
            if number > 1 and budget.is_over():
                budget.leave(f"what cycles {number} to {self._options.cycles} evict")
                return
            self.cycles.append(self._cycle(number))

    # -- one cycle -----------------------------------------------------------------------------------------------------

    def _cycle(self, number: int) -> moves.CycleReport:
        begun_s, api = self._course.now, EvictionApi(self._course)
        going: set[str] = set()
        #: The cluster by the number of pods that are terminating.
        scenes: dict[int, Scene] = {}

        def see() -> Scene:
            if len(going) not in scenes:
                scenes[len(going)] = self._scene(going)
            return scenes[len(going)]

        def ask(pod: Pod) -> str:
            refused = api.refusal(pod)
            going.update(() if refused is not None else (pod.metadata.uid,))
            return "" if refused is None else refused[1]

        evictor, errors = run_cycle(self._policy, see, ask)
        if number == 1:
            self._classes = tuple(moves.NodeClass(*one) for one in evictor.classes)
            self._idle = tuple(evictor.idle)
            # Why DefaultEvictor of the first profile protects pods on nodes, whether or not a plugin wants them.
            scene, profile = self._scene(frozenset()), next(iter(self._policy.profiles), DeschedulerProfile())
            judge = DefaultEvictor(profile.args("DefaultEvictor"), scene)
            self._protected.update(why for pod in scene.pods if pod.spec.node_name and (why := judge.why_not(pod)))
        drain = NodeDrain(self._course)
        drain.run((one.pod, one.pod.spec.node_name) for one in evictor.evicted)
        for one in drain.evictions:
            first = self._first.get(one.uid, one.pod)
            self._paths.setdefault(first.metadata.uid, []).append(one.node)
            self._first.setdefault(first.metadata.uid, first)
            if one.replacement:
                self._first[one.replacement] = first
                self._born[one.replacement] = self._options.now_s + begun_s - self._begun_s
        self._course.advance(max(self._course.now, begun_s + self._options.interval_s))
        return moves.CycleReport(
            number=number, at_seconds=round(begun_s - self._begun_s, 6), evicted=tuple(self._fates(evictor, drain)),
            refused=dict(Counter(one.why for one in evictor.refused).most_common()), errors=tuple(errors),
            pending=len(self._pending() - self._before),
        )  # fmt: skip

    def _scene(self, going: set[str] | frozenset[str]) -> Scene:
        simulation, options = self._course.simulation, self._options
        state, aside = simulation.scheduler.cluster, self._course.cluster._aside.values()
        pods = sorted(simulation.pods.values(), key=lambda pod: (pod.namespace, pod.name))
        for at, pod in enumerate(pods):
            if pod.metadata.uid in going:
                pods[at] = pod.replace(metadata=pod.metadata.replace(deletion_timestamp=_TERMINATING))
        claims = {obj.key: obj.spec.storage_class_name or "" for obj in state.objects(PersistentVolumeClaim).values()}
        return Scene(
            [node for node in simulation.scheduler.snapshot.table.nodes if node is not None], pods,
            now_s=options.now_s + self._course.now - self._begun_s,
            namespaces={obj.name: obj.metadata.labels for obj in state.objects(Namespace).values()},
            priority_classes={obj.name: obj.value for obj in aside if isinstance(obj, PriorityClass)},
            reports=options.reports,
            is_covered=lambda pod: bool(self._course.book.covering(pod)),
            storage_class=lambda space, name: claims.get(f"{space}/{name}", ""),
            born_s=self._born,
            **({} if options.usage is None else self._measured(options.usage, pods)),
        )  # fmt: skip

    def _measured(self, usage: MeasuredUsage, pods: Iterable[Pod]) -> dict[str, Any]:
        """Return what pods and nodes use: a replacement as much as the pod before, a node without metrics what its pods do."""
        known, by_pod, by_node = usage.pods, dict[str, Mapping[str, int]](), dict[str, dict[str, int]]()
        for pod in pods:
            used = known.get(self._first.get(pod.metadata.uid, pod).key)
            if used is not None:
                by_pod[pod.key] = used
            total = by_node.setdefault(pod.spec.node_name, {"cpu": 0, "memory": 0})
            for name, amount in (used or {}).items():
                total[name] = total.get(name, 0) + amount
        empty = {node.name: {"cpu": 0, "memory": 0} for node in self._course.simulation.scheduler.snapshot.table.nodes}
        measured = {} if self.cycles else usage.nodes
        return {"pod_usage": by_pod, "node_usage": {**empty, **by_node, **measured}}

    def _fates(self, evictor: Evictor, drain: NodeDrain) -> list[moves.DescheduledPod]:
        found = []
        for asked, one in zip(evictor.evicted, drain.evictions, strict=True):
            record = self._course.simulation.records.get(one.replacement) if one.replacement else None
            to = record.node if record is not None and record.state == State.PLACED else ""
            outcome: moves.DescheduleOutcome = (
                "lost" if not one.replacement else "pending" if not to else "stays" if to == one.node else "moves"
            )
            why = record.message if record is not None and not to else ""
            name = record.pod.key if record is not None else ""
            found.append(moves.DescheduledPod(one.pod.key, asked.profile, asked.plugin, one.node, outcome, to, name, why))
        return found

    def _pending(self) -> set[str]:
        return {pod.metadata.uid for pod in self._course.simulation.pending_pods()}

    def _busy(self) -> int:
        """Return how many nodes have a pod other than those of daemon sets."""
        pods = self._course.simulation.pods.values()
        return len({pod.spec.node_name for pod in pods if pod.metadata.uid not in self._daemons and pod.spec.node_name})

    # -- the answer ------------------------------------------------------------------------------------------------------

    def report(self, request: AnswerRequest, budget: TimeBudget | None) -> moves.DescheduleReport:
        records = self._course.simulation.records
        pending = tuple(sorted(records[uid].pod.key for uid in self._pending() - self._before))
        paths = ((self._first[uid].key, path) for uid, path in self._paths.items() if len(path) > 1)
        again = [moves.OscillatingPod(key, len(path), tuple(path)) for key, path in paths]
        return moves.DescheduleReport(
            request=request,
            summary=moves.deschedule_summary(self.cycles, again, pending),
            proof=Proof("run", runs=1),
            stopped=None if budget is None or len(self.cycles) == self._options.cycles else budget.stopped,
            assumptions=(
                Assumption("interval", f"{self._options.interval_s:g}s between the beginnings of two cycles"),
                Assumption("pods and nodes of equal rank", "by namespace and name; the descheduler takes them in any order"),
                Assumption("readyAfter", f"{self._options.ready_after_s:g}s"),
            ),
            cycles=tuple(self.cycles),
            oscillating=tuple(sorted(again, key=lambda one: (-one.evictions, one.pod))),
            pending=pending,
            protected=dict(self._protected.most_common()),
            classes=self._classes,
            idle=self._idle,
            nodes_in_use=(self._busy_before, self._busy()),
            asked_cycles=self._options.cycles,
        )


def read_pod_reports(files: Iterable[str], *, recursive: bool = False) -> dict[str, PodReport]:
    """Return the statuses that only the descheduler reads, by UID, of the pods in files. Standard input is not read again.

    Raises  InputError
    """
    found: dict[str, PodReport] = {}
    for source in open_sources([one for one in files if one != "-"], recursive=recursive):
        for obj in find_objects(source):
            tree = plain_object(obj) if obj.kind == "Pod" else {}
            uid = tree.get("metadata", {}).get("uid")
            if uid:
                found[uid] = msgspec.convert(tree.get("status") or {}, PodReport)
    return found
