"""kube-scheduler's metrics: events that the loop reports as they happen, and state that is read at each scrape.

Events are reported through ``Measures``. The current state, such as the number of pending pods, is read at each scrape, so
maintaining it costs nothing.
"""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import STABLE, TODAY
from moorage.api.releases.metrics import Spec, metrics_of, own_metrics
from moorage.api.releases.release import Release
from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Phase
from moorage.core.engine.scheduler import Scheduler
from moorage.core.groups.group_cycle import GroupReport
from moorage.core.queue.queued_pod import QueuePlace
from moorage.framework.events import Resource
from moorage.framework.verdicts import Code
from moorage.live.runtime.attempt_metrics import AttemptObserver, BoundPod
from moorage.live.runtime.loop import Loop
from moorage.live.server.plugin_metrics import (
    CounterVec,
    EarlierName,
    Family,
    Filter,
    Gauge,
    Histogram,
    Labels,
    MetricRegistry,
    Probe,
)

#: Moorage's own metrics, in every release.
OWN: Final = own_metrics()

_DEFAULT_GATES: Final = FeatureGates()
_MOST_ATTEMPTS = 15
_SUCCESS, _ERROR = Code.SUCCESS.value, Code.ERROR.value
_WORK = {Phase.BIND: "Bind", Phase.PRE_BIND: "PreBind"}
_PLACES = {
    QueuePlace.ACTIVE: "active", QueuePlace.BACKOFF: "backoff",
    QueuePlace.UNSCHEDULABLE: "unschedulable", QueuePlace.GATED: "gated",
}  # fmt: skip


def _event_name(event: str, release: Release, of_itself: str = "Unscheduled") -> str:
    """Return a release's name of an event; ``of_itself``: what it calls the pod in updates of the one that they may help."""
    action = event.removeprefix(Resource.UNSCHEDULED_POD)
    if not release.names_target_pods or action == event:
        return event
    return f"{of_itself if action.startswith('Update') else 'Unscheduled'}Pod{action}"


def specs_of(release: str) -> Mapping[str, Spec]:
    """Return the metrics of a release, and Moorage's own."""
    return {**metrics_of(release), **OWN}


