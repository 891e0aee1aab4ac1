"""Facts that the engine takes together leave the same state as facts that it takes one by one, over random histories."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Pod
from moorage.core.engine.facts import BindsDone, Done, Seen
from moorage.errors import MoorageError
from tests.core.engine.driving import Driven, bound, node, pod
from tests.core.engine.test_fast_lane import OPTIONS, Engines, accounts_of

SEEDS = 60 if os.environ.get("MOORAGE_LONG_TESTS") else 8


class Batching(Engines):
    """Two engines: the first takes facts in batches, as the loop passes them, and the other one by one."""

    def __init__(self, seed, options):
        self.batch, self.confirmed, self.added = [], 0, 0
        super().__init__(seed, options)
        self.both[1].lane.is_open = True

    def observe(self, fact):
        self.note(fact)
        self.batch.append(fact)

    def take(self):
        mine, its = self.both
        for fact in self.batch:
            with suppress(MoorageError):
                its.observe(fact, self.now)
        self.take_together(mine)
        self.batch.clear()
        super().take()

    def take_together(self, engine):
        pods = [fact for fact in self.batch if isinstance(fact, Seen) and isinstance(fact.obj, Pod)]
        waiting = [fact.obj for fact in pods if not fact.obj.spec.node_name]
        usual = len(waiting) == len(self.batch) and not any(one.metadata.deletion_timestamp for one in waiting)
        if usual and engine.observe_waiting(waiting, self.now):
            self.added += len(waiting)
            return
        at = 0
        while at < len(self.batch):
            count = engine.observe_confirmed(self.batch, at, self.now) if len(pods) == len(self.batch) else 0
            self.confirmed += count
            if not count:
                with suppress(MoorageError):
                    engine.observe(self.batch[at], self.now)
                count = 1
            at += count

    def answer(self, work):
        """Binds succeed, and are reported together with a few changes of other pods."""
        choose, works = self.course.random.choice, [work, *self.tickets]
        self.tickets.clear()
        for one in works:
            held = self.pods.get(one.pod.uid)
            if choose([True, True, True, False]):
                for engine in self.both:
                    engine.observe(Done(one.ticket), self.now)
            elif held is not None:
                self.tickets.append(one)
            if held is not None and choose([True] * 9 + [False]):
                late = choose([*["Pending"] * 9, "Failed"])
                status = replace(held.status, phase=late)
                self.observe(
                    Seen(replace(held, spec=replace(held.spec, node_name=choose([*[one.node] * 9, work.node])), status=status))
                )
            if choose([False, False, False, True]):
                self.observe(self.course.fact([*self.pods.values()]))
        self.take()


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_facts_taken_together_lead_to_the_same_state_and_decisions(options):
    confirmed = added = 0
    for seed in range(SEEDS):
        engines = Batching(seed, options)
        engines.run(40)
        confirmed, added = confirmed + engines.confirmed, added + engines.added
    assert confirmed > SEEDS
    assert added > SEEDS


def assumed_pods(*names):
    """Return two engines that have assumed these pods on a node, and the pods as bound."""
    both = Driven(), Driven()
    for each in both:
        each.see(node("n", cpu="9"), *map(pod, names))
        assert [each.step() for _ in names] == [(name, "n") for name in names]
    return both, [Seen(bound(pod(name), "n")) for name in names]


CASES = {
    "only confirms": (lambda one: one, 3),
    "is on another node": (lambda one: replace(one, spec=replace(one.spec, node_name="m")), 1),
    "has ended": (lambda one: replace(one, status=replace(one.status, phase=min(ENDED_PHASES))), 1),
    "has other labels": (lambda one: replace(one, metadata=replace(one.metadata, labels={"a": "b"})), 1),
    "has another priority": (lambda one: replace(one, spec=replace(one.spec, priority=7)), 1),
    "is not known": (lambda one: replace(one, metadata=replace(one.metadata, uid="other")), 1),
}


@pytest.mark.parametrize(("change", "taken"), CASES.values(), ids=CASES)
def test_pods_up_to_the_first_that_says_more_are_taken_together(change, taken):
    (mine, its), facts = assumed_pods("a", "b", "c")
    facts[1] = Seen(change(facts[1].obj))
    assert mine.engine.observe_confirmed(facts, 0, 0.0) == taken
    for each, left in ((mine, facts[taken:]), (its, facts)):
        for fact in left:
            each.engine.observe(fact, 0.0)
    first, second = accounts_of(mine.engine, its.engine)
    assert first == second
    tickets = [work.ticket for work in its.outputs.work]
    for each in (mine, its):
        each.engine.observe(BindsDone(tickets), 0.0)
    first, second = accounts_of(mine.engine, its.engine)
    assert first == second


def test_a_bound_pod_is_not_only_confirmed_while_another_waits_for_room():
    (mine, _), facts = assumed_pods("a", "b")
    mine.see(pod("huge", cpu="90"))
    assert mine.step() == ("huge", None)
    assert mine.engine.observe_confirmed(facts, 0, 0.0) == 0
