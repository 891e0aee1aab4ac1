"""The queue agrees, step by step, with the same rules written plainly: one list of pods, looked through from end to end.

The plain queue keeps no heap, no index and no shared log: each pod in flight collects its own events, every event looks at
every pod, and whose turn it is is found by sorting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage.api.feature_gates import FeatureGates
from moorage.core.queue import QueuePlace, QueueProfile, SchedulingQueue
from moorage.core.queue.cluster_events import ASSIGNED_POD_DELETE, pod_changes
from moorage.framework.events import ANY_EVENT, Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_pod

EVENTS = {
    "pod gone": ASSIGNED_POD_DELETE,
    "pod placed": ClusterEvent(Resource.ASSIGNED_POD, Action.ADD),
    "node added": ClusterEvent(Resource.NODE, Action.ADD),
    "node labelled": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL),
    "claim added": ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD),
    "unregistered": ClusterEvent(Resource.CSI_DRIVER, Action.ADD),
    "everything": ANY_EVENT,
}
NAMES = "abcdef"
PLUGINS = ["Fit", "Zone", "Hinted", "Shape", "Broken", "Gate"]
MAX_BACKOFF_S = 10.0


def even(pod, old, new):
    return ord(pod.name) % 2 == 0


def labelled_or_itself(pod, old, new):
    return pod.labels["label"] == "x" or (new is not None and new.uid == pod.uid)


def broken(pod, old, new):
    raise RuntimeError("broken hint")


WAKES = {
    "Fit": (Wake(ClusterEvent(Resource.POD, Action.DELETE)), Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL))),
    "Zone": (Wake(EVENTS["node labelled"]), Wake(EVENTS["pod placed"], even)),
    "Hinted": (Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), even), Wake(EVENTS["pod gone"], even)),
    "Shape": (
        Wake(EVENTS["pod placed"], labelled_or_itself, by_shape=True),
        Wake(EVENTS["pod gone"], labelled_or_itself, by_shape=True),
    ),
    "Broken": (Wake(EVENTS["node labelled"], broken),),
    "Gate": (Wake(EVENTS["claim added"]),),
}


@dataclass
class Plain:
    """A pod in the plain queue. ``heard``: what happened during its attempt."""

    pod: PodInfo
    since: float
    order: int
    place: QueuePlace = QueuePlace.ACTIVE
    rejected: int = 0
    errors: int = 0
    attempts: int = 0
    plugins: set = field(default_factory=set)
    pending: set = field(default_factory=set)
    gated: bool = False
    deleted: bool = False
    flushed_at: float = -math.inf
    heard: list = field(default_factory=list)

    def backoff_end(self, early):
        failures = self.errors or self.rejected
        if not failures:
            return -math.inf
        wait = min(2.0 ** (failures - 1), MAX_BACKOFF_S)
        return math.floor(self.since + wait) if early else self.since + wait

    def backs_off(self, now, early):
        return self.backoff_end(early) >= (math.floor(now) if early else now)


class PlainQueue:
    def __init__(self, closed, early, nominates_gated):
        self.closed = closed
        self.early = early
        self.nominates_gated = nominates_gated
        self.pods = {}
        self.nominated = {}
        self.order = 0
        self.scanned = -math.inf

    def enter(self, pod, now, label):
        self.order += 1
        plain = self.pods[pod.uid] = Plain(pod, now, self.order)
        if not self.gate(plain) or self.nominates_gated:
            self.nominate_as_said(plain.pod)

    def nominate_as_said(self, pod):
        self.nominated.pop(pod.uid, None)
        if pod.status.nominated_node_name:
            self.nominated[pod.uid] = pod.status.nominated_node_name

    def gate(self, plain):
        plain.gated = plain.pod.uid in self.closed
        if plain.gated:
            plain.plugins.add("Gate")
            plain.place = QueuePlace.GATED
        else:
            plain.place = QueuePlace.ACTIVE
        return plain.gated

    def outcome(self, plain, event, new):
        if not plain.plugins and not plain.pending:
            return "later"
        if event.resource is Resource.ANY:
            return "later" if new is None or new.uid == plain.pod.uid else "no"
        yes = set()
        for plugin in plain.plugins | plain.pending:
            for wake in WAKES[plugin]:
                if wake.event.covers(event):
                    try:
                        said = wake.when is None or wake.when(plain.pod, None, new)
                    except RuntimeError:
                        said = True
                    if said:
                        yes.add(plugin)
        if yes & plain.pending:
            return "now"
        return "later" if yes else "no"

    def move(self, plain, outcome, now):
        if outcome == "no":
            plain.place = QueuePlace.GATED if plain.gated else QueuePlace.UNSCHEDULABLE
        elif outcome == "later" and plain.backs_off(now, self.early):
            if not (self.early and self.gate(plain)):
                plain.place = QueuePlace.BACKOFF
        else:
            self.gate(plain)

    def event(self, event, now, new=None, only=None):
        cared_for = event.resource is Resource.ANY or any(
            wake.event.covers(event) for wakes in WAKES.values() for wake in wakes
        )
        if not cared_for:
            return
        for plain in list(self.pods.values()):
            if plain.place is QueuePlace.IN_FLIGHT:
                plain.heard.append((event, new))
            if plain.place not in {QueuePlace.UNSCHEDULABLE, QueuePlace.GATED} or (only and not only(plain.pod)):
                continue
            gate_cares = event.resource is Resource.ANY or any(wake.event.covers(event) for wake in WAKES["Gate"])
            if plain.gated and not gate_cares:
                continue
            outcome = self.outcome(plain, event, new)
            if outcome != "no":
                self.move(plain, outcome, now)

    def tick(self, now):
        for plain in self.pods.values():
            if plain.place is QueuePlace.BACKOFF and plain.backoff_end(self.early) < math.floor(now):
                if self.early:
                    plain.place = QueuePlace.ACTIVE
                else:
                    self.gate(plain)
        scan = 30.0 * math.floor(now / 30.0)
        if scan <= self.scanned:
            return
        self.scanned = scan
        old = [
            plain
            for plain in self.pods.values()
            if plain.place in {QueuePlace.UNSCHEDULABLE, QueuePlace.GATED} and scan - max(plain.since, plain.flushed_at) > 300.0
        ]
        for plain in old:
            plain.flushed_at = scan
            self.move(plain, "later", now)
        for plain in self.pods.values():
            if old and plain.place is QueuePlace.IN_FLIGHT:
                plain.heard.append((ANY_EVENT, None))

    def pop(self, now):
        self.tick(now)

        def turn(plain):
            return -plain.pod.priority, plain.since, plain.order

        ready = sorted((p for p in self.pods.values() if p.place is QueuePlace.ACTIVE), key=turn)
        if not ready and self.early:
            early = [p for p in self.pods.values() if p.place is QueuePlace.BACKOFF and p.plugins | p.pending]
            ready = sorted(early, key=lambda p: (p.backoff_end(True), turn(p)))
        if not ready:
            return None
        first = ready[0]
        first.place, first.heard = QueuePlace.IN_FLIGHT, []
        first.attempts += 1
        return first.pod.uid

    def requeue(self, uid, now, plugins, pending):
        plain = self.pods[uid]
        if plain.deleted:
            del self.pods[uid]
            return
        if plugins or pending:
            plain.rejected, plain.errors = plain.rejected + 1, 0
        else:
            plain.errors += 1
        plain.plugins, plain.pending, plain.gated, plain.since = set(plugins), set(pending), False, now
        self.order += 1
        plain.order = self.order
        outcomes = {self.outcome(plain, event, new) for event, new in plain.heard} or {"no"}
        if not plugins and not pending:
            outcomes = {"later"}
        self.move(plain, next(o for o in ("now", "later", "no") if o in outcomes), now)

    def update(self, old, new, now):
        plain = self.pods.get(new.uid)
        if plain is None:
            self.enter(new, now, "update")
            return
        plain.pod = new
        changes = pod_changes(old, new)
        if plain.place is QueuePlace.IN_FLIGHT:
            for other in self.pods.values():
                if other.place is QueuePlace.IN_FLIGHT:
                    other.heard.extend((event, new) for event in changes)
        else:
            kept = self.nominated.get(new.uid)
            self.nominate_as_said(new)
            if kept and not old.status.nominated_node_name and not new.status.nominated_node_name:
                self.nominated[new.uid] = kept
            for event in changes:
                if plain.place in {QueuePlace.UNSCHEDULABLE, QueuePlace.GATED}:
                    outcome = self.outcome(plain, event, new)
                    if outcome != "no":
                        self.move(plain, outcome, now)
        said = old.status.nominated_node_name
        if said and said != new.status.nominated_node_name:
            self.event(ASSIGNED_POD_DELETE, now, None, lambda pod: pod.priority <= old.priority)

    def delete(self, pod, now, bound):
        plain = self.pods.get(pod.uid)
        kept = self.nominated.pop(pod.uid, None)
        if plain is not None and plain.place is QueuePlace.IN_FLIGHT:
            plain.deleted = True
        else:
            self.pods.pop(pod.uid, None)
        if kept or (pod.status.nominated_node_name and not bound):
            self.event(ASSIGNED_POD_DELETE, now, None, lambda other: other.priority <= pod.priority)

    def activate(self, pod):
        plain = self.pods.get(pod.uid)
        if plain is None or plain.place is QueuePlace.ACTIVE:
            return
        if plain.place is QueuePlace.IN_FLIGHT:
            for other in self.pods.values():
                if other.place is QueuePlace.IN_FLIGHT:
                    other.heard.append((ANY_EVENT, pod))
        elif plain.place is QueuePlace.BACKOFF and self.early:
            plain.place = QueuePlace.ACTIVE
        else:
            self.gate(plain)


class Both(RuleBasedStateMachine):
    """Do everything to both queues."""

    names = st.sampled_from(NAMES)

    @initialize(early=st.booleans(), release=st.sampled_from(["1.36", "1.37"]))
    def begin(self, early, release):
        self.now = 0.0
        self.closed = set()
        self.faults = []
        self.flying = {}
        self.known = {}
        self.early = early

        def gate(pod):
            return Hold.because("closed") if pod.uid in self.closed else None

        self.queue = SchedulingQueue(
            lambda queued: (-queued.pod.priority, queued.timestamp),
            {"default-scheduler": QueueProfile((("Gate", gate),), WAKES)},
            on_fault=self.faults.append,
            gates=FeatureGates({"SchedulerPopFromBackoffQ": early}, release),
        )
        self.plain = PlainQueue(self.closed, early, nominates_gated=release == "1.37")

    @rule(
        name=names, priority=st.integers(0, 2), nominated=st.sampled_from(["", "", "n1"]), label=st.sampled_from(["", "x", "y"])
    )
    def add_or_update(self, name, priority, nominated, label):
        made = a_pod(name, {"label": label}, priority=priority).pod
        new = PodInfo(msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, nominated_node_name=nominated)))
        old = self.known.get(name)
        if old is None and new.uid not in self.plain.pods:
            self.queue.add(new, self.now)
            self.plain.enter(new, self.now, "add")
        elif old is not None:
            self.queue.update(old, new, self.now)
            self.plain.update(old, new, self.now)
        self.known[name] = new

    @rule(name=names, bound=st.booleans())
    def delete(self, name, bound):
        pod = self.known.get(name)
        if pod is not None and not (pod.uid in self.plain.pods and self.plain.pods[pod.uid].deleted):
            self.queue.delete(pod, self.now, bound=bound)
            self.plain.delete(pod, self.now, bound)
            if pod.uid not in self.plain.pods:
                del self.known[name]

    @rule()
    def pop(self):
        queued = self.queue.pop(self.now)
        assert (None if queued is None else queued.uid) == self.plain.pop(self.now)
        if queued is not None:
            self.flying[queued.uid] = queued

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        plugins=st.lists(st.sampled_from(PLUGINS), max_size=2),
        pending=st.lists(st.sampled_from(PLUGINS), max_size=1),
    )
    def requeue(self, data, plugins, pending):
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        self.queue.requeue(self.flying.pop(uid), self.now, rejected_by=plugins, pending_on=pending)
        self.plain.requeue(uid, self.now, plugins, pending)
        if uid not in self.plain.pods:
            self.known.pop(uid[-1], None)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def done(self, data):
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        del self.flying[uid]
        self.queue.done(uid)
        del self.plain.pods[uid]
        self.plain.nominated.pop(uid, None)
        del self.known[uid[-1]]

    @rule(event=st.sampled_from(sorted(EVENTS)), about=st.sampled_from(["", *NAMES]))
    def event(self, event, about):
        new = a_pod(about) if about else None
        self.queue.event(EVENTS[event], None, new, self.now)
        self.plain.event(EVENTS[event], self.now, new)

    @rule(name=names)
    def activate(self, name):
        self.queue.activate([a_pod(name)], self.now)
        self.plain.activate(a_pod(name))

    @rule(name=names, node=st.sampled_from(["", "n1", "n2"]))
    def nominate(self, name, node):
        pod = self.known.get(name)
        if pod is not None and not self.plain.pods[pod.uid].deleted:
            self.queue.nominate(pod, node)
            self.plain.nominated.pop(pod.uid, None)
            if node:
                self.plain.nominated[pod.uid] = node

    @rule(name=names)
    def turn_gate(self, name):
        self.closed ^= {f"default/{name}"}

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 3.0, 30.0, 301.0]))
    def wait(self, seconds):
        deadline = self.queue.next_deadline(self.now)
        before = self.places()
        self.now += seconds
        self.queue.tick(self.now)
        self.plain.tick(self.now)
        if deadline is None or deadline > self.now:
            assert self.places() == before

    @precondition(lambda self: self.queue.next_deadline(self.now) is not None)
    @rule()
    def jump(self):
        """At its own deadline the queue does something: a pod moves, or a gated one has been asked again."""
        deadline = self.queue.next_deadline(self.now)
        assert deadline >= self.now
        self.now = deadline
        before = self.places(), self.queue.next_deadline(self.now)
        self.queue.tick(self.now)
        self.plain.tick(self.now)
        assert before != (self.places(), self.queue.next_deadline(self.now))

    def places(self):
        return {uid: queued.place for uid, queued in self.queue._pods.items()}

    @invariant()
    def they_agree(self):
        if not hasattr(self, "plain"):
            return
        assert self.places() == {uid: plain.place for uid, plain in self.plain.pods.items()}
        for uid, plain in self.plain.pods.items():
            queued = self.queue.get(uid)
            assert queued.pod is plain.pod
            assert (queued.attempts, queued.unschedulable_count, queued.consecutive_errors) == (
                plain.attempts, plain.rejected, plain.errors,
            )  # fmt: skip
        nominated = {pod.uid: node for node, pods in self.queue.nominated.items() for pod in pods}
        assert nominated == self.plain.nominated

    @invariant()
    def each_pod_is_in_one_place(self):
        if not hasattr(self, "plain"):
            return
        lines = [line.pod.uid for line in self.queue.pending()]
        alive = [uid for uid, queued in self.queue._pods.items() if not queued.deleted]
        assert sorted(lines) == sorted(alive)
        assert sum(self.queue.counts().values()) == len(self.queue)

    @invariant()
    def nothing_is_kept_for_nobody(self):
        if hasattr(self, "plain") and not self.flying:
            assert self.queue.logged_events == 0

    @invariant()
    def backoff_is_bounded(self):
        if not hasattr(self, "plain"):
            return
        for line in self.queue.pending():
            if line.until is not None:
                assert line.since <= line.until <= line.since + MAX_BACKOFF_S


Both.TestCase.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)
test_the_queue_agrees_with_plain_rules = pytest.mark.slow(Both.TestCase)
