"""Pods that come without an identity, or as dicts: each is a pod of its own, wherever programs give them."""

from __future__ import annotations

import pytest

from moorage import Simulation
from moorage.api.core import Container, Pod, PodSpec, ResourceRequirements
from moorage.api.meta import ObjectMeta
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.dynamics import TraceArrivals
from moorage.laboratory.learning import PlacementEnv
from moorage.simulator.trace import Arrival

SIZE = {"cpu": "100", "memory": "80Gi", "pods": "110"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": SIZE, "capacity": SIZE}}
CONTAINERS = [Container(name="c", image="i", resources=ResourceRequirements(requests={"cpu": "1"}))]
DICT = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}


def struct(name, **metadata):
    return Pod(metadata=ObjectMeta(name=name, **metadata), spec=PodSpec(containers=CONTAINERS))


def plain(name, **metadata):
    return {**DICT, "metadata": {"name": name, **metadata}}


FORMS = {
    "a struct with a uid": lambda i: struct(f"p{i}", namespace="default", uid=f"u{i}"),
    "a struct without": lambda i: struct(f"p{i}", namespace="default"),
    "a struct without a namespace": lambda i: struct(f"p{i}"),
    "a dict": lambda i: {"apiVersion": "v1", "kind": "Pod", **plain(f"p{i}")},
    "a dict without a kind": lambda i: plain(f"p{i}", namespace="default"),
    "a dict with a base name": lambda i: {**DICT, "metadata": {"generateName": "p"}},
    "one struct for all": lambda i: struct("p", namespace="default", uid="u"),
    "one name for all": lambda i: struct("p"),
    "one dict for all": lambda i: plain("p"),
}


def arrivals(form, **more):
    return [Arrival(10.0 * i, FORMS[form](i), 1000.0) for i in range(20)]


@pytest.mark.parametrize("form", FORMS)
def test_each_arrival_of_a_simulation_is_a_pod(form):
    sim = Simulation.from_objects([NODE], keep_records=True)
    sim.use(TraceArrivals(arrivals(form)))
    found = sim.run(until=500)
    assert (found.arrived, found.placed, found.finished, len(sim.pods)) == (20, 20, 0, 20)
    assert len({pod.name for pod in sim.outcome().pods}) == 20
    assert sim.run(until=5000).finished == 20


@pytest.mark.parametrize("form", FORMS)
def test_each_arrival_of_an_environment_is_a_pod(form):
    env = PlacementEnv([NODE], arrivals(form), reward="placed")
    env.reset(seed=0)
    steps, over = 0, False
    while not over:
        _, _, ends, cut, info = env.step(0)
        over, steps = ends or cut, steps + 1
    assert (steps, info["placed"]) == (20, 20)


def test_pods_at_time_zero_may_be_dicts():
    env = PlacementEnv([NODE], [plain("a"), struct("b"), plain("a")], reward="placed")
    env.reset(seed=0)
    assert [env.step(0)[4]["pod"] for _ in range(2)] == ["default/b", "default/a-2"]


def test_a_told_pod_is_the_one_of_its_name():
    sim = Simulation.from_objects([NODE])
    sim.tell(Seen(struct("a")), Seen(struct("b", namespace="default")))
    assert sim.run(until=1).placed == 2
    sim.tell(Gone(struct("a")))
    assert len(sim.pods) == 1
    assert sim.totals().arrived == 2


BAD = {
    "of another kind": ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}, "found 0"),
    "without a name": ({**DICT, "metadata": {}}, "name or generateName is required"),
    "a struct without a name": (struct(""), "name or generateName is required"),
    "a number": (7, "not int"),
}


@pytest.mark.parametrize(("pod", "words"), BAD.values(), ids=BAD)
def test_what_is_no_pod_is_refused(pod, words):
    with pytest.raises(InputError, match=words):
        Arrival(0.0, pod)
