"""No gang is ever bound in part: of a gang that runs nowhere, at least ``minCount`` pods are bound, or none.

Nodes, groups and pods come in any order, in between attempts are made and bindings are done, some late. Nothing is deleted
and nothing fails, because a gang cannot be protected from that.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.engine.facts import Phase
from tests.core.engine.driving import Driven, bound, node, pod
from tests.core.engine.test_pod_groups import gang, member

GATES = "GenericWorkload=true,GangScheduling=true"

arrivals = st.one_of(
    st.tuples(st.just("node"), st.integers(1, 4)),
    st.tuples(st.just("member"), st.integers(0, 2), st.integers(1, 2), st.sampled_from([0, 0, 5])),
    st.tuples(st.just("single"), st.integers(1, 2), st.sampled_from([0, 9])),
    st.tuples(st.just("group"), st.integers(0, 2)),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("bind"), st.integers(1, 9)),
    st.tuples(st.just("time"), st.sampled_from([0.1, 3.0, 30.0])),
)


class Story:
    """The engine, its inputs in order, and the pods bound after each."""

    def __init__(self, least):
        self.run = Driven(gates=GATES)
        self.least = least
        self.pods, self.nodes, self.serial = {}, 0, 0
        self.outstanding = []
        self.trace = []

    def play(self, events):
        for kind, *rest in events:
            getattr(self, kind)(*rest)
            self.trace += [(work.phase.value, work.pod.name, work.node) for work in self.collect()]
        for _ in range(4):
            self.step(8)
            self.collect()
            self.bind(99)
            self.check()
            self.time(30.0)

    def node(self, cpu):
        self.nodes += 1
        self.run.see(node(f"n{self.nodes}", str(cpu)))

    def group(self, which):
        self.run.see(gang(f"g{which}", self.least[which]))

    def member(self, which, cpu, priority):
        self.serial += 1
        self.add(member(f"p{self.serial}", str(cpu), f"g{which}", priority=priority))

    def single(self, cpu, priority):
        self.serial += 1
        self.add(pod(f"p{self.serial}", str(cpu), priority=priority, preemptionPolicy="Never"))

    def add(self, one):
        self.pods[one.name] = one
        self.run.see(one)

    def step(self, times):
        for _ in range(times):
            self.run.step()

    def time(self, seconds):
        self.run.now += seconds

    def collect(self):
        """Take what is to be done. Evictions are left out: a victim may be one of a gang."""
        work = self.run.work(Phase.BIND)
        self.outstanding += work
        return work

    def bind(self, times):
        done, self.outstanding = self.outstanding[:times], self.outstanding[times:]
        for work in done:
            self.pods[work.pod.name] = bound(self.pods[work.pod.name], work.node)
            self.run.see(self.pods[work.pod.name])
            self.run.done(work)

    def check(self):
        assert not self.outstanding
        running = Counter(
            one.spec.scheduling_group.pod_group_name
            for one in self.pods.values()
            if one.spec.scheduling_group is not None and one.spec.node_name
        )
        for which, least in enumerate(self.least):
            assert running[f"g{which}"] == 0 or running[f"g{which}"] >= least, running
        assert not list(self.run.engine.waiting())
        assert not self.run.engine.cluster.assumed


stories = st.tuples(st.tuples(*[st.integers(1, 4)] * 3), st.lists(arrivals, min_size=5, max_size=40))


@settings(max_examples=50, deadline=None)
@given(story=stories)
def test_at_least_min_count_pods_of_a_gang_are_bound_or_none(story):
    least, events = story
    Story(least).play(events)


@settings(max_examples=25, deadline=None)
@given(story=stories)
def test_the_same_history_ends_in_the_same_state(story):
    least, events = story
    once, again = Story(least), Story(least)
    once.play(events)
    again.play(events)
    assert once.trace == again.trace
    assert {name: one.spec.node_name for name, one in once.pods.items()} == {
        name: one.spec.node_name for name, one in again.pods.items()
    }
