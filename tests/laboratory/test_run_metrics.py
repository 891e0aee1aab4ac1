"""The measurements of a run are the same from its decisions and from its attempts, and sums are those of the plain rules."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES
from moorage.basis.inputs.files import InputFile
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.measured_run import RunSeries
from moorage.laboratory.compare.run_inputs import input_of_runs
from moorage.laboratory.compare.run_metrics import MeasureSetting, RunMeter
from moorage.laboratory.compare.typical_mix import is_bound_to_its_node, typical_mix
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options, prepare
from moorage.state.pod_info import PodInfo
from tests.laboratory.random_world import OTHERS, World


def read(seed: int):
    """Return a random cluster, too small for its pods, in which important pods preempt others."""
    world, pick = World(seed), random.Random(seed)
    items = [world.node(f"n{at}") for at in range(4)] + [world.pod(f"n{pick.randrange(4)}") for _ in range(12)]
    for template in [world.pod() for _ in range(5)]:
        for at in range(pick.randrange(1, 8)):
            copy = json.loads(json.dumps(template))
            copy["metadata"]["name"] += f"-{at}"
            items.append(copy)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    return read_sources([InputFile("a.json", text), InputFile("b.yaml", OTHERS.encode())])


@pytest.mark.parametrize("again", [(), ("default-scheduler",)], ids=["as it is", "all pods again"])
@pytest.mark.parametrize("seed", range(4))
def test_a_run_after_others_is_that_of_a_fresh_load(seed, again):
    given = input_of_runs(Cluster(read(seed), Options()), again=again)
    series = RunSeries(given, Options())
    for number in (2, 7, 2, 1):
        fresh = RunSeries(given, Options()).measure(number)
        assert replace(series.measure(number), speed=0.0) == replace(fresh, speed=0.0)
        assert fresh.seed == number


@pytest.mark.parametrize("seed", range(6))
def test_decisions_are_measured_as_attempts_are(seed):
    cluster, options, setting = read(seed), Options(seed=seed), MeasureSetting()
    slow, fast = RunMeter(), RunMeter()
    by_attempts = prepare(options, slow.hear)
    by_decisions = prepare(options)
    by_decisions[0].on_result = fast.count
    _, one = simulate_cluster(cluster, options, prepared=by_attempts)
    _, other = simulate_cluster(cluster, options, prepared=by_decisions)
    assert one == other
    assert slow.decisions == fast.decisions > 0
    assert slow.measured(by_attempts[0], one, setting) == fast.measured(by_decisions[0], other, setting)


def plain_peaks(run) -> dict[str, int]:
    changes = []
    for pod in run.pods:
        held = {**pod.requests, "pods": 1}
        if pod.node and pod.placed_s is not None:
            changes.append((pod.placed_s, 1, held))
        if pod.node and pod.ended_s is not None:
            changes.append((pod.ended_s, -1, held))
    now = Counter({name: asked for name, (_, asked) in run.totals().items()})
    for _, sign, held in changes:
        now.update({name: -sign * amount for name, amount in held.items()})
    most = dict(now)
    for _, sign, held in sorted(changes, key=lambda change: change[:2]):
        now.update({name: sign * amount for name, amount in held.items()})
        most |= {name: max(most[name], now[name]) for name in held}
    return most


@pytest.mark.parametrize("seed", range(4))
def test_sums_over_pods_are_those_of_the_plain_rules(seed):
    whole, run = simulate_cluster(read(seed), Options(seed=seed))
    assert run.peaks() == plain_peaks(run)
    pods = [pod for pod in whole.pods if pod.status.phase not in ENDED_PHASES and not is_bound_to_its_node(pod)]
    for shapes in (typical_mix(pods, rare=0.0), typical_mix(pods, rare=0.2)):
        assert sum(shape.pods for shape in shapes) == len(pods)
        for name in ("cpu", "memory"):
            whole_amount = sum(PodInfo(pod).requests.get(name, 0) for pod in pods)
            assert 0 <= sum(shape.requests.get(name, 0) * shape.pods for shape in shapes) - whole_amount < len(pods)
    exact = Counter(tuple(sorted(shape.requests.items())) for shape in typical_mix(pods, rare=0.0) for _ in range(shape.pods))
    assert exact == Counter(tuple(sorted((n, a) for n, a in PodInfo(pod).requests.items() if a)) for pod in pods)
