"""What ``explain`` says of an autoscaler is what it does in a simulation, on random changes of the example clusters."""

import random
from pathlib import Path

import pytest
import yaml

from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.dynamics.cluster_autoscaler_process import ClusterAutoscaler
from moorage.laboratory.dynamics.cluster_pools import AUTOSCALER_KINDS, pools_of_cluster
from moorage.laboratory.dynamics.karpenter_process import KarpenterProcess
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.simulator.autoscalers.instance_types import read_price_list
from moorage.simulator.autoscalers.karpenter.judgement import Karpenter
from moorage.simulator.autoscalers.karpenter.scene import KINDS
from moorage.simulator.simulate import Options

EXAMPLES = Path(__file__).parents[3] / "examples"


def documents(folder):
    for name in ("cluster", "pending"):
        yield from filter(None, yaml.safe_load_all((EXAMPLES / folder / f"{name}.yaml").read_text()))


def changed(folder, seed, kinds):
    """Return an example with other requests, and without some of its pods, budgets and nodes."""
    draw, found = random.Random(seed), []
    for one in documents(folder):
        if one["kind"] in {"Pod", "PodDisruptionBudget"} and draw.random() < 0.2:
            continue
        if one["kind"] == "Pod":
            for container in one["spec"]["containers"]:
                asked = container.setdefault("resources", {}).setdefault("requests", {})
                asked["cpu"] = f"{draw.choice((100, 300, 900, 1500, 3000, 30000))}m"
            if draw.random() < 0.2:
                one["spec"]["nodeSelector"] = {"disk": "ssd"}
            if draw.random() < 0.1:
                one["spec"]["priority"] = draw.choice((-20, 1000))
        found.append(one)
    return read_given(found, custom=kinds)


@pytest.mark.parametrize("seed", range(12))
def test_karpenter_adds_the_nodes_that_it_says_it_adds(seed):
    cluster = changed("karpenter", seed, KINDS)
    prices = read_price_list(str(EXAMPLES / "karpenter" / "types.json"))
    told = Karpenter(cluster, prices)
    simulation = Simulation(cluster, Options())
    scaler = simulation.use(KarpenterProcess([one.document for one in cluster.custom], prices))
    simulation.run(until=3.0)
    added = [event.pool for event in scaler.events if event.action == "up" for _ in event.nodes]
    placed = {queued.pod.key for queued in simulation.engine.scheduler.queue.ranked()}
    asked = {pod.key for pod in told.cluster.pending}
    if placed == asked - {pod.key for pods in told.plan.placed.values() for pod in pods}:
        assert sorted(added) == sorted(claim.pool.name for claim in told.plan.claims)
    for pod in told.cluster.pending:
        queued = next((one for one in simulation.engine.scheduler.queue.ranked() if one.pod.key == pod.key), None)
        if queued is not None and pod.metadata.uid in told.plan.errors:
            assert scaler.why_not_added(queued.pod) == told.plan.errors[pod.metadata.uid].partition(", requirements=")[0]


@pytest.mark.parametrize("seed", range(12))
def test_cluster_autoscaler_does_what_it_says(seed):
    cluster = changed("cluster-autoscaler", seed, AUTOSCALER_KINDS)
    found = pools_of_cluster([one.document for one in cluster.custom], cluster.nodes)

    def scaled(until):
        simulation = Simulation(cluster, Options())
        scaler = simulation.use(ClusterAutoscaler(found.pools, flags=found.flags, priorities=found.priorities))
        simulation.run(until=until)
        return simulation, scaler

    simulation, told = scaled(0.0)
    growth = told.next_growth()
    waiting = {pod.key: told.why_not_added(queued.pod) for pod in growth.waiting
               for queued in simulation.engine.scheduler.queue.ranked() if queued.pod.key == pod.key}  # fmt: skip
    helped = {pod.pod.key if hasattr(pod, "pod") else pod.key for option in growth.options for pod in option.pods}
    assert {key for key, why in waiting.items() if not why} >= helped & waiting.keys()
    _, did = scaled(15.0)
    grown = {event.pool for event in did.events if event.action == "up"}
    assert bool(grown) == bool(growth.options)
    assert grown <= {option.pool for option in growth.options}
