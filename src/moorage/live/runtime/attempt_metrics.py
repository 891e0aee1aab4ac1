"""Follow each pod from its attempt to its binding, for the log and the metrics.

The log lines and their levels are kube-scheduler's, so that existing searches and alerts work.

Source  kube-scheduler, schedule_one.go and eventhandlers.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.basis.printable import clip
from moorage.core.binding.binding import Binding
from moorage.core.cycle.decision import NO_NODES, Decision
from moorage.core.engine.facts import Done, Fact, Gone, Phase, Seen, Work
from moorage.core.engine.scheduler import Scheduler
from moorage.core.groups.group_cycle import GroupReport
from moorage.core.queue import object_events
from moorage.core.queue.queued_pod import QueuedPod
from moorage.framework.effects import Evict
from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.framework.verdicts import Code
from moorage.state.pod_info import PodInfo

# Observers of the running scheduler: the protocols of its log and its metrics.
#
# The loop calls both and reads nothing from them. Neither may raise or wait. ``SILENT`` discards log lines.


class Ref(NamedTuple):
    """An object by name; ``namespace`` is "" for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def ref(pod: PodInfo) -> Ref:
    """Return a pod's name as a log shows it."""
    return Ref(pod.namespace, pod.name)


class Log:
    """Log lines with key-value facts. A higher level is more verbose; the log decides which levels it shows, this one none.

    Facts are text, numbers, booleans, ``Ref`` and sequences of these. Callers never pass secrets.
    """

    def shows(self, level: int) -> bool:
        """Return whether lines of this level are shown; check it before computing costly facts."""
        return False

    def info(self, level: int, message: str, **facts: object) -> None: ...
    def warning(self, message: str, **facts: object) -> None: ...
    def error(self, error: object, message: str, **facts: object) -> None:
        """Log an error that the scheduler survives; ``error`` may be None."""


class BoundPod(NamedTuple):
    """A pod that the fast lane placed and that is bound now.

    Seconds: ``seconds`` since its attempt began, ``waited_s`` since its initial attempt (None: unknown), ``bind_s`` since
    its bind began.
    """

    decision: Decision
    queued: QueuedPod
    seconds: float
    waited_s: float | None
    bind_s: float


class Measures(Protocol):
    """Counts and durations. Seconds are of the loop's clock."""

    def began(self) -> None:
        """Record that an attempt is about to begin, or to find that no pod is ready."""

    def attempted(self, decision: Decision, seconds: float) -> None:
        """Record an attempt; ``seconds`` until its decision."""

    def placed(self, decisions: Sequence[Decision], seconds: float) -> None:
        """Record attempts of the fast lane, which took ``seconds`` each; no plugin had work after the decision."""

    def all_bound(self, pods: Sequence[BoundPod]) -> None:
        """Record bound pods and their binds."""

    def failed(self, decision: Decision, seconds: float) -> None:
        """Record a failed attempt, whether it failed in the scheduling cycle or the binding cycle."""

    def grouped(self, report: GroupReport, seconds: float) -> None:
        """Record an attempt for a pod group; ``seconds`` until its decision."""

    def permitted(self, result: str, seconds: float) -> None:
        """Record how long Permit held a pod; ``result`` is the status it ended with."""

    def worked(self, phase: Phase, profile: str, seconds: float, error: str | None, preemptor: str = "") -> None:
        """Record the end of a piece of work; ``preemptor``: of evictions, ``pod``, ``podgroup`` or ``compositepodgroup``."""

    def handled(self, event: str, seconds: Sequence[float]) -> None:
        """Record that the engine processed facts, with the time that each took."""


SILENT: Final = Log()


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers of a scheduler: ``report`` gets a line for each error it survives; log and metrics get everything."""

    report: Callable[[str], None] = lambda line: None
    log: Log = SILENT
    measures: Measures | None = None


UNOBSERVED = Observers()


_OBJECT_EVENTS = (Seen, Gone)
_ACTIONS = {"add": Action.ADD, "update": Action.UPDATE_OTHER, "delete": Action.DELETE}


class _Kind:
    """How the log names objects of a kind, and action → the metric's event label; made once because there are many facts."""

    def __init__(self, resource: Resource, words: str, key: str) -> None:
        self.words, self.key = words, key
        self.labels = {word: str(ClusterEvent(resource, action)) for word, action in _ACTIONS.items()}


