"""Hold the fast lane against the long way, over random histories with events between any two pods."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from itertools import chain
from types import MappingProxyType

import msgspec
import pytest
from msgspec.structs import replace

from moorage.api.core import Namespace, Pod, Service
from moorage.api.pod_decoding import PodDecoder
from moorage.core.cycle import column, pinned_pods, sheets
from moorage.core.cycle.sheets import Sheets
from moorage.core.engine.facts import NO_LONGER_WANTED, BindsDone, Done, Gone, Phase, Seen, Work
from moorage.core.engine.fast_lane import FastLane
from moorage.core.engine.outbox import Decided, Revoked
from moorage.core.engine.placer import Placer
from moorage.core.engine.pod_run import PodRun
from moorage.errors import MoorageError
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.laboratory.trial.recorded_state import RecordedClusterState, RecordedQueue
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import Options, prepare
from moorage.state import distinct_rooms
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.storage import (
    a_bound_claim,
    a_claim,
    a_class,
    a_csi_node,
    a_volume,
    on_hosts,
    on_nodes_labelled,
    standing_on,
)
from tests.core.cycle.test_pod_classes import only_node
from tests.laboratory.random_world import ZONE, World

ENCODER = msgspec.msgpack.Encoder(enc_hook=lambda value: value.pod, order="deterministic")
SEEDS = 100 if os.environ.get("MOORAGE_LONG_TESTS") else 3
HEAD = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OPTIONS = {
    "default": {},
    "packed": {
        "config": HEAD + b"profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n"
        b"      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}\n"
    },
    "release 1.21": {"emulate": "1.21"},
}  # fmt: skip


class Course:
    """Random objects and facts, equal for equal seeds. Templates are few, so that runs of pods have one shape.

    ``variety``: how often a pod differs from the one before
    """

    def __init__(self, seed, variety=0.4):
        self.variety = variety
        self.world = World(seed)
        self.random = random.Random(seed)
        roomy = seed % 2 == 0
        documents = [self.world.pod() for _ in range(4)]
        for document in documents:
            if roomy:
                document["spec"].pop("volumes", None)
                document["spec"].pop("schedulingGates", None)
                document["spec"]["priority"] = 0
        self.templates = [(document["metadata"]["labels"], document["spec"]) for document in documents]
        self.template = self.templates[0]
        self.pods = self.nodes = 0
        #: Copies share their specs, as those of a file or a list do.
        self.decoder = PodDecoder()

    def node(self, name=""):
        self.nodes += not name
        document = self.world.node(name or f"n{self.nodes}")
        status, spec = document["status"], document["spec"]
        return a_node(
            document["metadata"]["name"], document["metadata"]["labels"], allocatable={**status["allocatable"], "pods": 8},
            images=status["images"], **spec,
        )  # fmt: skip

    def pod(self, name=""):
        self.pods += 1
        if self.random.random() < self.variety:
            self.template = self.random.choice(self.templates)
        labels, spec = self.template
        if self.random.random() < self.variety / 2:  # as pods of a DaemonSet
            spec = {**spec, "affinity": {"nodeAffinity": only_node(f"n{self.random.randint(1, 12)}")}}
        made = a_pod(name or f"p{self.pods}", labels, uid=f"u{self.pods}", **spec).pod
        return made if self.random.random() < self.variety / 2 else self.decoder.decode(msgspec.json.encode(made))

    def fact(self, known):
        """Return a random fact; ``known`` are the pods that exist."""
        choose = self.random.choice
        kind = choose(["pod"] * 8 + ["gone", "gone", "label", "dying", "node", "node", "lost", "service", "space", "name"])
        if kind == "node":
            return Seen(self.node(choose(["", f"n{self.random.randint(1, max(1, self.nodes))}"])))
        if kind == "lost":
            return Gone(self.node(f"n{self.random.randint(1, max(1, self.nodes))}"))
        if kind == "service":
            whole = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": choose("uvw")}}}
            return choose([Seen, Seen, Gone])(msgspec.convert(whole, Service))
        if kind == "space":
            whole = {"metadata": {"name": "default", "labels": {"team": choose("xy")}}}
            return Seen(msgspec.convert(whole, Namespace))
        if kind == "pod" or not known:
            return Seen(self.pod())
        one = choose(known)
        if kind == "name":  # another pod takes its name
            return Seen(self.pod(one.name))
        if kind == "label":
            return Seen(replace(one, metadata=replace(one.metadata, labels={"app": choose("uvw")})))
        if kind == "dying":
            return Seen(replace(one, metadata=replace(one.metadata, deletion_timestamp="1970-01-01T00:00:00Z")))
        return Gone(one)


DRIVER = "csi.example.com"


class ClaimsCourse(Course):
    """Most pods use bound claims, whose volumes are in some zone, and nodes take few volumes."""

    def __init__(self, seed, variety=0.4):
        super().__init__(seed, variety)
        for _, spec in self.templates:
            spec.pop("schedulingGates", None)
            spec["priority"] = 0

    def pod(self, name=""):
        made = super().pod(name)
        if self.random.random() < 0.3:
            return made
        volumes = standing_on(*self.random.sample([f"c{at}" for at in range(8)], self.random.choice([1, 2, 3])))
        if self.random.random() < 0.1:
            volumes = [{"name": "disk", "gcePersistentDisk": {"pdName": self.random.choice("de")}}]
        spec = {**msgspec.to_builtins(made.spec), "volumes": volumes}
        return a_pod(made.name, made.metadata.labels, uid=made.uid, **spec).pod

    def stored(self, at):
        choose, count = self.random.choice, self.random.choice([1, 1, 2])
        zones = choose([None, on_nodes_labelled(ZONE, *choose(["a", "b", "ac"])), on_hosts(f"n{at + 1}")])
        made = a_volume(f"v{at}", csi={"driver": DRIVER, "volumeHandle": f"h{at}"}, nodeAffinity=zones or {})
        claim = choose([a_bound_claim] * 4 + [lambda name, volume: a_claim(name)])(f"c{at}", f"v{at}")
        return [made, claim, a_csi_node(f"n{at + 1}", {DRIVER: count})]

    def fact(self, known):
        if self.random.random() < 0.15:
            return self.random.choice([Seen, Seen, Seen, Gone])(self.random.choice(self.stored(self.random.randrange(8))))
        return super().fact(known)


def whole(account):
    """Return the values of an account, with those that it would compute later."""
    return [value for part in account for value in (part() if callable(part) else (part,))]


def accounts_of(one, other):
    """Return of two engines all that later decisions depend on. Counts are made when they are read first: those of both are."""
    both = one.cluster.table.pod_counts._matchers.keys() & other.cluster.table.pod_counts._matchers
    return [account_of(each, sorted(both, key=str)) for each in (one, other)]


def account_of(scheduler, matchers):
    table = scheduler.cluster.table
    matched = [(str(matcher), table.pod_counts.of(matcher).tolist()) for matcher in matchers]
    terms = [sorted((str(held), domains.tolist()) for held, domains in held_terms) for held_terms in table.held_terms]
    state = scheduler.state
    numbers = [state.now, state.revision, state.facts, state.outbox.tickets, table.changes.position, table.changes.nodes]
    numbers.append(scheduler.cycle.order.start)
    parts = [*whole(RecordedClusterState.account(scheduler.cluster, {})), *RecordedQueue.account(scheduler.queue)]
    queue = scheduler.queue
    return ENCODER.encode(
        [parts, matched, terms, numbers, sorted(queue.incoming.items()), queue.logged_events, queue.next_deadline(state.now)]
    )


def told(decision):
    found = decision.found
    narrowed = None if found is None else (sorted(found.states), sorted(found.skipped), found.nodes and sorted(found.nodes))
    return decision.pod.uid, decision.node, decision.evaluated, decision.feasible, decision.message, narrowed


def simulation(options, course, durations):
    seen = []

    def note(attempt):
        uid = attempt.decision.pod.uid
        assumed = made.scheduler.cluster.is_assumed(uid)
        seen.append((attempt.time_s, attempt.number, told(attempt.decision), made.records[uid].state, assumed))

    made, _ = prepare(Options(**options), note if course.random.random() < 0.5 else None)
    made.durations.update(durations)
    return made, seen


class Twins:
    """Two simulations of one course, with the lane and without."""

    def __init__(self, seed, options, variety=0.4, course=Course):
        self.course = course = course(seed, variety)
        objects = [course.node() for _ in range(12)] + [course.pod() for _ in range(30)]
        if isinstance(course, ClaimsCourse):
            objects += [a_class("standard", provisioner=DRIVER), *chain.from_iterable(map(course.stored, range(8)))]
        durations = {f"u{at}": course.random.choice([0.0, 3.0, 40.0]) for at in range(0, 200, 7)}
        chance = course.random.getstate()
        self.one, self.seen = simulation(options, course, durations)
        course.random.setstate(chance)
        self.other, self.others = simulation(options, course, durations)
        self.other.scheduler.lane.is_open = False
        for each in (self.one, self.other):
            each.load(objects)

    def run(self, decisions):
        steps, others = self.one.steps(), self.other.steps()
        for _ in range(decisions):
            decision, other = next(steps, None), next(others, None)
            assert (decision and told(decision)) == (other and told(other))
            if decision is None:
                steps, others = self.one.steps(), self.other.steps()
            for _ in range(self.course.random.choice([0, 0, 0, 1, 2])):
                self.happen()
            self.check()
        for each in (self.one, self.other):
            each.run()
        self.check()
        assert msgspec.json.encode(collect(self.one, "1.36")) == msgspec.json.encode(collect(self.other, "1.36"))

    def happen(self):
        fact = self.course.fact([pod for pod in self.one.pods_in_order() if pod.metadata.deletion_timestamp is None])
        later = self.course.random.choice([None, None, 0.0, 5.0])
        for each in (self.one, self.other):
            with suppress(MoorageError):
                each.tell([fact]) if later is None else each.at(each.now + later, fact)

    def check(self):
        mine, its = accounts_of(self.one.scheduler, self.other.scheduler)
        assert mine == its
        mine, its = (
            ENCODER.encode(whole(RecordedSimulation.account(each, dict(each.pods)))) for each in (self.one, self.other)
        )
        assert mine == its
        assert self.seen == self.others


def shown(output):
    if isinstance(output, Work):
        effects = [(type(effect).__name__, getattr(effect, "node", "")) for effect in output.effects]
        return output.ticket, output.phase, output.pod.uid, output.node, effects
    return type(output).__name__, told(output.decision) if isinstance(output, Decided | Revoked) else ""


class Engines:
    """Two engines that observe the same facts and answers, with the lane and without."""

    def __init__(self, seed, options):
        self.course = course = Course(seed)
        self.both = [prepare(Options(**options))[0].scheduler for _ in range(2)]
        self.both[1].lane.is_open = False
        self.now, self.pods, self.tickets = 0.0, {}, []
        for _ in range(12):
            self.observe(Seen(course.node()))
        for _ in range(30):
            self.observe(Seen(course.pod()))

    def observe(self, fact):
        self.note(fact)
        for engine in self.both:
            with suppress(MoorageError):
                engine.observe(fact, self.now)

    def note(self, fact):
        obj = getattr(fact, "obj", None)
        if isinstance(obj, Pod):
            self.pods.pop(obj.uid, None)
            if isinstance(fact, Seen):
                self.pods[obj.uid] = obj

    def run(self, steps):
        choose = self.course.random.choice
        for _ in range(steps):
            self.now += choose([0.0, 0.0, 0.1, 2.0])
            if choose([True, False]) or not self.place_run():
                attempted = [engine.step(self.now) for engine in self.both]
                assert attempted[0] == attempted[1]
            self.take()
            for _ in range(choose([0, 0, 1, 2])):
                self.observe(self.course.fact([*self.pods.values()]))
            self.take()
            if self.tickets and choose([True, True, False]):
                self.answer(self.tickets.pop(choose([0, -1])))
            mine, its = accounts_of(*self.both)
            assert mine == its

    def place_run(self):
        """Let one engine place a run of pods, and the other make as many attempts. Return whether any pod was placed."""
        mine, its = self.both
        run = mine.place_run(self.now, self.course.random.choice([1, 3, 10]))
        assert all(its.step(self.now) for _ in run)
        outputs = its.take() if run else []
        works = [output for output in outputs if isinstance(output, Work)]
        assert [told(one.decision) for one in run] == [told(one.decision) for one in outputs if isinstance(one, Decided)]
        assert [(one.ticket, one.pod.uid, one.node) for one in run] == [(one.ticket, one.pod.uid, one.node) for one in works]
        assert len(outputs) == 2 * len(run)
        self.tickets += works
        return bool(run)

    def take(self):
        outputs = [engine.take() for engine in self.both]
        mine, its = ([shown(output) for output in of_one] for of_one in outputs)
        assert mine == its
        self.tickets += [work for work in outputs[0] if isinstance(work, Work) and work.phase.is_answered]

    def answer(self, work):
        """The bind succeeds, and is reported before or after its answer; or it fails."""
        failed = self.course.random.choice(["", "", "", "conflict", NO_LONGER_WANTED])
        done, pod = Done(work.ticket, failed or None), self.pods.get(work.pod.uid)
        facts = [done]
        if not failed and pod is not None:
            facts = [done, Seen(replace(pod, spec=replace(pod.spec, node_name=work.node)))]
            self.course.random.shuffle(facts)
        for fact in facts:
            if failed or fact is not done or work.phase is not Phase.BIND:
                self.observe(fact)
            else:
                self.both[0].observe(BindsDone([work.ticket]), self.now)
                self.both[1].observe(done, self.now)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_engine_decides_and_orders_the_same_with_and_without_the_lane(options, monkeypatch):
    monkeypatch.setattr(pinned_pods, "_FIRST_FEW", 1)
    monkeypatch.setattr(distinct_rooms, "_WORTH_IT", 1)
    monkeypatch.setattr(column, "_MANY_ROWS", 8)
    taken = []
    begin, place_run = FastLane.begin_bind, Engines.place_run
    monkeypatch.setattr(FastLane, "begin_bind", lambda *args: (taken.append(1), begin(*args))[1])
    copies, begin_copy = [], PodRun.begin_bind
    monkeypatch.setattr(PodRun, "begin_bind", lambda *args: (copies.append(1), begin_copy(*args))[1])
    placed = []
    monkeypatch.setattr(Engines, "place_run", lambda self: (placed.append(place_run(self)), placed[-1])[1])
    for seed in range(2, 2 + SEEDS):
        Engines(seed, options).run(40)
    assert len(taken) > 5 * SEEDS
    assert min(sum(placed), len(copies)) > SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_simulation_runs_the_same_with_and_without_the_lane(options, monkeypatch):
    monkeypatch.setattr(pinned_pods, "_FIRST_FEW", 1)
    monkeypatch.setattr(distinct_rooms, "_WORTH_IT", 1)
    monkeypatch.setattr(column, "_MANY_ROWS", 8)
    monkeypatch.setattr(sheets, "_SOON", 2)
    taken = []
    confirm, place = Placer.confirm, Placer.place
    monkeypatch.setattr(Placer, "confirm", lambda *args: (taken.append(1), confirm(*args)))
    monkeypatch.setattr(Placer, "place", lambda *args: (taken.append(1), place(*args)))
    for seed in range(SEEDS):
        Twins(seed, options).run(40)
    assert len(taken) > 5 * SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("options", ["default", "packed"])
def test_pods_with_bound_claims_take_the_lane_and_go_where_the_full_path_puts_them(options, monkeypatch):
    monkeypatch.setattr(sheets, "_SOON", 2)
    placed, place = [], Placer.place
    monkeypatch.setattr(Placer, "place", lambda writer, found, *rest: (placed.append(found.pod), place(writer, found, *rest)))
    for seed in range(SEEDS):
        twins = Twins(seed, OPTIONS[options], course=ClaimsCourse)
        twins.other.scheduler.cycle.by_class = False
        twins.run(40)
    assert sum(pod.volumes is not None for pod in placed) > SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_simulation_runs_the_same_with_long_runs_of_copies(options, monkeypatch):
    monkeypatch.setattr(distinct_rooms, "_WORTH_IT", 1)
    monkeypatch.setattr(column, "_MANY_ROWS", 8)
    placed, place_next = [], PodRun.place_next
    monkeypatch.setattr(PodRun, "place_next", lambda *args: placed.append(found := place_next(*args)) or found)
    for seed in range(2 * SEEDS):
        Twins(seed, options, variety=0.05).run(30)
    assert sum(decision is not None for decision in placed) > 4 * SEEDS


class NominatingEngines(Engines):
    """Two engines in which pods that fit nowhere are nominated to random nodes, as preemptors are."""

    def __init__(self, seed, options):
        super().__init__(seed, options)
        for number in range(4):
            sizes = {"requests": {"cpu": self.course.random.choice(["100m", "2"]), "memory": "64Mi"}}
            self.observe(
                Seen(
                    a_pod(
                        f"big{number}", uid=f"b{number}", priority=self.course.random.choice([-1, 0, 0, 1000]),
                        nodeSelector={"no": "such"}, containers=[{"name": "c", "resources": sizes}],
                    ).pod
                )
            )  # fmt: skip

    def take(self):
        super().take()
        uid, node = f"b{self.course.random.randrange(4)}", f"n{self.course.random.randint(1, 12)}"
        for engine in self.both:
            queued = engine.queue.get(uid)
            if queued is not None and queued.parked:
                engine.queue.nominate(queued.pod, node)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_lane_decides_the_same_beside_nominated_pods(options, monkeypatch):
    monkeypatch.setattr(distinct_rooms, "_WORTH_IT", 1)
    monkeypatch.setattr(column, "_MANY_ROWS", 8)
    taken, fast = [], Sheets.decide_known

    def counting(path, pod, snapshot, seed, nominated=MappingProxyType({})):
        quick = fast(path, pod, snapshot, seed, nominated)
        taken.append(quick is not None and bool(nominated))
        return quick

    monkeypatch.setattr(Sheets, "decide_known", counting)
    for seed in range(SEEDS):
        NominatingEngines(seed, options).run(40)
    assert sum(taken) > SEEDS


DOCUMENT = msgspec.json.encode({
    "metadata": {"name": "p0", "uid": "u0", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}], "priority": 0},
})  # fmt: skip


def decoded(number):
    return msgspec.json.decode(DOCUMENT.replace(b"p0", b"p%d" % number).replace(b"u0", b"u%d" % number), type=Pod)


@pytest.mark.parametrize("lane", [True, False])
def test_pods_of_a_shape_are_in_memory_once(lane):
    made, _ = prepare(Options())
    made.scheduler.lane.is_open = lane
    made.load([a_node("n", allocatable={"cpu": 4, "memory": "8Gi", "pods": 9}), *(decoded(at) for at in range(3))])
    made.run()
    bound = list(made.pods_in_order())
    assert [pod.metadata.name for pod in bound] == ["p0", "p1", "p2"]
    assert all(pod.spec == replace(decoded(0).spec, node_name="n") for pod in bound)
    assert len({id(part) for pod in bound for part in (pod.spec.containers, pod.metadata.labels)}) == 2


def test_a_pod_reported_as_bound_shares_the_memory_of_the_assumed_one():
    cluster = a_cluster([a_node("n")])
    assumed = PodInfo(decoded(0))
    cluster.assume(assumed, "n")
    reported = decoded(0)
    reported = replace(reported, spec=replace(reported.spec, node_name="n"))
    cluster.place(PodInfo(reported), "n")
    assert reported.spec == replace(decoded(0).spec, node_name="n")
    assert reported.spec.containers is assumed.spec.containers
    assert reported.metadata.labels is assumed.labels
