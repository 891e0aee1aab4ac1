"""The fragmentation of a whole cluster: at one moment, and sampled over time."""

import numpy as np
import pytest

from moorage.api.core import Node, Pod
from moorage.laboratory.dynamics import PodArrivals, Regular, Simulation, StateRecorder
from moorage.plugins.gpu_sharing.devices import device_table
from moorage.plugins.gpu_sharing.fragmentation import FragmentModel, PodClass, cluster_fragments, pod_class, typical_pods
from tests.plugins.gpu_sharing.test_plugins import MODEL, PLUGINS, config, node, pod


def fragment_amount(simulation: Simulation, model: FragmentModel) -> float:
    found = cluster_fragments(simulation.engine.scheduler, model)
    return sum(found.values()) - found["q3_satisfied"]


def plain_amount(simulation: Simulation, model: FragmentModel) -> float:
    """Return the sum of the amounts of single nodes."""
    scheduler, total = simulation.engine.scheduler, 0.0
    devices = device_table(scheduler)
    for one in scheduler.snapshot.nodes:
        cpu = np.array([one.allocatable("cpu") - one.requested("cpu")])
        total += float(model.amounts(cpu, np.array([devices.of(one)]), [one.labels.get(MODEL, "")])[0])
    return total


def test_the_class_of_a_pod_is_what_it_requests() -> None:
    found = [pod_class(one.pod) for one in (pod("a", 300, models="T4|V100"), pod("b", 1000, 2, cpu="250m"), pod("c"))]
    assert found == [PodClass(1000, 300, 1, "T4|V100"), PodClass(250, 1000, 2), PodClass(1000, 0, 0)]


def test_a_recorder_samples_the_sum_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.plugins.gpu_sharing.fragmentation._AT_ONCE", 2)
    nodes: list[Node] = [node("0000-a", 2), node("0001-b", 4, "V100"), node("0002-c", 0), node("0003-d", 1)]
    kinds: list[Pod] = [pod("share", 400).pod, pod("whole", 1000, 2).pod, pod("none", cpu="8").pod]
    model = FragmentModel(typical_pods([pod_class(one) for one in kinds]))
    sim = Simulation.from_objects(*nodes, config=config(), plugins=PLUGINS)
    sim.use(PodArrivals(Regular(10.0), kinds, lifetime=100.0))
    amounts = {"fragments": lambda one: fragment_amount(one, model), "plain": lambda one: plain_amount(one, model)}
    recorder = sim.use(StateRecorder(20.0, extra=amounts))
    sim.run(until=400.0)
    columns = recorder.columns()
    assert columns["fragments"] == pytest.approx(columns["plain"])
    assert len(set(columns["fragments"])) > 5
    assert columns["fragments"].max() <= 7000
