"""What plugins of authors met: totals, a plugin that ends the program, loops without time, and data from outside."""

from __future__ import annotations

import numpy as np
import pytest

from moorage import Simulation
from moorage.errors import LoopError
from moorage.framework.points import Reuse, Scope
from moorage.framework.post_filter import PostFilterResult
from moorage.framework.verdicts import Code, Wait
from moorage.simulator import zero_time_loops
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        enabled: [{{name: {0}}}, {{name: DefaultBinder}}]
        disabled: [{{name: DefaultBinder}}]
"""


def simulation(plugin, *pods, nodes=1):
    found = [a_node(f"n{i}", allocatable={"cpu": "2", "pods": 10}) for i in range(nodes)]
    made = [a_pod(name, containers=[{"name": "c"}]).pod for name in pods]
    config = CONFIG.format(plugin.name)
    return Simulation.from_objects(*found, *made, config=config, plugins=(plugin,), keep_records=True)


class Never:
    name = "Never"

    def permit(self, state, pod, node):
        return Wait(1)


class Once:
    """Lets a pod wait, and allows it 5 seconds later, when another pod comes."""

    name = "Once"

    def attach(self, handle):
        self.handle = handle

    def permit(self, state, pod, node):
        if pod.name == "second":
            for held in self.handle.waiting():
                held.allow(self.name)
            return None
        return Wait(60)


def test_a_pod_that_permit_holds_is_not_placed():
    sim = simulation(Never, "p")
    for until in (0.5, 30, 300):
        found = sim.run(until=until)
        assert (found.arrived, found.placed, found.pending) == (1, 0, 1)
        assert found.wait_mean_s == 0
    assert [pod.state for pod in sim.outcome().pods] == ["Pending"]


def test_a_pod_is_placed_when_it_is_bound():
    sim = simulation(Once, "first")
    assert sim.run(until=5).placed == 0
    sim.add(a_pod("second", containers=[{"name": "c"}]).pod)
    found = sim.run(until=10)
    assert (found.placed, found.pending) == (2, 0)
    assert found.wait_mean_s == 2.5, "five seconds and none"


def ends_at(point):
    """Return a plugin that ends the program at one extension point, for the pod "bad"."""

    def method(self, *given):
        told = [one for one in given if hasattr(one, "key")]
        if any(one.key.endswith("/bad") for one in told):
            raise SystemExit(3)
        return 0 if point == "score_node" else None

    return type("Exits", (), {"name": "Exits", point: method})


POINTS = [
    "pre_enqueue", "pre_filter", "filter_node", "score_node", "reserve", "permit", "pre_bind", "bind", "post_bind",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_plugin_cannot_end_the_program(point):
    sim = simulation(ends_at(point), "bad", "fine", nodes=2)
    sim.run(until=1)
    found = {pod.name: pod for pod in sim.outcome().pods}
    assert found["fine"].state == "Placed"
    if point == "post_bind":
        assert found["bad"].state == "Placed"
    else:
        assert found["bad"].state == "Pending"
        assert "SystemExit: 3" in found["bad"].message


# -- loops that take no time -----------------------------------------------------------------------------------------------


class Eager:
    """Permit waits and activates the siblings, PostFilter rejects those that wait."""

    name = "Eager"

    def __init__(self):
        self.pods = {}

    def attach(self, handle):
        self.handle = handle

    def pre_enqueue(self, pod):
        if not pod.name.startswith("lone"):
            self.pods[pod.uid] = pod

    def permit(self, state, pod, node):
        waiting = {held.pod.uid for held in self.handle.waiting()} | {pod.uid}
        self.handle.activate([p for p in self.pods.values() if p.uid not in waiting])
        return Wait(10)

    def post_filter(self, pod, attempt):
        for held in self.handle.waiting():
            held.reject(self.name, "the group does not fit")
        return PostFilterResult(Code.UNSCHEDULABLE)


def eager(*names):
    pods = [a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}]).pod for name, cpu in names]
    config = CONFIG.format("Eager")
    return Simulation.from_objects(a_node("n1", allocatable={"cpu": "1", "pods": 10}), *pods, config=config, plugins=(Eager,))


GROUP = [("p0", "1"), ("p1", "1"), ("p2", "1")]


@pytest.mark.parametrize("go", [lambda sim: sim.run(until=1), lambda sim: sim.run(), lambda sim: sim.step()])
def test_plugins_that_make_each_other_act_end_with_an_error(go):
    sim = eager(*GROUP, ("lone", "100"))
    with pytest.raises(LoopError) as ended:
        go(sim)
    told = str(ended.value)
    assert told.startswith("a loop that takes no time: at 0 s default/p0 100 times")
    assert "plugin Eager" in told
    assert "default/p1 waits in Permit on n1 (Eager)" in told
    assert "default/p1 is rejected while it waits (Eager)" in told


def test_without_the_pod_that_fits_nowhere_there_is_no_loop():
    assert eager(*GROUP).run(until=1).placed == 0


class Spiteful:
    """PostFilter deletes a pod that has just been placed, whose controller replaces it."""

    name = "Spiteful"

    def post_filter(self, pod, attempt):
        return PostFilterResult(Code.UNSCHEDULABLE)

    def post_bind(self, state, pod, node):
        self.sim.call_at(self.sim.now_s, lambda: self.sim.evict(pod.pod, grace_s=0))


def test_pods_that_are_replaced_without_end_are_an_error():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    pod = a_pod("web-1", metadata={"ownerReferences": [owner]}, containers=[{"name": "c"}]).pod
    config = CONFIG.format("Spiteful")
    sim = Simulation.from_objects(a_node("n1", allocatable={"pods": 10}), pod, config=config, plugins=(Spiteful,))
    Spiteful.sim = sim
    with pytest.raises(LoopError, match=r"is the 100th pod in a row that replaces an evicted .* at 0 s; plugin Spite"):
        sim.run(until=1)


def test_events_that_make_each_other_are_an_error(monkeypatch):
    monkeypatch.setattr(zero_time_loops, "MOST_EVENTS", 1000)
    sim = Simulation.from_objects(a_node("n1"))

    def again():
        sim.call_at(sim.now_s, again)

    sim.call_at(5.0, again)
    with pytest.raises(LoopError, match=r"1,000 events at 5 s, each due when it is made"):
        sim.run(until=10)


def test_many_pods_at_once_are_no_loop():
    names = [f"p{i}" for i in range(300)]
    sim = simulation(Once, *names, nodes=40)
    assert sim.run(until=100).pending == 300


# -- data from outside -----------------------------------------------------------------------------------------------------

LOADS = {}


class Ext:
    """Scores from metrics; the version of the promise is that of the metrics."""

    name = "Ext"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {}, signature_reads=(), outside=lambda: repr(LOADS))

    def score(self, pod, nodes):
        return np.array([LOADS[name] for name in nodes.names()])


def test_scores_from_outside_are_kept_and_refreshed():
    LOADS.update(n0=90, n1=10)
    sim = Simulation.from_objects(
        *[a_node(f"n{i}", allocatable={"cpu": "9", "pods": 10}) for i in range(2)],
        config=CONFIG.format("Ext, weight: 100"), plugins=(Ext,), keep_records=True,
    )  # fmt: skip
    for i in range(4):
        if i == 2:
            LOADS.update(n0=10, n1=90)
        sim.add(a_pod(f"p{i}", containers=[{"name": "c"}]).pod)
        sim.run(until=10 * (i + 1))
    assert [pod.node for pod in sim.outcome().pods] == ["n0", "n0", "n1", "n1"]
    check_plugin(Ext(), cluster=a_cluster([a_node("n0"), a_node("n1")]), change_outside=lambda: LOADS.update(n0=11))
