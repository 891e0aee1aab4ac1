"""What plugins of authors met: totals, and a plugin that ends the program."""

from __future__ import annotations

import pytest

from moorage import Simulation
from moorage.framework.verdicts import Wait
from moorage.testing.builders import a_node, a_pod

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
