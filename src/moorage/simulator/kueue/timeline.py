"""Queues in virtual time: jobs arrive, are admitted, run on the nodes that the scheduler gives them, end and give quota back.

Cycles take no time. What waits without hope is woken one second after something changed, as Kueue batches it. An evicted job
loses its pods and waits again; its work begins again. Each admitted workload is noted with its times, for the report.

Source  Kueue, pkg/cache/queue/inadmissible_workloads.go; pkg/controller/core/workload_controller.go; pkg/controller/jobs
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod, PodSpec
from moorage.api.documents.object_fields import stable_uid
from moorage.api.pod_requests import add_amounts
from moorage.api.pod_requests import amount as amount_of
from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Gone, Seen
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.integrations import QueuedWork
from moorage.simulator.kueue.objects import Flavor
from moorage.simulator.kueue.settings import Settings
from moorage.simulator.kueue.topology import FreeNode
from moorage.simulator.kueue.workloads import Amounts, Assigned, Workload
from moorage.simulator.pod_records import PodRecord, State, in_turn
from moorage.simulator.replacements import replacement
from moorage.simulator.simulation import SimulatedCluster

#: How long after a change the waiting workloads are woken.
_WAKE_S: Final = 1.0
#: A work that its own pods or checks evicted this often while no other arrived or ended is set aside until another ends, so
#: that a run has an end; one that the same other work evicts, the second time. Each time it waits for twice as many ends.
_FUTILE: Final = 10
_MOST_ENDS: Final = 64


@dataclass(slots=True)
class Episode:
    """A time in which a workload held quota.

    ``reason``   why it lost it; empty if it ended or still holds it
    ``by``       the object of the workload for which it lost it
    ``message``  what Kueue wrote of that
    """

    since_s: float
    usage: Amounts
    until_s: float | None = None
    reason: str = ""
    by: str = ""
    message: str = ""


@dataclass(slots=True, eq=False)
class TimedWork:
    """A work, and what became of it.

    ``started_s``, ``ready_s``  when its pods were created first, and when all of them had a node first
    ``lost``     what its evicted pods had used: amounts times seconds, by resource
    ``pods``     the pods that it has, with the number of their pod set; ``placed``: those with a node
    ``left``     how many pods of each pod set must still end; ``models``: a pod of each, for those that follow
    ``is_gone``  it was evicted, and no controller makes its pods again
    ``serial``   rises with each change of its quota: what was planned before no longer holds
    ``unready``  it has quota, and waitForPodsReady waits for its pods
    ``futile``   what evicted it since ``changes`` arrivals and ends of others, in turn; empty: itself
    ``asides``   how often it was set aside because of that
    """

    work: QueuedWork
    arrived_s: float
    episodes: list[Episode] = field(default_factory=list)
    started_s: float | None = None
    ready_s: float | None = None
    finished_s: float | None = None
    lost: dict[str, float] = field(default_factory=dict)
    attempts: int = 0
    deactivated: str = ""
    is_gone: bool = False
    pods: dict[str, int] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    left: list[int] = field(default_factory=list)
    models: list[Pod | None] = field(default_factory=list)
    serial: int = 0
    unready: bool = False
    futile: list[str] = field(default_factory=list)
    changes: int = 0
    asides: int = 0

    @property
    def holds(self) -> bool:
        return bool(self.episodes) and self.episodes[-1].until_s is None

    @property
    def is_ready(self) -> bool:
        """True once all pods have a node or have ended."""
        return len(self.placed) == len(self.pods)


class QueueTimeline:
    """Drives an admission and a simulated cluster together. ``zero_s`` is the time of the admission at the beginning."""

    def __init__(
        self, simulation: SimulatedCluster, admission: QueueAdmission, works: Iterable[QueuedWork], settings: Settings,
        zero_s: float, titles: dict[str, str],
    ) -> None:  # fmt: skip
        self.admission = admission
        self.works = [TimedWork(work, work.arrival_s) for work in works]
        self._settings = settings
        self._simulation = simulation
        self._zero_s = zero_s
        self._titles = titles
        #: Pods whose places in a topology count for their workloads.
        self._placed_by_queue: set[str] = set()
        self._by_key = {one.work.workload.key: one for one in self.works}
        self._by_pod: dict[str, TimedWork] = {}
        self._cycles_due = self._cycling = self._wake_due = False
        self._unready = 0
        #: Works that others, or their own pods, evict again and again: why, and after how many ends they are queued again.
        self._set_aside: dict[TimedWork, tuple[str, int]] = {}
        self._ends = 0
        #: Workloads that found no places after their checks; the next change lets them look again.
        self._unplaced: list[Workload] = []
        #: How many works hold quota.
        self._holding = 0
        self._again = 0
        self._changes = 0
        admission.blocks = self._blocks
        simulation.on_end = in_turn(simulation.on_end, self._note_end)
        simulation.on_result = in_turn(simulation.on_result, self._note_decision)

    def start(self) -> None:
        """Schedule the arrivals; works that hold quota already go on."""
        for one in self.works:
            if one.work.workload.admission and one.work.workload.cluster_queue in self.admission.objects.queues:
                self.admission.hold(one.work.workload)
                (self._reserve if one.work.workload.needs_places else self._resume)(one)
                if not one.work.workload.active:
                    self._deactivate(one, inactive_text(one.work.workload))
            elif not one.work.workload.active:
                one.deactivated = inactive_text(one.work.workload)
        for one in self.works:
            if not one.episodes and not one.deactivated and not one.work.held_back:
                self._simulation.at(one.arrived_s, partial(self._arrive, one))
        if self.admission.has_untried():  # a gang stands on a failed node
            self._ask_for_cycles()

    @property
    def _now(self) -> float:
        return self._simulation.now

    # -- the queue side

    def _arrive(self, one: TimedWork) -> None:
        workload = one.work.workload
        self._changes += 1
        if one.arrived_s:
            workload.created = workload.order_time = self._zero_s + one.arrived_s
        if self.admission.add(workload, self._zero_s + self._now):
            self._ask_for_cycles()

    def _ask_for_cycles(self) -> None:
        if not self._cycles_due:
            self._cycles_due = True
            if not self._cycling:  # what a decision causes waits until all of them are carried out
                self._simulation.at(self._now, self._run_cycles)

    def _ask_to_wake(self) -> None:
        if not self._wake_due:
            self._wake_due = True
            self._simulation.at(self._now + _WAKE_S, self._wake)

    def _wake(self) -> None:
        self._wake_due = False
        for one in self._unplaced:
            self.admission.place_later(one)
        self._unplaced = []
        self.admission.wake(self._zero_s + self._now)
        self._ask_for_cycles()

    def _run_cycles(self) -> None:
        """Run cycles until each workload at a head was tried since the last change."""
        self._cycles_due, self._cycling = False, True
        admission, now = self.admission, self._zero_s + self._now
        if admission.trees:
            admission.set_nodes(self._free_nodes())
        while admission.has_untried():
            decided = admission.cycle(now)
            for workload in decided.admitted:
                self._reserve(self._by_key[workload.key])
            for workload in decided.placed:
                self._start(self._by_key[workload.key])
            self._unplaced += decided.unplaced
            for workload in decided.failed:
                self._evict(self._by_key[workload.key], "NodeFailures")
            for eviction in decided.evicted:
                by = self._by_key[eviction.preemptor.key].work
                self._evict(self._by_key[eviction.workload.key], eviction.reason, f"{by.workload.namespace}/{by.title}")
        self._cycling = False
        if self._cycles_due:
            self._simulation.at(self._now, self._run_cycles)

    def _free_nodes(self) -> Iterator[FreeNode]:
        """Yield the nodes that take pods, with what pods leave free on them that Kueue does not place."""
        table = self._simulation.scheduler.cluster.table
        for node, pods in zip(table.nodes, table.pods, strict=True):
            if node.spec.unschedulable or not node.is_ready:
                continue
            free = {name: amount_of(name, quantity) for name, quantity in node.status.allocatable.items()}
            for uid, pod in pods.items():
                if uid not in self._placed_by_queue:
                    add_amounts(free, {**pod.requests, "pods": 1}, -1)
            yield FreeNode(node.name, node.labels, node.spec.taints, free)

    def _blocks(self, admitted: int) -> bool:
        """Return whether admission waits until the pods of all admitted workloads are ready; so many are of this cycle."""
        rules = self._settings.pods_ready
        return rules is not None and rules.blocks and self._unready + admitted > 0

    # -- a work takes quota, runs, and gives it back

    def _reserve(self, one: TimedWork) -> None:
        """Note that a work has quota; it starts when its checks are passed."""
        workload, queue = one.work.workload, self.admission.objects.queues[one.work.workload.cluster_queue]
        one.episodes.append(Episode(self._now, dict(workload.usage)))
        self._holding += 1
        one.attempts += 1
        one.serial += 1
        self._set_ready(one, False)
        flavors = {flavor for assigned in workload.admission for flavor in assigned.flavors.values()}
        known = self._settings.checks
        checks = [known[name] for name, of in queue.checks if name in known and (not of or flavors & of)]
        told = {check.answer(one.attempts - 1) for check in checks}
        self._later(max((check.delay_s for check in checks), default=0.0), one, lambda: self._judge(one, told))

    def _judge(self, one: TimedWork, told: Collection[str]) -> None:
        if "Rejected" in told:
            self._deactivate(one, "an admission check was rejected")
        elif "Retry" in told:
            self._evict(one, "AdmissionCheck")
        elif one.work.workload.needs_places and not self.admission.objects.queues[one.work.workload.cluster_queue].is_remote:
            self.admission.place_later(one.work.workload)
            self._ask_for_cycles()
        else:
            self._start(one)

    def _later(self, delay_s: float, one: TimedWork, call: Callable[[], None]) -> None:
        """Call something after a time, if the work then still has the quota that it has now."""
        serial = one.serial
        if not delay_s:
            call()
        else:
            self._simulation.at(self._now + delay_s, lambda: call() if one.serial == serial else None)

    def _set_ready(self, one: TimedWork, ready: bool) -> None:
        if self._settings.pods_ready is None or one.unready is not ready:
            return
        one.unready = not ready
        self._unready += 1 if one.unready else -1
        if ready and not self._unready:
            self.admission.try_again()
            self._ask_for_cycles()

    def _start(self, one: TimedWork) -> None:
        """Create the pods of an admitted work, with what its flavors ask for."""
        work, objects, ledger = one.work, self.admission.objects, self.admission.ledger
        if ledger is not None and objects.queues[work.workload.cluster_queue].usage_based:
            ledger.advance(self._zero_s + self._now)
            ledger.start(work.workload)
        if one.started_s is None:
            one.started_s = self._now
        one.pods.clear()
        one.placed.clear()
        one.left, one.models = [], []
        for at, assigned in enumerate(work.workload.admission):
            fresh = _with_flavors(work.pods[at][: assigned.count], assigned, objects.flavors)
            pods = [pod if one.attempts < 2 else _copy_of(pod, one.attempts) for pod in fresh]
            self._placed_by_queue.update(pod.uid for pod in pods if assigned.placed is not None)
            one.left.append(work.completions[at] or len(pods))
            one.models.append(pods[0] if pods else None)
            for pod in pods[: one.left[at]]:
                self._create(one, pod, at)
        rules = self._settings.pods_ready
        if rules is not None:
            self._later(rules.timeout_s, one, lambda: self._check_ready(one))
        if work.lasts_s is not None:
            self._later(work.lasts_s, one, lambda: self._deactivate(one, "exceeding the maximum execution time"))

    def _resume(self, one: TimedWork) -> None:
        """Take up a work that was admitted before the beginning, with the pods that it has."""
        work = one.work
        one.episodes.append(Episode(0.0, dict(work.workload.usage)))
        self._holding += 1
        one.started_s, one.attempts = 0.0, 1
        one.left = [wanted or len(pods) for wanted, pods in zip(work.completions, work.pods, strict=True)]
        one.models = [replace(pods[0], spec=replace(pods[0].spec, node_name="")) if pods else None for pods in work.pods]
        for at, pods in enumerate(work.pods):
            for pod in pods:
                if pod.spec.node_name:
                    if any(held.placed is not None for held in work.workload.admission):
                        self._placed_by_queue.add(pod.uid)
                    self._know(one, pod, at)
                    one.placed.add(pod.uid)
                    if work.duration_s is not None:
                        self._simulation.at(work.duration_s, partial(self._end, pod))
                else:
                    self._create(one, pod, at)
        if not any(work.pods) and work.duration_s is not None:
            self._later(work.duration_s, one, lambda: self._finish(one))
        self._set_ready(one, one.is_ready)

    def _create(self, one: TimedWork, pod: Pod, at: int) -> None:
        self._know(one, pod, at)
        if one.work.duration_s is not None:
            self._simulation.durations[pod.uid] = one.work.duration_s
        self._simulation.at(self._now, Seen(pod))

    def _know(self, one: TimedWork, pod: Pod, at: int) -> None:
        one.pods[pod.uid] = at
        self._by_pod[pod.uid] = one
        self._titles[pod.uid] = one.work.title

    def _end(self, pod: Pod) -> None:
        """Let a pod end that was on a node from the beginning."""
        if (one := self._by_pod.get(pod.uid)) is not None and pod.uid in one.pods:
            self._record(pod)
            self._drop(pod.uid)

    def _record(self, pod: Pod) -> PodRecord:
        """Return the record of a pod with a node; one that had it from the beginning gets a record."""
        begun = PodRecord(pod, 0.0, State.PLACED, pod.spec.node_name, placed_s=0.0)
        return self._simulation.records.setdefault(pod.uid, begun)

    # -- what the cluster tells

    def _note_decision(self, decision: Decision) -> None:
        one = self._by_pod.get(decision.pod.uid)
        if one is None:
            return
        (one.placed.discard if decision.node is None else one.placed.add)(decision.pod.uid)
        if one.is_ready and one.ready_s is None:
            one.ready_s = self._now
        self._set_ready(one, one.is_ready)

    def _note_end(self, record: PodRecord) -> None:
        one = self._by_pod.get(record.pod.uid)
        if one is None:
            return
        if record.replaced and (fresh := replacement(record.pod)) is not None:
            at = one.pods.pop(record.pod.uid, 0)
            one.placed.discard(record.pod.uid)
            self._lose(one, record)
            self._know(one, fresh, at)
            return
        self._ended(one, record.pod, record.state)

    def _ended(self, one: TimedWork, pod: Pod, state: str) -> None:
        at = one.pods.pop(pod.uid, None)
        del self._by_pod[pod.uid]
        if at is None or not one.holds:
            self._release_if_gone(one)
            return
        one.placed.discard(pod.uid)
        if state != State.FINISHED:
            return
        one.left[at] -= 1
        running = sum(place == at for place in one.pods.values())
        if one.left[at] > running:
            again = one.models[at]
            assert again is not None
            self._again += 1
            self._create(one, _copy_of(again, self._again), at)
        elif not any(one.left):
            self._finish(one)
        else:
            self._reclaim(one, at)

    def _reclaim(self, one: TimedWork, at: int) -> None:
        """Give back the quota of pods that ended while others of their Job still run."""
        workload = one.work.workload
        assigned = workload.admission[at]
        if not one.work.title.startswith(("Job/", "JobSet/")) or one.left[at] >= assigned.count:
            return
        self.admission.shrink(workload, at, one.left[at])
        one.episodes[-1].until_s = self._now
        one.episodes.append(Episode(self._now, dict(workload.usage)))
        self._ask_to_wake()

    def _finish(self, one: TimedWork) -> None:
        one.finished_s = self._now
        self._changes += 1
        self._close(one, "")
        self.admission.release(one.work.workload)
        self._ends += 1
        for other, (_, due) in list(self._set_aside.items()):  # if none is left that could end, all are queued again
            if other.work.workload.reserved_at is None and (not self._holding or due <= self._ends):
                del self._set_aside[other]
                self.admission.add(other.work.workload, self._zero_s + self._now)
                self._ask_for_cycles()
        self._ask_to_wake()

    def _close(self, one: TimedWork, reason: str) -> None:
        one.episodes[-1].until_s, one.episodes[-1].reason = self._now, reason
        self._holding -= 1
        one.serial += 1
        if self.admission.ledger is not None:
            self.admission.ledger.advance(self._zero_s + self._now)
        self._set_ready(one, True)

    # -- losing quota

    def _check_ready(self, one: TimedWork) -> None:
        rules = self._settings.pods_ready
        if rules is None or one.is_ready or not one.holds:
            return
        workload = one.work.workload
        if rules.limit is not None and workload.requeues + 1 > rules.limit:
            self._deactivate(one, "exceeding the maximum number of re-queuing retries")
            return
        workload.requeues += 1
        wait_s = min(rules.base_s * 2.0 ** (workload.requeues - 1), rules.most_s)
        workload.requeue_at = self._zero_s + self._now + wait_s
        workload.conditions["Evicted"] = ("True", "PodsReadyTimeout", f"Exceeded the PodsReady timeout {workload.key}")
        if rules.by_eviction:
            workload.order_time = self._zero_s + self._now
        self._evict(one, "PodsReadyTimeout")

        def retry() -> None:
            workload.requeue_at = None
            if not one.holds and not one.deactivated and not one.is_gone and one not in self._set_aside:
                self.admission.add(workload, self._zero_s + self._now)
                self._ask_for_cycles()

        self._simulation.at(self._now + wait_s, retry)

    def _deactivate(self, one: TimedWork, why: str) -> None:
        if one.holds:
            one.deactivated = why
            one.work.workload.active = False
            self._evict(one, "Deactivated")

    def _evict(self, one: TimedWork, reason: str, by: str = "") -> None:
        """Stop the pods of a work. It gives its quota back when they are gone, and waits again."""
        self._close(one, reason)
        one.episodes[-1].by, one.episodes[-1].message = by, one.work.workload.conditions.get("Evicted", ("", "", ""))[2]
        if not one.work.workload.evicted:
            self.admission.note_eviction(one.work.workload)
        if one.changes != self._changes:
            one.futile, one.changes = [], self._changes
        one.futile.append(by)
        if one.futile.count(by) >= (2 if by else _FUTILE) and not one.deactivated:
            text = f"evicted again and again, last because of {reason}, while no other job arrives or ends"
            self._set_aside[one] = text, self._ends + min(2**one.asides, _MOST_ENDS)
            one.asides += 1
        leaving: list[Seen] = []
        for uid in list(one.pods):
            pod, record = self._simulation.pods.get(uid), self._simulation.records.get(uid)
            if pod is None or not pod.spec.node_name:
                if record is not None:
                    record.state = State.DELETED
                del one.pods[uid], self._by_pod[uid]
                self._simulation.at(self._now, partial(self._drop, uid))
                continue
            record = self._record(pod)
            self._lose(one, record)
            record.state, record.preempted_by = State.PREEMPTED, by
            leaving.append(Seen(self._simulation.leaving(pod)))
            own = pod.spec.termination_grace_period_seconds
            self._simulation.at(self._now + (30 if own is None else own), partial(self._drop, uid))
        self._simulation.tell(leaving)
        one.placed.clear()
        if not one.work.until_gone:
            one.pods.clear()
        self._release_if_gone(one)

    def _drop(self, uid: str) -> None:
        if (pod := self._simulation.pods.get(uid)) is not None:
            self._simulation.at(self._now, Gone(pod))

    def _release_if_gone(self, one: TimedWork) -> None:
        workload = one.work.workload
        if one.holds or one.pods or workload.reserved_at is None:
            return
        if one.work.is_bare:
            one.is_gone = True
            self.admission.release(workload)
            workload.wait("Pending", workload.conditions.get("Evicted", ("", "", ""))[2])
        elif one.deactivated or one in self._set_aside:
            self.admission.release(workload, comes_back=not one.deactivated)
            workload.wait("Pending", self._set_aside.get(one, ("",))[0])
        else:
            self.admission.requeue_evicted(workload, self._zero_s + self._now)
        self._ask_to_wake()
        self._ask_for_cycles()

    def _lose(self, one: TimedWork, record: PodRecord) -> None:
        """Add up what an evicted pod used."""
        if record.placed_s is None:
            return
        ran_s = self._now - record.placed_s
        at = one.pods.get(record.pod.uid, 0)
        add_amounts(one.lost, one.work.workload.pod_sets[at].requests, ran_s)


def inactive_text(workload: Workload) -> str:
    """Return what Kueue says of a workload that is not active."""
    status, reason, message = workload.conditions.get("Evicted", ("", "", ""))
    return message if status == "True" and reason.startswith("Deactivated") and message else "The workload is deactivated"


def _copy_of(pod: Pod, number: int) -> Pod:
    name = f"{pod.metadata.name}-{number}"
    return replace(pod, metadata=replace(pod.metadata, name=name, uid=stable_uid("Pod", pod.namespace, name)))


def _with_flavors(pods: Sequence[Pod], assigned: Assigned, flavors: Mapping[str, Flavor]) -> list[Pod]:
    """Return the pods with the node labels and tolerations of their flavors, and without Kueue's gates.

    A node selector binds each to its domain if they have a placement. Pods of one domain that shared a spec still do.
    """
    chosen = [flavors[name] for name in sorted(set(assigned.flavors.values()))]
    labels = {key: value for one in chosen for key, value in one.labels.items()}
    tolerations = [each for one in chosen for each in one.tolerations]
    levels, domains = assigned.placed or ((), ())
    made: dict[tuple[int, tuple[str, ...]], PodSpec] = {}

    def change(spec: PodSpec, domain: tuple[str, ...]) -> PodSpec:
        gates = tuple(gate for gate in spec.scheduling_gates if not gate.name.startswith("kueue.x-k8s.io/"))
        wanted = {**spec.node_selector, **labels, **dict(zip(levels, domain, strict=False))}
        return replace(spec, node_selector=wanted, tolerations=(*spec.tolerations, *tolerations), scheduling_gates=gates)

    places = chain.from_iterable(repeat(values, count) for values, count in (*domains, ((), len(pods))))
    keys = [(id(pod.spec), place) for pod, place in zip(pods, places, strict=False)]
    for pod, key in zip(pods, keys, strict=True):
        if key not in made:
            made[key] = change(pod.spec, key[1])
    return [replace(pod, spec=made[key]) for pod, key in zip(pods, keys, strict=True)]
