"""``compare_autoscalers``: the same arrivals under two sets of NodePools."""

from __future__ import annotations

import pytest

from moorage.errors import InputError
from moorage.laboratory.dynamics import (
    Exponential,
    KarpenterProcess,
    PodArrivals,
    PodKind,
    Poisson,
    Simulation,
    compare_autoscalers,
    scaling_table,
)
from tests.laboratory.dynamics.test_karpenter_process import LARGE, SMALL, a_pool
from tests.simulator.autoscalers.karpenter.clusters import pod, price_list

HOUR = 3600.0


def arranged(price: str):
    def arrange(seed: int):
        simulation = Simulation.from_objects(seed=seed)
        kind = PodKind(pod=pod("web", cpu="900m"), lifetime=Exponential(900.0))
        simulation.use(PodArrivals(Poisson(per_hour=12), [kind]))
        asked = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [price]}]
        pools = [a_pool(requirements=asked, disruption={"consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]})]
        return simulation, simulation.use(KarpenterProcess(pools, price_list([SMALL, LARGE])))

    return arrange


@pytest.mark.slow
def test_the_dearer_pool_costs_more_and_an_equal_one_the_same():
    found = compare_autoscalers(arranged("small"), arranged("large"), until_s=HOUR, seeds=range(5))
    assert found["cost"].a < found["cost"].b
    assert found["cost"].interval[0] > 0
    same = compare_autoscalers(arranged("small"), arranged("small"), until_s=HOUR, seeds=range(2))
    assert {name for name, one in same.items() if one.difference} == set()
    lines = scaling_table(found, "small", "large").splitlines()
    assert lines[0].split() == ["FIGURE", "UNIT", "small", "large", "large", "-", "small", "95", "%", "INTERVAL"]
    assert max(map(len, lines)) <= 80


def test_no_seed_is_an_error():
    with pytest.raises(InputError, match="seeds"):
        compare_autoscalers(arranged("small"), arranged("small"), until_s=HOUR, seeds=())