class SchedulerMetrics:
    """Implements ``moorage.live.runtime.attempt_metrics.Measures``. ``clock`` returns seconds, to measure plugins.

    ``gates``: the scheduler's feature gates; they, and the release they emulate, decide which metrics are shown.
    """

    def __init__(self, clock: Callable[[], float], gates: FeatureGates = _DEFAULT_GATES) -> None:
        self._gates = gates
        specs = specs_of(gates.release)

        def spec_of(name: str) -> Spec:
            return specs.get(name) or Spec(name, "", hidden=True)

        def counter(name: str) -> CounterVec:
            return CounterVec(spec_of(name))

        def histogram(name: str) -> Histogram:
            return Histogram(spec_of(name))

        self._attempts = counter("scheduler_schedule_attempts_total")
        self._errors = counter("moorage_attempt_errors_total")
        self._hangs = counter("moorage_plugin_hangs_total")
        self._attempt_s = histogram("scheduler_scheduling_attempt_duration_seconds")
        self._algorithm_s = histogram("scheduler_scheduling_algorithm_duration_seconds")
        self._event_s = histogram("scheduler_event_handling_duration_seconds")
        self._victims = histogram("scheduler_preemption_victims")
        self._preemptions = counter("scheduler_preemption_attempts_total")
        self._sli_s = histogram("scheduler_pod_scheduling_sli_duration_seconds")
        self._tries = histogram("scheduler_pod_scheduling_attempts")
        self._flushed = counter("scheduler_pod_scheduled_after_flush_total")
        self._points = histogram("scheduler_framework_extension_point_duration_seconds")
        self._calls = histogram("scheduler_plugin_execution_duration_seconds")
        self._hint_s = histogram("scheduler_queueing_hint_execution_duration_seconds")
        self._permit_s = histogram("scheduler_permit_wait_duration_seconds")
        self._evaluations = counter("scheduler_plugin_evaluation_total")
        self._evicting_s = histogram("scheduler_preemption_goroutines_duration_seconds")
        self._evicting = counter("scheduler_preemption_goroutines_execution_total")
        self._group_attempts = counter("scheduler_podgroup_schedule_attempts_total")
        self._group_attempt_s = histogram("scheduler_podgroup_scheduling_attempt_duration_seconds")
        self._group_algorithm_s = histogram("scheduler_podgroup_scheduling_algorithm_duration_seconds")
        self._placements = counter("scheduler_generated_placements_total")
        self._placement_results = counter("scheduler_placement_evaluations_total")
        self._placement_s = histogram("scheduler_placement_evaluation_duration_seconds")
        self._group_preemptions = counter("scheduler_workload_preemption_attempts_total")
        self._group_victims = histogram("scheduler_workload_preemption_victims")
        self._disruptions = histogram("scheduler_preemption_workload_disruptions")
        self._violations = counter("scheduler_preemption_pdb_violations_total")
        self._execution_s = histogram("scheduler_preemption_execution_duration_seconds")
        self._requests = counter("rest_client_requests_total")
        self._request_s = histogram("rest_client_request_duration_seconds")
        self._turn_s = histogram("rest_client_rate_limiter_duration_seconds")
        self.probe = Probe(clock, self._points, self._calls, self._evaluations)

    @property
    def families(self) -> list[Family]:
        """All counters and histograms, for a registry."""
        counted: list[Family] = [one for one in vars(self).values() if isinstance(one, (CounterVec, Histogram))]
        return _registered(counted, self._gates)

    def plugin_times(self) -> list[dict[str, Any]]:
        """Return the calls and seconds of each plugin at each extension point, in one attempt out of ten."""
        sums: dict[tuple[str, str], list[float]] = {}
        for (plugin, point, _), child in self._calls.children.items():
            found = sums.setdefault((plugin, point), [0, 0.0])
            found[0] += sum(child.counts)
            found[1] += child.total
        ordered = sorted(sums.items(), key=lambda one: -one[1][1])
        return [
            {"plugin": plugin, "extensionPoint": point, "calls": int(calls), "seconds": seconds}
            for (plugin, point), (calls, seconds) in ordered
        ]

    def hung(self, plugin: str, point: str, profile: str) -> None:
        """Count a call that has not returned for a second. The loop waits for it, so another thread may count."""
        self._hangs.inc(plugin, point, profile)

    # -- reported by the loop -------------------------------------------------------------------------------------------

    def began(self) -> None:
        self.probe.began()

    def attempted(self, decision: Decision, seconds: float) -> None:
        self.probe.ended(decision.pod.spec.scheduler_name, placed=decision.node is not None)
        self._algorithm_s.observe(seconds)
        outcome = decision.post_filter
        if outcome is not None:
            self._preemptions.inc()
            if outcome.victims:
                self._victims.observe(len(outcome.victims))
                self._cost("pod", outcome.disruptions, outcome.violations)

    def placed(self, decisions: Sequence[Decision], seconds: float) -> None:
        profiles: dict[str, int] = {}
        for decision in decisions:
            name = decision.pod.spec.scheduler_name
            profiles[name] = profiles.get(name, 0) + 1
        for name, count in profiles.items():
            self.probe.placed(name, count)
        self._algorithm_s.observe_all([seconds] * len(decisions))

    def all_bound(self, pods: Sequence[BoundPod]) -> None:
        if not _is_usual(pods):
            for pod in pods:
                self.bound(pod)
            return
        profile = pods[0].decision.pod.spec.scheduler_name
        self._points.observe_all([pod.bind_s for pod in pods], "Bind", _SUCCESS, profile)
        self._attempts.inc("scheduled", profile, by=len(pods))
        self._attempt_s.observe_all([pod.seconds for pod in pods], "scheduled", profile)
        self._tries.observe_all([1] * len(pods))
        self._sli_s.observe_all([pod.waited_s for pod in pods if pod.waited_s is not None], "1")

    def bound(self, pod: BoundPod) -> None:
        self.worked(Phase.BIND, pod.decision.pod.spec.scheduler_name, pod.bind_s, None)
        self._ended("scheduled", pod.decision, pod.seconds)
        attempts = pod.queued.attempts
        self._tries.observe(attempts)
        if pod.waited_s is not None:
            self._sli_s.observe(pod.waited_s, f"{_MOST_ATTEMPTS}+" if attempts >= _MOST_ATTEMPTS else str(attempts))
        if pod.queued.was_flushed:
            self._flushed.inc()

    def failed(self, decision: Decision, seconds: float) -> None:
        rejected = decision.code.is_rejection
        if not rejected:
            source = decision.error or decision.refused_after
            # Conflicts and other refusals of the API server name no plugin.
            if decision.error is not None or (source is not None and source.plugin):
                self._errors.inc("" if source is None else source.plugin, decision.pod.spec.scheduler_name)
        self._ended("unschedulable" if rejected else "error", decision, seconds)

    def _ended(self, result: str, decision: Decision, seconds: float) -> None:
        profile = decision.pod.spec.scheduler_name
        self._attempts.inc(result, profile)
        self._attempt_s.observe(seconds, result, profile)

    def grouped(self, report: GroupReport, seconds: float) -> None:
        if not report.of_root:
            return
        self._group_algorithm_s.observe(seconds)
        self._group_attempts.inc(report.of_root, report.profile)
        self._group_attempt_s.observe(seconds, report.of_root, report.profile)
        for result, count in report.placements.items():
            if result == "generated":
                self._placements.inc(report.profile, by=count)
            else:
                self._placement_results.inc(result, report.profile, by=count)
        if report.preempted:
            self._group_preemptions.inc(report.preempted)
        if report.victims:
            self._group_victims.observe(report.victims)
            self._cost(report.preemptor, report.disruptions, report.violations)

    def _cost(self, preemptor: str, disruptions: int, violations: int) -> None:
        if disruptions:
            self._disruptions.observe(disruptions, preemptor)
        if violations:
            self._violations.inc(preemptor, by=violations)

    def permitted(self, result: str, seconds: float) -> None:
        self._permit_s.observe(seconds, result)

    def worked(self, phase: Phase, profile: str, seconds: float, error: str | None, preemptor: str = "") -> None:
        if phase is Phase.PREEMPT:
            result = "success" if error is None else "error"
            self._evicting_s.observe(seconds, result)
            self._evicting.inc(result)
            self._execution_s.observe(seconds, preemptor, result)
        elif phase in _WORK:
            status = _SUCCESS if error is None else _ERROR
            self._points.observe(seconds, _WORK[phase], status, profile)

    def handled(self, event: str, seconds: Sequence[float]) -> None:
        self._event_s.observe_all(seconds, _event_name(event, self._gates.emulated))

    # -- reported by others ---------------------------------------------------------------------------------------------

    def hinted(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """Record the duration of a queueing hint."""
        self._hint_s.observe(seconds, plugin, _event_name(event, self._gates.emulated, "Target"), hint)

    def evaluated(self, result: str, profile: str, seconds: float) -> None:
        """Record how long it took to try a placement of a group."""
        self._placement_s.observe(seconds, result, profile)

    def requested(self, method: str, host: str, status: int, seconds: Sequence[float]) -> None:
        """Record requests to the API server with their durations; status 0 means no response."""
        self._requests.inc(str(status) if status else "<error>", method, host, by=len(seconds))
        self._request_s.observe_all(seconds, method, host)

    def waited(self, method: str, host: str, seconds: Sequence[float]) -> None:
        """Record how long each request waited for the client-side rate limiter (--kube-api-qps)."""
        self._turn_s.observe_all(seconds, method, host)


def _is_usual(pods: Sequence[BoundPod]) -> bool:
    """Return True for pods of one profile that were bound at their first attempt."""
    profile = pods[0].decision.pod.spec.scheduler_name
    for pod in pods:
        queued = pod.queued
        if queued.attempts != 1 or queued.was_flushed or pod.decision.pod.spec.scheduler_name != profile:
            return False
    return True


def _registered(families: Iterable[Family], gates: FeatureGates) -> list[Family]:
    return [one for one in families if not one.spec.gate or gates[one.spec.gate]]


def _lasting(rows: Callable[[], Iterable[tuple[Labels, float]]]) -> Callable[[], Iterable[tuple[Labels, float]]]:
    """Let a series that was there once stay, at 0, as it does in kube-scheduler."""
    known: dict[Labels, float] = {}

    def lasting() -> Iterable[tuple[Labels, float]]:
        for labels in known:
            known[labels] = 0.0
        known.update(rows())
        return list(known.items())

    return lasting


def engine_gauges(scheduler: Scheduler, follower: AttemptObserver) -> list[Family]:
    """Return the gauges that read the engine."""
    release = scheduler.gates.emulated
    specs = specs_of(release.name)
    named = partial(_event_name, release=release, of_itself="Target")

    def pending() -> Iterator[tuple[Labels, float]]:
        counts, of_groups = scheduler.queue.counts(), scheduler.queue.counts_of_groups()
        counts[QueuePlace.GATED] -= of_groups.get("incomplete", 0)
        shown = ((word, counts[place]) for place, word in _PLACES.items() if word != "gated" or release.has_pre_enqueue)
        return (((word,), float(count)) for word, count in chain(shown, of_groups.items()))

    def entities() -> Iterator[tuple[Labels, float]]:
        for (place, kind), count in scheduler.queue.entities().items():
            if place in _PLACES:
                yield (_PLACES[place], kind), float(count)

    def cache() -> Iterable[tuple[Labels, float]]:
        cluster = scheduler.cluster
        return [
            (("nodes",), float(len(cluster.snapshot.table))),
            (("pods",), float(cluster.pod_count)),
            (("assumed_pods",), float(len(cluster.assumed))),
        ]

    def under_way() -> Iterable[tuple[Labels, float]]:
        counts = follower.under_way
        binding = counts.get(Phase.BIND, 0) + counts.get(Phase.PRE_BIND, 0)
        return [(("binding",), float(binding)), (("preemption",), float(counts.get(Phase.PREEMPT, 0)))]

    def incoming() -> Iterable[tuple[Labels, float]]:
        counts = Counter(scheduler.queue.incoming) + scheduler.queue.members_in
        return [((place, named(event)), float(count)) for (place, event), count in counts.items()]

    def incoming_entities() -> Iterable[tuple[Labels, float]]:
        rows = scheduler.queue.incoming_entities()
        return [((place, named(event), kind), float(count)) for (place, event, kind), count in rows]

    def rejected() -> Iterable[tuple[Labels, float]]:
        return [(kind, float(count)) for kind, count in scheduler.queue.rejections().items()]

    def logged() -> Iterable[tuple[Labels, float]]:
        return [((named(label),), float(count)) for label, count in scheduler.queue.logged_labels().items()]

    gauges: list[Family] = [
        Gauge(specs["scheduler_pending_pods"], pending),
        Gauge(specs["scheduler_cache_size"], cache),
        Gauge(specs["scheduler_goroutines"], under_way),
        Gauge(specs["scheduler_queue_incoming_pods_total"], incoming, counts=True),
        Gauge(specs["scheduler_unschedulable_pods"], _lasting(rejected)),
        Gauge(specs["scheduler_inflight_events"], logged),
    ]
    if "scheduler_queued_entities" in specs:
        gauges.append(Gauge(specs["scheduler_queued_entities"], _lasting(entities)))
        gauges.append(Gauge(specs["scheduler_queue_incoming_entities_total"], incoming_entities, counts=True))
    return _registered(gauges, scheduler.gates)


def process_gauges(scheduler: Scheduler, loop: Loop, version: str, lease: str, leads: Callable[[], bool]) -> list[Family]:
    """Return the gauges about this process. ``lease`` is the lease's name; "" without leader election."""

    def master() -> Iterable[tuple[Labels, float]]:
        return [((lease,), float(leads()))] if lease else []

    def features() -> Iterable[tuple[Labels, float]]:
        gates = scheduler.gates
        shown = gates.emulated.gates.items()
        return [((name, "" if gate.stage == STABLE else gate.stage), float(gates[name])) for name, gate in shown]

    def repeated() -> tuple[float, Mapping[str, int]]:
        verification = scheduler.cycle.verification
        return (0.0, {}) if verification is None else (float(verification.repeated), verification.differences)

    specs = specs_of(scheduler.gates.release)
    major, minor = scheduler.gates.emulated.series.split(".")
    python = platform.python_version()
    system = f"{platform.system().lower()}/{platform.machine().lower()}"
    build = (major, minor, f"moorage-v{version}", "", "", "", f"python{python}", sys.implementation.name, system)
    emulated = scheduler.gates.emulated
    versions = ("kube", emulated.version, emulated.series, f"{major}.{int(minor) - 1}")
    return [
        Gauge(specs["leader_election_master_status"], master),
        Gauge(specs["kubernetes_feature_enabled"], features),
        Gauge(specs["kubernetes_build_info"], lambda: [(build, 1.0)]),
        *([Gauge(specs["version_info"], lambda: [(versions, 1.0)])] if "version_info" in specs else []),
        Gauge(specs["moorage_faults_total"], lambda: [((), float(loop.faults))], counts=True),
        Gauge(specs["moorage_events_dropped_total"], lambda: [((), float(loop.dropped_events))], counts=True),
        Gauge(specs["moorage_verified_decisions_total"], lambda: [((), repeated()[0])], counts=True),
        Gauge(
            specs["moorage_verification_differences_total"],
            lambda: [((plugin,), float(count)) for plugin, count in repeated()[1].items()],
            counts=True,
        ),
    ]


def registry_of(families: Iterable[Family], shown: Filter, release: str = TODAY) -> tuple[MetricRegistry, CollectorRegistry]:
    """Return the registry of /metrics: these families, and prometheus-client's process and garbage collector metrics."""
    disabled, specs = len(shown.disabled), metrics_of(release)
    every = [*families, Gauge(specs["disabled_metrics_total"], lambda: [((), float(disabled))], counts=True)]
    if "registered_metrics_total" in specs:
        every += [
            Gauge(specs["registered_metrics_total"], lambda: _registered_by_stability(every), counts=True),
            Gauge(specs["hidden_metrics_total"], lambda: [((), float(_hidden(every)))], counts=True),
        ]
    own = MetricRegistry([*every, *_earlier_names(every, specs)], shown)
    collectors = own.with_others()
    ProcessCollector(registry=collectors)
    GCCollector(registry=collectors)
    return own, collectors


def _registered_by_stability(families: Iterable[Family]) -> list[tuple[Labels, float]]:
    """Return the number of Kubernetes' metrics by stability, deprecated in no release."""
    counts = Counter(one.spec.stability for one in families if one.spec.stability and not one.spec.hidden)
    return [((stability, ""), float(count)) for stability, count in counts.items()]


def _hidden(families: Iterable[Family]) -> int:
    return sum(bool(one.spec.hidden and one.spec.deprecated) for one in families)


def _earlier_names(families: Iterable[Family], specs: Mapping[str, Spec]) -> Iterator[Family]:
    """Yield the metrics that a release has under an earlier, deprecated name too."""
    by_name = {one.spec.name: one for one in families if not isinstance(one, EarlierName)}
    for spec in specs.values():
        family = by_name.get(specs[spec.of].name) if spec.of else None
        if family is not None:
            yield EarlierName(spec, family)
