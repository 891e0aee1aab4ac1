"""``KarpenterProcess``: when nodes come, go and are replaced, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.errors import InputError
from moorage.laboratory.dynamics import AtTimes, Fixed, PodArrivals, PodKind, Simulation
from moorage.laboratory.dynamics.karpenter_process import KarpenterProcess
from moorage.simulator.autoscalers import InstanceType, PriceList
from tests.simulator.autoscalers.karpenter.clusters import instance_type, node, pod, price_list

SMALL = instance_type("small", cpu="2", memory="8Gi", pods="20", price=0.1)
LARGE = instance_type("large", cpu="8", memory="32Gi", pods="40", price=0.35)
HOUR = 3600.0
OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "web", "apiVersion": "apps/v1", "controller": True}


def a_pool(name: str = "general", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"requirements": spec.pop("requirements", [])}}
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def started(*objects: Any, pools: Any = None, types: tuple[InstanceType, ...] = (SMALL, LARGE), seed: int = 0, **more: Any):
    simulation = Simulation.from_objects(*objects, seed=seed)
    process = KarpenterProcess([a_pool()] if pools is None else pools, price_list(types), **more)
    return simulation, simulation.use(process)


def story(process: KarpenterProcess) -> list[tuple[float, str]]:
    return [(event.time_s, event.action) for event in process.events]


def test_a_node_comes_for_pods_that_wait_and_is_paid_from_its_launch():
    simulation, process = started(*(pod(f"p{at}", cpu="1") for at in range(3)))
    simulation.run(until=HOUR)
    assert story(process)[:2] == [(2.0, "up"), (62.0, "ready")]
    assert process.sizes() == {"general": 1}
    assert process.cost() == pytest.approx(0.35 * (HOUR - 2) / HOUR)
    assert process.cost() == pytest.approx(process.cost_in(0, HOUR))
    assert simulation.pending == 0
    assert 62 <= simulation.totals().wait_p50_s <= 65  # the scheduler tries again within a few seconds


def test_without_pods_all_nodes_go_after_consolidate_after():
    pool = a_pool(disruption={"consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]})
    simulation, process = started(pools=[pool])
    simulation.use(PodArrivals(AtTimes((1.0,)), [PodKind(pod=pod("job", cpu="1"), lifetime=Fixed(60.0))]))
    simulation.run(until=HOUR)
    assert process.sizes() == {"general": 0}
    times = {action: time_s for time_s, action in story(process)}
    assert times["empty"] == pytest.approx(times["ready"] + 60 + 300 + 15, abs=25)
    assert process.cost_in(times["down"], HOUR) == 0


def test_a_replacement_comes_before_its_node_goes():
    pool = a_pool(disruption={"budgets": [{"nodes": "100%"}]})
    web = pod("web", cpu="1", node="old", meta={"ownerReferences": [OWNER]})
    simulation, process = started(node("old", LARGE, "general"), web, pools=[pool])
    simulation.run(until=HOUR)
    actions = [action for _, action in story(process)]
    assert actions[:4] == ["up", "underutilized", "ready", "down"]
    assert process.rates[0][1] == 0.35
    assert 0.1 in [rate for _, rate in process.rates]


def test_a_drifted_node_goes_at_once_when_its_replacement_is_there():
    pool = a_pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
    web = pod("web", cpu="1", node="old", meta={"ownerReferences": [OWNER]})
    drifted = [{"type": "Drifted", "status": "True", "lastTransitionTime": "2026-08-16T00:00:00Z"}]
    claim = {"kind": "NodeClaim", "metadata": {"name": "old"}, "status": {"nodeName": "old", "conditions": drifted}}
    simulation, process = started(node("old", SMALL, "general"), web, pools=[pool, claim])
    simulation.run(until=HOUR)
    assert [action for _, action in story(process)] == ["up", "drifted", "ready", "down"]
    assert process.events[1].time_s == 10.0  # without the 15 seconds that consolidation waits
    assert process.sizes() == {"general": 1}


def test_spot_nodes_are_interrupted_by_the_seed_and_their_pods_get_others():
    def run(seed: int):
        simulation, process = started(pod("p", cpu="1", meta={"ownerReferences": [OWNER]}), seed=seed, interruptions=2.0)
        simulation.run(until=4 * HOUR)
        return story(process)

    assert run(1) == run(1)
    assert [action for _, action in run(1)].count("interrupted") > 0
    assert run(1) != run(2)


def test_limits_of_a_pool_hold_and_are_told():
    pods = [pod(f"p{at}", cpu="1500m") for at in range(4)]
    simulation, process = started(*pods, pools=[a_pool(limits={"cpu": "4"})], types=(SMALL,))
    simulation.run(until=HOUR)
    assert process.sizes() == {"general": 2}
    told = [process.why_not_added(one.pod) for one in simulation.engine.scheduler.queue.ranked()]
    assert told == ["all available instance types exceed limits for nodepool (NodePool=general)"] * 2


@pytest.mark.parametrize(
    ("pools", "more", "said"), [([], {}, "no NodePool"), (None, {"interruptions": -1.0}, "interruptions: -1.0")]
)
def test_faults_are_named(pools, more, said):
    with pytest.raises(InputError, match=said):
        KarpenterProcess([a_pool()] if pools is None else pools, PriceList(), **more)
