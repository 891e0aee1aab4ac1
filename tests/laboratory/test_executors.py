"""Answers that an executor computes are those that are computed here."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future

import pytest
from msgspec.structs import replace

import moorage
from moorage.testing.builders import a_pod

pytestmark = pytest.mark.slow


class Copying(Executor):
    """Run each call at once, on copies of its arguments, as a worker elsewhere does; ``calls`` counts them."""

    _max_workers = 3

    def __init__(self):
        self.calls = 0

    def submit(self, fn, /, *args, **kwargs):
        self.calls += 1
        function, given = pickle.loads(pickle.dumps((fn, args)))
        future = Future()
        future.set_result(pickle.loads(pickle.dumps(function(*given, **kwargs))))
        return future


@pytest.fixture
def cluster():
    return moorage.Cluster.read("examples/demo")


@pytest.mark.parametrize(("over", "depth"), [("node", 1), ("zone", 2)])
def test_survive(cluster, over, depth):
    executor = Copying()
    before = cluster.digest()
    found = cluster.survive(over, depth, fix_probes=0, executor=executor)
    expected = cluster.survive(over, depth, fix_probes=0)
    assert found == expected
    assert (executor.calls > 1, cluster.digest()) == (True, before)


SIZES = {"one type": [("large", 4, 1.0)], "several types": [("large", 4, 1.0), ("small", 2, 0.6), ("tiny", 1, 0.35)]}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_plan(sizes):
    executor = Copying()
    cluster = moorage.Cluster.from_objects(
        *(a_pod(f"p{number}", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}]).pod
          for number, cpu in enumerate(["900m", "1500m", "1500m", "700m", "2500m"])),
    )  # fmt: skip
    types = [
        {"name": name, "price": price, "node": {"status": {"allocatable": {"cpu": str(cpu), "memory": "8Gi", "pods": "10"}}}}
        for name, cpu, price in sizes
    ]
    still = {"clock": lambda: 0.0}  # both searches end by themselves
    found, expected = cluster.plan(types, executor=executor, **still), cluster.plan(types, **still)
    assert replace(found, proof=expected.proof) == expected
    assert (executor.calls > 0, expected.status) == (True, "optimal")