_NODE = _Kind(Resource.NODE, "node", "node")
_ASSIGNED = _Kind(Resource.ASSIGNED_POD, "scheduled pod", "pod")
_UNSCHEDULED = _Kind(Resource.UNSCHEDULED_POD, "unscheduled pod", "pod")
#: The event labels of new pods, and of pods that were assumed and are bound.
ASSIGNED_ADDED, UNSCHEDULED_ADDED = _ASSIGNED.labels["add"], _UNSCHEDULED.labels["add"]

#: The record of work that is not under way.
_NO_WORK: tuple[Phase, PodInfo | None, str, float, str] = (Phase.BIND, None, "", 0.0, "")


class _Trip(Struct):
    """A pod between its decision and its binding. ``held_since`` is set while Permit holds it."""

    decision: Decision
    queued: QueuedPod
    began: float
    held_since: float | None


class AttemptObserver:
    """Logs and measures attempts, work and facts. Times are on the loop's clock."""

    def __init__(self, scheduler: Scheduler, log: Log, measures: Measures | None) -> None:
        self._scheduler, self._log, self._measures = scheduler, log, measures
        self._cluster, self._queue, self._profiles = scheduler.cluster, scheduler.queue, scheduler.profiles
        self._trips: dict[str, _Trip] = {}
        #: Ticket → phase, pod, node and start of the work under way.
        self._works: dict[int, tuple[Phase, PodInfo, str, float, str]] = {}

    @property
    def under_way(self) -> dict[Phase, int]:
        """The number of pieces of work under way, by phase."""
        counts: dict[Phase, int] = {}
        for phase, *_ in self._works.values():
            counts[phase] = counts.get(phase, 0) + 1
        return counts

    def attempted(self, decision: Decision, began: float, now: float) -> None:
        """Record an attempt that has just ended."""
        pod = decision.pod
        if self._log.shows(3):
            self._log.info(3, "Attempting to schedule pod", pod=ref(pod))
        if self._measures is not None:
            self._measures.attempted(decision, now - began)
        if self._log.shows(5):
            self._log_details(decision)
        if decision.node is None:
            self._failed(decision, began, now)
            return
        binding = self._scheduler.binding_of(pod.uid)
        if binding is not None:
            self._trips[pod.uid] = _Trip(decision, binding.queued, began, now if binding.patience else None)

    def placed(self, run: Sequence[Binding], began: float, now: float) -> None:
        """Record pods that the fast lane placed together and whose binds start now; each counts for an equal part."""
        trips, works = self._trips, self._works
        for binding in run:
            decision, pod = binding.decision, binding.decision.pod
            trips[pod.uid] = _Trip(decision, binding.queued, began, None)
            works[binding.ticket or 0] = (Phase.BIND, pod, binding.node, now, "")
        if self._log.shows(3):
            for binding in run:
                self._log.info(3, "Attempting to schedule pod", pod=ref(binding.pod))
                if self._log.shows(5):
                    self._log_details(binding.decision)
        if self._measures is not None:
            self._measures.placed([binding.decision for binding in run], (now - began) / len(run))

    def _log_details(self, decision: Decision) -> None:
        """Log details at high verbosity: the PostFilter status at level 5, scores at level 10."""
        pod, outcome, scores = ref(decision.pod), decision.post_filter, decision.scores
        if outcome is not None:
            status = ", ".join(outcome.reasons) or outcome.code.value
            self._log.info(5, "Status after running PostFilter plugins for pod", pod=pod, status=clip(status))
        if scores is None or not self._log.shows(10):
            return
        nodes = self._scheduler.cluster.snapshot.table.nodes
        for at, row in enumerate(scores.rows.tolist()):
            for plugin, points in scores.final.items():
                self._log.info(
                    10, "Plugin scored node for pod", pod=pod, plugin=plugin, node=nodes[row].name, score=int(points[at])
                )
            self._log.info(
                10, "Calculated node's final score for pod", pod=pod, node=nodes[row].name, score=int(scores.total[at])
            )

    def grouped(self, report: GroupReport, began: float, now: float) -> None:
        """Record an attempt for a pod group; its pods are recorded one by one."""
        if self._measures is not None:
            self._measures.grouped(report, now - began)
        group, unscheduled = Ref(*report.key.split("/", 1)), report.unscheduled
        self._log.info(3, "Attempting to schedule pod group", podGroup=group)
        match report.result:
            case "scheduled":
                text, facts = "Successfully scheduled a pod group", {"scheduledPods": report.scheduled}
                self._log.info(2, text, podGroup=group, **facts, unschedulablePods=unscheduled)
            case "error":
                self._log.error(report.message, "Error scheduling pod group", podGroup=group, errorPods=unscheduled)
            case "waiting_on_preemption":
                self._log.info(2, "Pod group is waiting for preemption", podGroup=group, unschedulablePods=unscheduled)
            case _:
                self._log.info(2, "Unable to schedule a pod group", podGroup=group, unschedulablePods=unscheduled)

    def skipped(self, pod: PodInfo) -> None:
        """Record a pod that is skipped because it is being deleted."""
        self._log.info(3, "Skip schedule deleting pod", pod=ref(pod))

    def revoked(self, decision: Decision, now: float) -> None:
        """Record a decision that was revoked."""
        trip = self._trips.pop(decision.pod.uid, None)
        began = now
        if trip is not None:
            began = trip.began
            self._permitted(trip, decision.code.value, now)
        self._failed(decision, began, now)

    def _failed(self, decision: Decision, began: float, now: float) -> None:
        if self._measures is not None:
            self._measures.failed(decision, now - began)
        pod = ref(decision.pod)
        if not decision.code.is_rejection:
            self._log.error(decision.message, "Error scheduling pod; retrying", pod=pod)
        elif not self._log.shows(2):
            return
        elif decision.message == NO_NODES:
            self._log.info(2, "Unable to schedule pod; no nodes are registered to the cluster; waiting", pod=pod)
        else:
            self._log.info(2, "Unable to schedule pod; no fit; waiting", pod=pod, err=decision.message)

    # -- work --------------------------------------------------------------------------------------------------------------

    def started(self, work: Work, now: float) -> None:
        """Record the start of work."""
        preemptor = _preemptor(work) if work.phase is Phase.PREEMPT else ""
        self._works[work.ticket] = (work.phase, work.pod, work.node, now, preemptor)
        trip = self._trips.get(work.pod.uid)
        if trip is not None:
            self._permitted(trip, Code.SUCCESS.value, now)

    def _permitted(self, trip: _Trip, result: str, now: float) -> None:
        if trip.held_since is not None and self._measures is not None:
            self._measures.permitted(result, now - trip.held_since)
        trip.held_since = None

    def done(self, fact: Done, now: float) -> None:
        """Record the end of work, after the engine has processed the fact."""
        phase, pod, node, since, preemptor = self._works.pop(fact.ticket, _NO_WORK)
        if pod is None:
            return
        uid = pod.uid
        # The pod may already be deleted when its bind is answered.
        bound = phase is Phase.BIND and (fact.error is None or self._scheduler.cluster.node_of(uid) == node)
        trip = self._trips.pop(uid, None) if bound and self._scheduler.binding_of(uid) is None else None
        if trip is not None:
            self._bound([(trip, since)], now)
        elif self._measures is not None:
            self._measures.worked(phase, pod.spec.scheduler_name, now - since, None if bound else fact.error, preemptor)

    def binds_done(self, tickets: Sequence[int], now: float) -> None:
        """Record binds that succeeded, after the engine has processed the fact."""
        bindings, ended = self._scheduler.state.bindings.by_uid, list[tuple[_Trip, float]]()
        for ticket in tickets:
            _, pod, _, since, _ = self._works.pop(ticket, _NO_WORK)
            trip = None if pod is None or pod.uid in bindings else self._trips.pop(pod.uid, None)
            if trip is not None:
                ended.append((trip, since))
        if ended:
            self._bound(ended, now)

    def _bound(self, ended: Sequence[tuple[_Trip, float]], now: float) -> None:
        """Record pods that are bound, each with the time at which its bind began."""
        pods = []
        for trip, since in ended:
            first = trip.queued.initial_attempt
            waited_s = None if first is None else now - first
            pods.append(BoundPod(trip.decision, trip.queued, now - trip.began, waited_s, now - since))
            if self._log.shows(2):
                self._log_bound(trip)
        if self._measures is not None:
            self._measures.all_bound(pods)

    def _log_bound(self, trip: _Trip) -> None:
        decision, queued = trip.decision, trip.queued
        self._log.info(
            2, "Successfully bound pod to node", pod=ref(decision.pod), node=decision.node,
            evaluatedNodes=decision.evaluated, feasibleNodes=decision.feasible,
        )  # fmt: skip
        if queued.was_flushed:
            plugins = sorted(filter(None, queued.unschedulable_plugins))
            self._log.info(
                4, "Pod scheduled after flush from unschedulablePods", pod=ref(decision.pod), unschedulablePlugins=plugins
            )

    # -- facts -------------------------------------------------------------------------------------------------------------

    @property
    def may_count_events(self) -> bool:
        """True if no line of the log tells of a single fact, so that many may be counted together."""
        return not self._log.shows(3)

    def label_of(self, fact: Fact) -> str:
        """Log a fact and return its event label, before the engine processes it; "" for facts that no metric counts."""
        if not isinstance(fact, _OBJECT_EVENTS) or (self._measures is None and not self._log.shows(3)):
            return ""
        gone = isinstance(fact, Gone)
        obj = fact.obj
        if isinstance(obj, Pod):
            return self._label_of_pod(obj, gone=gone)
        if isinstance(obj, Node):
            known = self._scheduler.cluster.snapshot.table.row_of
            return self._logged(_NODE, "delete" if gone else "update" if obj.name in known else "add", obj)
        if self._measures is None:
            return ""
        old = self._scheduler.cluster.objects(type(obj)).get(obj.key)
        events = object_events(old or obj, None) if gone else object_events(old, obj)
        return str(events[0]) if events else ""

    def _label_of_pod(self, pod: Pod, *, gone: bool) -> str:
        uid, spec = pod.metadata.uid, pod.spec
        gone = gone or pod.status.phase in ENDED_PHASES
        if spec.node_name:
            kind, known = _ASSIGNED, uid in self._cluster.uids and uid not in self._cluster.assumed
        elif spec.scheduler_name in self._profiles:
            kind, known = _UNSCHEDULED, self._queue.get(uid) is not None or uid in self._trips
        else:
            return ""
        if gone or spec.node_name:
            trip = self._trips.get(uid)
            if trip is not None and trip.held_since is not None:
                del self._trips[uid]
        return self._logged(kind, "delete" if gone else "update" if known else "add", pod)

    def _logged(self, kind: _Kind, action: str, what: Node | Pod) -> str:
        level = 4 if action == "update" else 3
        if self._log.shows(level):
            metadata = what.metadata
            named = Ref(metadata.namespace, metadata.name)
            self._log.info(level, f"{action.capitalize()} event for {kind.words}", **{kind.key: named})
        return kind.labels[action]

    def handled(self, took: Mapping[str, Sequence[float]]) -> None:
        """Record that the engine has processed facts: their labels, with the time that each took."""
        if self._measures is not None:
            for label, seconds in took.items():
                self._measures.handled(label, seconds)


def _preemptor(work: Work) -> str:
    """Return the kind of object that evictions make room for, as metrics name it."""
    group = next((effect.group for effect in work.effects if isinstance(effect, Evict)), None)
    return "pod" if group is None else type(group).__name__.lower()
