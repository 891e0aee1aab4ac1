"""For any inputs in any order, the engine loses no pod, places none twice, and drops no input.

A world of a few nodes and pods is the truth. It is driven at random: pods come, change, go, come back under the same name, are
bound by others; nodes come, shrink and go; work is answered late, with errors, or is done though the answer was an error; the
plugins refuse, wait and raise by a fixed draw. After every move the engine must keep all its promises, and when the world calms
down it must know no more and no less than the world.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import TODAY
from moorage.basis.inputs.scheduler_config import registry_with
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Done, Gone, Phase, Seen
from moorage.core.engine.outbox import Decided
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue.queued_pod import QueuePlace
from moorage.framework.effects import Call, Evict
from moorage.framework.verdicts import Hold, Wait
from moorage.state.cluster import ClusterState
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod
from tests.core.engine.driving import Outputs

CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: First}, {name: Second}]}}
- schedulerName: other
  plugins: {multiPoint: {enabled: [{name: Second}], disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""
NAMES = ["a", "b", "c", "d", "e", "f"]
NODES = ["n0", "n1", "n2"]


class Moods:
    """What the plugins do: drawn from the seed, the point, the pod, and how often it was asked; nothing once ``calm``."""

    def __init__(self, seed):
        self.seed = seed
        self.calm = False
        self.asked = Counter()
        self.log = []

    def draw(self, *about):
        self.asked[about] += 1
        text = repr((self.seed, *about, self.asked[about]))
        return 99 if self.calm else blake2b(text.encode(), digest_size=1).digest()[0] % 24

    def maybe(self, *about):
        """Raise now and then, refuse now and then."""
        drawn = self.draw(*about)
        if drawn == 0:
            raise RuntimeError("out of sorts")
        return Hold.because("not in the mood") if drawn == 1 else None


def plugin(its_name, moods):
    class Moody:
        name = its_name

        def reserve(self, state, pod, node):
            moods.log.append(("reserve", its_name, pod.uid))
            return moods.maybe("reserve", its_name, pod.uid)

        def unreserve(self, state, pod, node):
            moods.log.append(("unreserve", its_name, pod.uid))
            moods.maybe("unreserve", its_name, pod.uid)

        def permit(self, state, pod, node):
            drawn = moods.draw("wait", its_name, pod.uid)
            return Wait(20.0) if drawn < 6 else moods.maybe("permit", its_name, pod.uid)

        def pre_bind(self, state, pod, node):
            hold = moods.maybe("preBind", its_name, pod.uid)
            if hold is not None:
                return hold
            return [Call(run=None, stand_in=lambda: None)] if moods.draw("call", its_name, pod.uid) < 10 else []

        def post_bind(self, state, pod, node):
            moods.log.append(("postBind", its_name, pod.uid))
            moods.maybe("postBind", its_name, pod.uid)

        def pre_filter(self, pod, snapshot):
            return moods.maybe("preFilter", its_name, pod.uid)

    return Moody


def cpu_of(pod):
    return int(pod.spec.containers[0].resources.requests["cpu"])


class World(RuleBasedStateMachine):
    """See the module's text. ``pods`` is what the API holds by name; ``told`` what the engine has seen of it, by UID."""

    gates = ""
    release = TODAY

    @initialize(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 3), max_size=3), pods=st.integers(0, 6))
    def begin(self, seed, sizes, pods):
        self.moods = Moods(seed)
        gates = FeatureGates.parse(self.gates, self.release)
        registry = registry_with([plugin("First", self.moods), plugin("Second", self.moods)], release=self.release)
        configuration = load(CONFIG, "test", registry, gates)
        self.engine = Scheduler(
            Cycle(seed=seed), gates, lambda handle: build_profiles(configuration, registry, gates, handle).profiles
        )
        self.outputs = Outputs(self.engine)
        self.now = 0.0
        self.version = 0
        self.pods, self.nodes, self.told = {}, {}, {}
        self.late = []
        self.work = {}
        self.bound_by_us = set()
        self.serial = 0
        for name, cpu in zip(NODES, sizes, strict=False):
            self.set_node(name, cpu, off=False)
        for name in NAMES[:pods]:
            self.store(self.new_pod(name, 1, 0, "default-scheduler", gated=False))

    # -- the API ------------------------------------------------------------------------------------------------------

    def tell(self, fact):
        if not isinstance(fact, Done) and hasattr(fact.obj, "spec") and hasattr(fact.obj.spec, "containers"):
            pod = fact.obj
            for uid in [uid for uid, other in self.told.items() if other.name == pod.name and uid != pod.metadata.uid]:
                if isinstance(fact, Seen):
                    del self.told[uid]
            if isinstance(fact, Gone) or pod.status.phase == "Succeeded":
                self.told.pop(pod.metadata.uid, None)
            else:
                self.told[pod.metadata.uid] = pod
        self.engine.observe(fact, self.now)

    def store(self, pod, *, late=False):
        """Write a pod to the API; its watchers hear of it now, or later but in order."""
        self.version += 1
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=str(self.version)))
        self.pods[pod.name] = pod
        self.late.append(Seen(pod))
        if not late:
            self.catch_up()

    def remove(self, name, *, heard=True):
        pod = self.pods.pop(name)
        if heard:
            self.late.append(Gone(pod))
        self.catch_up()

    @rule()
    def catch_up(self):
        late, self.late = self.late, []
        for fact in late:
            self.tell(fact)

    @precondition(lambda self: self.late)
    @rule()
    def hear_one(self):
        self.tell(self.late.pop(0))

    # -- pods ---------------------------------------------------------------------------------------------------------

    def new_pod(self, name, cpu, priority, scheduler, gated):
        self.serial += 1
        return a_pod(
            name, uid=f"{name}-{self.serial}", schedulerName=scheduler, priority=priority,
            schedulingGates=[{"name": "g"}] if gated else [],
            containers=[{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}],
        ).pod  # fmt: skip

    @rule(
        name=st.sampled_from(NAMES), cpu=st.integers(1, 3), priority=st.sampled_from([0, 5, 9]),
        scheduler=st.sampled_from(["default-scheduler", "default-scheduler", "other", "foreign"]),
        gated=st.sampled_from([False, False, False, True]), heard=st.booleans(),
    )  # fmt: skip
    def create(self, name, cpu, priority, scheduler, gated, heard):
        if name in self.pods:
            self.remove(name, heard=heard)
        self.store(self.new_pod(name, cpu, priority, scheduler, gated))

    @rule(name=st.sampled_from(["v", "w"]), cpu=st.integers(1, 3), placed_first=st.booleans(), answered=st.booleans())
    def an_important_pod_is_created(self, name, cpu, placed_first, answered):
        if placed_first:
            self.get_on_with_it(late=False)
        if name in self.pods:
            self.remove(name)
        self.store(self.new_pod(name, cpu, 9, "default-scheduler", gated=False))
        self.step(2)
        if answered:
            self.get_on_with_it(late=False)

    @rule(name=st.sampled_from(NAMES), label=st.sampled_from(["x", "y"]), late=st.booleans())
    def change(self, name, label, late):
        pod = self.pods.get(name)
        if pod is not None:
            labelled = replace(pod, metadata=replace(pod.metadata, labels={"l": label}))
            self.store(replace(labelled, spec=replace(labelled.spec, scheduling_gates=())), late=late)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name):
        if name in self.pods:
            self.remove(name)

    @rule(name=st.sampled_from(NAMES), late=st.booleans())
    def delete_with_grace(self, name, late):
        pod = self.pods.get(name)
        if pod is not None and pod.metadata.deletion_timestamp is None:
            self.store(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="1970-01-01T00:00:00Z")), late=late)

    @rule(name=st.sampled_from(NAMES), node=st.sampled_from([*NODES, "nowhere"]), late=st.booleans())
    def bind_by_another(self, name, node, late):
        pod = self.pods.get(name)
        if pod is not None and not pod.spec.node_name and not pod.spec.scheduling_gates:
            self.bind(pod, node, late)

    def bind(self, pod, node, late):
        bound = replace(pod, spec=replace(pod.spec, node_name=node), status=replace(pod.status, nominated_node_name=""))
        self.store(bound, late=late)

    @rule(name=st.sampled_from(NAMES))
    def finish(self, name):
        pod = self.pods.get(name)
        if pod is not None and pod.spec.node_name:
            self.store(replace(pod, status=replace(pod.status, phase="Succeeded")))

    @rule(name=st.sampled_from(NAMES))
    def repeat(self, name):
        known = [pod for pod in self.told.values() if pod.name == name]
        for pod in known:
            self.tell(Seen(pod))

    # -- nodes --------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NODES), cpu=st.integers(1, 5), off=st.sampled_from([False, False, True]))
    def set_node(self, name, cpu, off):
        self.nodes[name] = a_node(name, allocatable={"cpu": str(cpu), "memory": "8Gi", "pods": 4}, unschedulable=off)
        self.tell(Seen(self.nodes[name]))

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name):
        if name in self.nodes:
            self.tell(Gone(self.nodes.pop(name)))

    # -- the engine's turn --------------------------------------------------------------------------------------------

    @rule(times=st.integers(1, 4), collects=st.booleans())
    def step(self, times, collects=True):
        for _ in range(times):
            before = len(list(self.engine.state.outbox))
            self.engine.step(self.now)
            for output in list(self.engine.state.outbox)[before:]:
                if isinstance(output, Decided) and output.decision.node is not None:
                    self.check_room(output.decision)
            if collects:
                self.collect()

    def check_room(self, decision):
        """Check that the placed pod fits beside all reported and assumed pods."""
        node = self.nodes[decision.node]
        assert not node.spec.unschedulable
        held = {uid: cpu_of(pod) for uid, pod in self.told.items() if pod.spec.node_name == decision.node}
        for uid, where in self.engine.cluster.assumed.items():
            if where == decision.node:
                held[uid] = cpu_of(self.told[uid])
        assert sum(held.values()) <= int(node.status.allocatable["cpu"])

    def collect(self):
        self.outputs.collect()
        for work in self.outputs.take("work"):
            assert work.ticket not in self.work
            self.work[work.ticket] = work
            if work.phase in (Phase.PRE_BIND, Phase.BIND):
                self.check_may_bind(work)

    def check_may_bind(self, work):
        pod = self.told[work.pod.uid]
        assert not pod.spec.node_name
        assert not pod.spec.scheduling_gates
        assert pod.metadata.deletion_timestamp is None
        assert pod.spec.scheduler_name in self.engine.profiles
        assert work.pod.uid not in self.bound_by_us
        others = [w for w in self.work.values() if w.pod.uid == work.pod.uid and w.phase in (Phase.PRE_BIND, Phase.BIND)]
        assert others == [work]

    @precondition(lambda self: self.work)
    @rule(which=st.integers(0, 9), fails=st.sampled_from([False, False, False, True]), late=st.booleans(), order=st.booleans())
    def answer(self, which, fails, late, order):
        work = self.work.pop(sorted(self.work)[which % len(self.work)])
        error = "no answer" if fails else None
        if not work.phase.is_answered:
            self.nominate(work)
            return
        if work.phase is Phase.PREEMPT:
            error = self.evict(work, error)
        elif work.phase is Phase.BIND:
            error = self.bind_as_asked(work, error, late, order)
        undone = self.moods.log.count(("unreserve", "Second", work.pod.uid))
        self.tell(Done(work.ticket, error))
        if work.pod.uid in self.bound_by_us:
            assert self.moods.log.count(("unreserve", "Second", work.pod.uid)) == undone

    @rule(late=st.booleans(), lost=st.sampled_from([False, False, True]))
    def get_on_with_it(self, late, lost=False):
        """All that can be tried is tried, and all bindings are done, even if their answers are ``lost``."""
        self.step(6)
        for ticket in [ticket for ticket, work in self.work.items() if work.phase is not Phase.PREEMPT]:
            self.answer(sorted(self.work).index(ticket), lost, late, True)

    def nominate(self, work):
        pod = self.pods.get(work.pod.name)
        if pod is not None and pod.metadata.uid == work.pod.uid and not pod.spec.node_name:
            self.store(replace(pod, status=replace(pod.status, nominated_node_name=work.node)))

    def evict(self, work, error):
        for effect in work.effects:
            assert isinstance(effect, Evict)
            assert effect.victim.priority < work.pod.priority
            pod = self.pods.get(effect.victim.name)
            if error is None and pod is not None and pod.metadata.uid == effect.victim.uid:
                self.delete_with_grace(pod.name, late=False)
        return error

    def bind_as_asked(self, work, error, late, committed):
        """Bind as the API server would. An error may come though the binding was ``committed``: its answer was lost."""
        pod = self.pods.get(work.pod.name)
        if pod is None or pod.metadata.uid != work.pod.uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return "409 Conflict"
        if error is None or committed:
            self.bind(pod, work.node, late)
            self.bound_by_us.add(work.pod.uid)
            if error is not None:
                self.catch_up()  # after a lost answer, the caller reads the pod back before it reports a failure
        return error

    @rule(which=st.integers(0, 5), allowed=st.booleans())
    def decide_waiting(self, which, allowed):
        waiting = list(self.engine.waiting())
        if waiting:
            pod = waiting[which % len(waiting)]
            if allowed:
                pod.allow(pod.pending[0])
            else:
                pod.reject(pod.pending[0], "no")

    @rule(seconds=st.sampled_from([0.5, 2.0, 15.0, 400.0]))
    def time_passes(self, seconds):
        self.now += seconds

    # -- what must hold -----------------------------------------------------------------------------------------------

    def pending(self):
        """Return the UIDs of the pods that the engine has to place, by its inputs."""
        return {
            uid for uid, pod in self.told.items() if not pod.spec.node_name and pod.spec.scheduler_name in self.engine.profiles
        }

    @invariant()
    def every_pod_is_in_one_place(self):
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        listed = [(line.pod.uid, line.place) for line in engine.queue.pending()]
        queued = [uid for uid, place in listed if place is not QueuePlace.IN_FLIGHT]
        flying = {uid for uid, place in listed if place is QueuePlace.IN_FLIGHT}
        on_their_way = set(engine.state.bindings.by_uid)
        assert len(queued) == len(set(queued))
        assert flying == set(engine.state.bindings.held)
        assert not set(queued) & on_their_way
        assert {*queued, *flying} <= self.pending()
        dying = {uid for uid, pod in self.told.items() if pod.metadata.deletion_timestamp is not None}
        assert self.pending() - dying <= {*queued, *on_their_way, *(self.bound_by_us & set(engine.cluster.assumed))}
        assert len(engine.queue) == sum(engine.queue.counts().values())
        newest = {line.pod.uid: line.pod.pod for line in engine.queue.pending() if line.pod.uid not in on_their_way}
        assert all(pod == self.told[uid] for uid, pod in newest.items())

    @invariant()
    def assumed_pods_are_on_their_way(self):
        if hasattr(self, "engine"):
            on_their_way = {
                uid
                for uid, binding in self.engine.state.bindings.by_uid.items()
                if binding.wanted or uid in self.engine.state.bindings.held
            }
            unconfirmed = set(self.engine.cluster.assumed) - on_their_way
            # bound, and the engine has the answer but has not seen the pod yet
            assert unconfirmed <= self.bound_by_us
            assert set(self.engine.cluster.assumed) <= self.pending()

    @invariant()
    def the_table_says_what_the_facts_say(self):
        if not hasattr(self, "engine"):
            return
        fresh = ClusterState()
        for node in self.nodes.values():
            fresh.set_node(node)
        for pod in self.told.values():
            if pod.spec.node_name:
                fresh.place(PodInfo(pod), pod.spec.node_name)
        for uid, where in self.engine.cluster.assumed.items():
            fresh.assume(PodInfo(self.told[uid]), where)
        assert contents(self.engine.cluster) == contents(fresh)

    @invariant()
    def reserved_is_bound_or_given_back(self):
        if not hasattr(self, "engine"):
            return
        open_attempts = {}
        for what, its_name, uid in self.moods.log:
            so_far = open_attempts.setdefault(uid, [])
            so_far.append((what, its_name))
            both = self.moods_order(so_far)
            if what == "postBind" and its_name == "Second":
                assert not any(done == "unreserve" for done, _ in so_far)
                del open_attempts[uid]
            elif what == "unreserve" and its_name == both[0]:
                undone = [name for done, name in so_far if done == "unreserve"]
                assert undone == list(reversed(both))
                assert not any(done == "postBind" for done, _ in so_far)
                del open_attempts[uid]
        assert set(open_attempts) == set(self.engine.state.bindings.by_uid)

    @staticmethod
    def moods_order(so_far):
        """Plugins of the pod's profile, told by who was asked first: the other profile has but one of them."""
        return ["First", "Second"] if so_far[0] == ("reserve", "First") else ["Second"]

    def may_be_gated(self, pod):
        return bool(pod.spec.scheduling_gates)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        self.moods.calm = True
        self.catch_up()
        self.settle()
        engine = self.engine
        assert not engine.cluster.assumed
        assert not engine.state.bindings.by_uid
        assert not engine.state.bindings.by_ticket
        assert not engine.preemption.evictions
        assert engine.queue.logged_events == 0
        gated = [line.pod.pod for line in engine.queue.pending() if line.place is QueuePlace.GATED]
        assert all(self.may_be_gated(pod) for pod in gated)
        said = {uid: pod.status.nominated_node_name for uid, pod in self.told.items() if uid in self.pending()}
        assert {uid: engine.queue.nomination(uid) or "" for uid in said} == said
        self.no_pod_that_fits_is_pending()
        self.every_pod_is_in_one_place()
        self.the_table_says_what_the_facts_say()

    def settle(self):
        """Let half a minute go by, in which all that was asked for is done and victims leave."""
        for _ in range(35):
            for _ in range(30):
                self.step(1)
                if not self.work:
                    break
                self.collect()
                while self.work:
                    self.answer(0, False, False, False)
                    self.collect()
            self.now += 1.0
            for name in [name for name, pod in self.pods.items() if pod.metadata.deletion_timestamp is not None]:
                self.remove(name)

    def no_pod_that_fits_is_pending(self):
        """A pod that resources alone kept out was woken by whatever made room."""
        engine = self.engine
        for line in engine.queue.pending():
            if line.place is not QueuePlace.UNSCHEDULABLE or not {*line.plugins} <= {"NodeResourcesFit", "NodeUnschedulable"}:
                continue
            for name, node in self.nodes.items():
                taken = sum(cpu_of(pod) for pod in self.told.values() if pod.spec.node_name == name)
                taken += sum(cpu_of(o.pod) for o in engine.queue.nominated.get(name, ()) if o.priority >= line.pod.priority)
                full = sum(pod.spec.node_name == name for pod in self.told.values()) >= 4
                room = int(node.status.allocatable["cpu"]) - taken
                assert node.spec.unschedulable or full or cpu_of(line.pod.pod) > room, (line, name)


def contents(cluster):
    table = cluster.table
    found = {}
    for row, node in enumerate(table.nodes):
        sums = int(table.requested("cpu").data[row]), int(table.pod_count.data[row])
        found[node.name] = (sums, sorted(table.pods[row]), int(table.allocatable("cpu").data[row]))
    return found, sorted(cluster._placed), {name: sorted(held) for name, held in cluster._nowhere.items()}


World.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWorld = pytest.mark.slow(World.TestCase)
