"""Data from outside the cluster, retries after a delay, and the pods that plugins list and follow."""

from __future__ import annotations

import asyncio
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage import Simulation
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Gone
from moorage.framework.handle import Refresh
from moorage.framework.points import Reuse, Scope
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Hold, Wait
from moorage.live.runtime.refreshes import keep_fresh
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Mine, weight: 100}]}}}]
"""


def simulation(cls, *pods, nodes=2, cpu="9"):
    found = [a_node(f"n{at}", allocatable={"cpu": cpu, "pods": 10}) for at in range(1, nodes + 1)]
    made = [a_pod(name, containers=[{"name": "c"}]).pod for name in pods]
    return Simulation.from_objects(*found, *made, config=CONFIG, plugins=(cls,), keep_records=True)


def loads_of(**first):
    """Return a class that scores by loads from outside, with them and their version in its attribute ``loads``."""

    class Mine:
        name = "Mine"
        loads = first
        reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=lambda: tuple(Mine.loads.items()))

        def score(self, pod, nodes):
            return np.array([self.loads.get(name, 0) for name in nodes.names()])

    return Mine


def test_kept_scores_are_refreshed_when_the_version_changes():
    mine = loads_of(n1=90, n2=10)
    sim = simulation(mine)
    for at in range(6):
        if at == 3:
            mine.loads = {"n1": 10, "n2": 90}
        sim.add(a_pod(f"p{at}", containers=[{"name": "c"}]).pod)
        sim.run(until=10 * (at + 1))
    assert [pod.node for pod in sim.outcome().pods] == ["n1"] * 3 + ["n2"] * 3


def test_copies_that_come_together_see_the_change():
    counter = itertools.count()
    mine = loads_of()
    mine.reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=lambda: next(counter) // 8)
    mine.score = lambda self, pod, nodes: np.array(
        [50 if (next(counter) // 8 + int(name[1:])) % 2 else 0 for name in nodes.names()]
    )
    sim = simulation(mine, *[f"p{at}" for at in range(16)])
    sim.run(until=1)
    assert len({pod.node for pod in sim.outcome().pods}) == 2


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.booleans()), min_size=1, max_size=12))
def test_decisions_are_those_without_promises(steps):
    """With the promise a decision is that of a plugin that promises nothing, whatever the data did."""
    mine = loads_of(n1=0, n2=0)

    class Plain(mine):
        reuse = Reuse()

    snapshot = a_cluster([a_node(f"n{at}", allocatable={"cpu": "9", "pods": 10}) for at in (1, 2)]).snapshot
    profiles = [make_profile("default-scheduler", {"Mine": cls()}, {"score": ["Mine"]}, {"Mine": 1}) for cls in (mine, Plain)]
    cycles = [Cycle(), Cycle()]
    for at, (first, second, change) in enumerate(steps):
        if change:
            mine.loads = {"n1": first, "n2": second}
        pod = a_pod(f"p{at}", containers=[{"name": "c"}])
        nodes = [cycle.decide(profile, pod, snapshot).node for cycle, profile in zip(cycles, profiles, strict=True)]
        assert nodes[0] == nodes[1]


class Gate:
    """Rejects pods until data from outside opens the gate."""

    name = "Mine"
    opens_at = 25.0
    open = False
    reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=lambda: Gate.open)

    def attach(self, handle):
        Gate.open = False
        handle.refresh(self.name, 10, self.ask, lambda: self.ask(handle.now))

    def ask(self, now=0.0):
        Gate.open = now >= self.opens_at

    def filter_node(self, pod, node):
        return None if Gate.open else Hold.because("closed", unresolvable=True)

    def wakes_on(self):
        return ()


def test_a_rejected_pod_is_retried_when_outside_data_changes():
    sim = simulation(Gate, "p")
    assert sim.run(until=20).placed == 0
    assert sim.run(until=60).placed == 1
    assert [pod.node for pod in sim.outcome().pods] != [None]


def test_a_version_that_cannot_be_told_fails_the_attempt():
    mine = loads_of()
    mine.reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=lambda: 1 / 0)
    sim = simulation(mine, "p")
    sim.run(until=1)
    assert "plugin Mine failed in outside: ZeroDivisionError" in sim.outcome().pods[0].message


# -- check_plugin -----------------------------------------------------------------------------------------------------------


def test_check_plugin_proves_the_promise():
    mine = loads_of(n1=1, n2=2)
    check_plugin(mine(), change_outside=lambda: setattr(mine, "loads", {"n1": 70}))
    silent = loads_of(n1=1)
    silent.reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=())
    with pytest.raises(AssertionError, match=r"declare Reuse\(outside=...\), the data's version"):
        check_plugin(silent(), change_outside=lambda: setattr(silent, "loads", {"n1": 70}))
    still = loads_of(n1=1)
    still.reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=lambda: 1)
    with pytest.raises(AssertionError, match=r"declare Reuse\(outside=...\)"):
        check_plugin(still(), change_outside=lambda: setattr(still, "loads", {"n1": 70}))
    with pytest.raises(AssertionError, match="changes neither an answer nor the version"):
        check_plugin(mine(), change_outside=lambda: None)


CALLS = itertools.count()


@pytest.mark.parametrize(
    ("version", "says"),
    [(lambda: [1], "cannot be hashed"), (CALLS.__next__, "another value when it is called again")],
)
def test_check_plugin_refuses_versions_of_no_use(version, says):
    mine = loads_of()
    mine.reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=version)
    with pytest.raises(AssertionError, match=says):
        check_plugin(mine())


# -- retries ------------------------------------------------------------------------------------------------------------------


class Later:
    """Holds each pod for 14 seconds, and asks to retry it after 7."""

    name = "Mine"

    def attach(self, handle):
        self.handle = handle
        Later.tries = []

    def pre_filter(self, pod, snapshot):
        Later.tries.append(self.handle.now)
        if self.handle.now >= 14:
            return pod
        self.handle.retry([pod], after_s=7)
        return Hold.because("not yet", unresolvable=True)

    def wakes_on(self):
        return ()


def test_a_pod_is_retried_after_a_delay():
    sim = simulation(Later, "p")
    assert sim.run().placed == 1
    assert sorted({*Later.tries}) == [0.0, 7.0, 14.0]


class Forever(Later):
    def pre_filter(self, pod, snapshot):
        self.handle.retry([pod], after_s=7)
        return Hold.because("never", unresolvable=True)


def test_retries_without_an_end_end_a_run():
    assert simulation(Forever, "p").run().pending == 1


# -- pods ---------------------------------------------------------------------------------------------------------------------


class Lists:
    """Notes which pods it sees, and which it can list at each attempt."""

    name = "Mine"

    def attach(self, handle):
        self.handle = handle
        Lists.told, Lists.listed = [], []

    def pod_changed(self, old, new):
        Lists.told.append((old and old.name, new and new.name))

    def permit(self, state, pod, node):
        pods = self.handle.pods
        Lists.listed.append((
            sorted(one.name for one in pods.pending()), sorted(one.name for one, _ in pods.placed()),
            sorted(one.pod.name for one in pods.waiting()), pods.node_of(pod.uid), pods.get(pod.uid) is not None,
        ))  # fmt: skip
        return Wait(5) if pod.name == "held" else None


def test_pods_are_listed_by_where_they_are():
    sim = simulation(Lists, "held", "usual", nodes=1)
    sim.run(until=1)
    assert Lists.listed[0] == (["usual"], ["held"], [], "n1", True)
    assert Lists.listed[1] == ([], ["held", "usual"], ["held"], "n1", True)


def test_plugins_are_told_of_pods_that_come_and_go_even_if_never_placed():
    placed = a_pod("old", nodeName="n1", containers=[{"name": "c"}]).pod
    huge = a_pod("huge", containers=[{"name": "c", "resources": {"requests": {"cpu": "99"}}}]).pod
    node = a_node("n1", allocatable={"cpu": "9", "pods": 10})
    sim = Simulation.from_objects(node, placed, huge, config=CONFIG, plugins=(Lists,), keep_records=True)
    assert {(None, "old"), (None, "huge")} <= set(Lists.told), "it can seed its state after a restart"
    sim.run(until=1)
    sim.tell(Gone(huge))
    sim.run(until=2)
    assert ("huge", None) in Lists.told
    assert Lists.told.count(("huge", None)) == 1


# -- refreshes of a live scheduler ---------------------------------------------------------------------------------------------


def run_for(refresh, seconds=0.1):
    done, said = [], []

    async def go():
        task = asyncio.create_task(keep_fresh(refresh, lambda: done.append(1), said.append))
        await asyncio.sleep(seconds)
        task.cancel()

    asyncio.run(go())
    return len(done), said


def test_a_function_is_refreshed_in_a_thread_and_a_coroutine_in_the_loop():
    threads = []
    count, said = run_for(Refresh("Mine", 0.01, lambda: threads.append(threading.current_thread())))
    assert count >= 2
    assert said == []
    assert threading.main_thread() not in threads
    threads.clear()

    async def ask():
        threads.append(threading.current_thread())

    count, said = run_for(Refresh("Mine", 0.01, ask))
    assert count >= 2
    assert set(threads) == {threading.main_thread()}


def test_a_refresh_that_fails_is_reported_and_repeated():
    count, said = run_for(Refresh("Mine", 0.01, lambda: 1 / 0))
    assert count >= 2
    assert said[0].startswith("plugin Mine failed in a refresh: ZeroDivisionError: division by zero (test_outside.py, line")
