"""The plugins for shared GPUs: their contract, the devices they give, and how they compare with plain loops."""

import json
import math
import random
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from moorage.laboratory.dynamics import PodArrivals, Regular, Simulation
from moorage.plugins.gpu_sharing.devices import device_table
from moorage.plugins.gpu_sharing.fgd import FGDScore, FGDScoreArgs, TypicalPodArgs
from moorage.plugins.gpu_sharing.node_order import NodeOrderHigh, NodeOrderLow
from moorage.plugins.gpu_sharing.open_gpu_share import OpenGpuShare
from moorage.plugins.gpu_sharing.policies import BestFitScore, DotProductScore, GpuClusteringScore, GpuPackingScore, RandomScore
from moorage.simulator.simulate import Options, simulate
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin

PLUGINS = (OpenGpuShare, FGDScore, BestFitScore, DotProductScore, GpuPackingScore, GpuClusteringScore, RandomScore,
           NodeOrderHigh, NodeOrderLow)  # fmt: skip
COUNT, MILLI = "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"
MODEL, INDEX = "alibabacloud.com/gpu-card-model", "alibabacloud.com/gpu-index"


def node(name, gpus, model="T4", cpu="64"):
    amounts = {"cpu": cpu, "memory": "256Gi", "pods": "100", COUNT: str(gpus), MILLI: str(1000 * gpus)}
    return a_node(name, labels={MODEL: model}, allocatable=amounts)


def pod(name, milli=0, count=1, models="", index="", cpu="1", **more):
    annotations = {COUNT: str(count), MILLI: str(milli)} if milli else {}
    annotations |= {key: value for key, value in ((MODEL, models), (INDEX, index)) if value}
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return a_pod(name, metadata={"annotations": annotations}, containers=containers, **more)


def config(policy=None, **args):
    scores = [{"name": policy, "weight": 10_201}] if policy else []
    enabled = [
        {"name": "OpenGpuShare"},
        *scores,
        {"name": "NodeOrderHigh", "weight": 101},
        {"name": "NodeOrderLow", "weight": 1},
    ]
    plugin_config = [{"name": "OpenGpuShare", "args": args}] if args else []
    profile = {"plugins": {"multiPoint": {"enabled": enabled}, "score": {"disabled": [{"name": "*"}], "enabled": enabled[1:]}},
               "pluginConfig": plugin_config}  # fmt: skip
    return json.dumps(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    ).encode()


def run(objects, policy=None, **args):
    outcome = simulate(objects, Options(config=config(policy, **args), plugins=PLUGINS))
    return {one.name: one for one in outcome.pods}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_the_plugin_keeps_the_contract(plugin):
    pods = [pod("whole", 1000, 2), pod("share", 300), pod("none"), pod("model", 500, models="T4"), pod("index", 500, index="1")]
    placed = {"0001-a": [pod("old", 700, index="0", nodeName="0001-a")]}
    cluster = a_cluster([node("0001-a", 2), node("0002-b", 4, "V100"), node("0003-c", 0)], placed)
    check_plugin(plugin(), pods=pods, cluster=cluster)


@pytest.mark.parametrize(("method", "whole"), [("best", "0000-n"), ("worst", "")])
def test_a_share_gets_its_device_by_the_method(method, whole):
    """The best device is the fullest one that fits, so one device stays unused; the worst one is the unused device."""
    placed = [pod("a", 300, index="0", nodeName="0000-n").pod]
    found = run([node("0000-n", 2), *placed, pod("share", 400).pod, pod("whole", 1000).pod], gpuSelMethod=method)
    assert (found["share"].node, found["whole"].node) == ("0000-n", whole)


def test_shares_fill_devices_and_whole_devices_must_be_unused():
    pods = [pod(f"s{i}", 500).pod for i in range(3)] + [pod("two", 1000, 2).pod, pod("one", 1000).pod, pod("last", 600).pod]
    found = run([node("0000-n", 3), *pods])
    assert {name: one.node for name, one in found.items()} == {
        "s0": "0000-n", "s1": "0000-n", "s2": "0000-n", "two": "", "one": "0000-n", "last": "",
    }  # fmt: skip
    assert "node(s) had too few GPUs with enough left" in found["two"].message


def test_models_and_numbers_of_devices_are_required():
    nodes = [node("0000-t4", 2), node("0001-v", 8, "V100")]
    found = run([*nodes, pod("v", 500, models="V100").pod, pod("eight", 1000, 8).pod, pod("odd", 500, models="A100").pod])
    assert [found[name].node for name in ("v", "eight", "odd")] == ["0001-v", "", ""]
    assert "node(s) had another model of GPU" in found["odd"].message


def test_devices_survive_a_restart_by_their_annotations():
    placed = [pod(f"p{i}", 1000, index=str(i), nodeName="0000-n").pod for i in range(3)]
    found = run([node("0000-n", 4), *placed, pod("x", 1000).pod, pod("y", 300).pod])
    assert (found["x"].node, found["y"].node) == ("0000-n", "")


def test_devices_of_pods_that_ended_are_forgotten():
    arriving = PodArrivals(Regular(10.0), pod("share", 400).pod, lifetime=35.0)
    sim = Simulation.from_objects(node("0000-n", 2), config=config(), plugins=PLUGINS)
    sim.use(arriving)
    totals = sim.run(until=4000.0)
    table = device_table(sim.engine.scheduler)
    assert totals.finished > 390
    assert len(table.assumed) + len(table._known) < 200
    present = {one.uid for one in sim.engine.pods.values()}
    assert present <= table.assumed.keys()
    assert table.of(sim.engine.scheduler.snapshot.nodes.one(0)) == [200, 200]  # four shares of 400


def test_an_invalid_request_says_what_is_wrong():
    found = run([node("0000-n", 2), pod("p", 500, 2).pod])
    assert "request part of one device only" in found["p"].message


@pytest.mark.parametrize("policy", ["BestFitScore", "DotProductScore", "GpuPackingScore", "GpuClusteringScore"])
def test_policies_equal_plain_loops_over_random_clusters(policy):
    chance = random.Random(policy)
    for _ in range(4):
        sizes = [chance.choice([1, 2, 4, 8]) for _ in range(6)]
        nodes = [node(f"{place:04}-n", gpus, cpu=str(chance.choice([32, 64, 96]))) for place, gpus in enumerate(sizes)]
        wanted = [
            (chance.choice([0, 200, 500, 700, 1000]), chance.choice([1, 1, 2]), chance.choice([1, 4, 8])) for _ in range(40)
        ]
        wanted = [(milli, count if milli == 1000 else 1, cpu) for milli, count, cpu in wanted]
        pods = [pod(f"p{i:02}", milli, count, cpu=str(cpu)).pod for i, (milli, count, cpu) in enumerate(wanted)]
        found = run([*nodes, *pods], policy)
        plain = Plain([int(one.status.allocatable["cpu"]) * 1000 for one in nodes], sizes, policy)
        expected = [plain.place(*one) for one in wanted]
        assert [found[f"p{i:02}"].node for i in range(40)] == ["" if row is None else f"{row:04}-n" for row in expected]


def test_fgd_equals_plain_loops_over_random_clusters():
    chance = random.Random(3)
    for _ in range(4):
        classes = [
            (chance.choice([1, 4, 8]) * 1000, *chance.choice([(0, 0), (200, 1), (500, 1), (1000, 1), (1000, 2)]))
            for _ in range(6)
        ]
        typical = [{"cpuMilli": cpu, "gpuMilli": milli, "gpuCount": count, "frequency": 1 / 6} for cpu, milli, count in classes]
        sizes = [chance.choice([1, 2, 4]) for _ in range(5)]
        nodes = [node(f"{place:04}-n", gpus, cpu=str(chance.choice([16, 32]))) for place, gpus in enumerate(sizes)]
        wanted = [
            (*chance.choice([(0, 1), (200, 1), (300, 1), (700, 1), (1000, 1), (1000, 2)]), chance.choice([1, 3]))
            for _ in range(40)
        ]
        plain = PlainFGD([int(one.status.allocatable["cpu"]) * 1000 for one in nodes], sizes, classes)
        text = json.loads(config("FGDScore", gpuSelMethod="FGDScore"))
        text["profiles"][0]["pluginConfig"].append({"name": "FGDScore", "args": {"typicalPods": typical}})
        pods = [pod(f"p{i:02}", milli, count, cpu=str(cpu)).pod for i, (milli, count, cpu) in enumerate(wanted)]
        outcome = simulate([*nodes, *pods], Options(config=json.dumps(text).encode(), plugins=PLUGINS))
        found = {one.name: one.node for one in outcome.pods}
        expected = [plain.place(*one) for one in wanted]
        assert [found[f"p{i:02}"] for i in range(40)] == ["" if row is None else f"{row:04}-n" for row in expected]


@pytest.mark.parametrize("limits", [{}, {"devices._MOST_NUMBERS": 0, "fgd._MOST_KEPT": 0}], ids=["kept", "forgotten"])
def test_fgd_scores_all_nodes_as_one_by_one(limits):
    """Also when what is kept by number is dropped in every call."""
    typical = [TypicalPodArgs(cpu_milli=4000, gpu_milli=milli, gpu_count=1, frequency=0.5) for milli in (300, 1000)]
    plugin = FGDScore(FGDScoreArgs(typical_pods=tuple(typical)))
    cluster = a_cluster([node("a", 2), node("b", 4, "V100", cpu="8"), node("c", 4), node("d", 0)])
    plugin.attach(cluster)
    view, chance = cluster.snapshot.nodes, random.Random(1)
    with ExitStack() as block:
        for name, value in limits.items():
            block.enter_context(patch(f"moorage.plugins.gpu_sharing.{name}", value))
        for at in range(12):
            taken = pod(f"p{at}", 300, index=str(chance.randrange(4)), cpu="2")
            cluster.place(taken, chance.choice("abc"))
            for wanted in (pod("share", 300), pod("whole", 1000, cpu="6")):
                assert plugin.score(wanted, view).tolist() == [plugin.score_node(wanted, one) for one in view]


class PlainFGD:
    """FGD as plain loops, with the device of each share. Classes are (milli-CPU, milli, count), all of frequency 1/6."""

    def __init__(self, cpu, gpus, classes):
        self.cpu, self.left, self.classes = cpu, [[1000] * count for count in gpus], classes

    def place(self, milli, count, cpu):
        best = None
        for row, left in enumerate(self.left):
            enough = [device for device, one in enumerate(left) if one >= milli] if milli else []
            if self.cpu[row] < cpu * 1000 or (milli and len(enough) < count):
                continue
            choices = [[device] for device in enough] if 0 < milli < 1000 else [enough[: count if milli else 0]]
            scores = [self.score(row, devices, milli, cpu * 1000) for devices in choices]
            if best is None or max(scores) > best[0]:
                best = max(scores), row, choices[scores.index(max(scores))]
        if best is None:
            return None
        _, row, devices = best
        self.cpu[row] -= cpu * 1000
        for device in devices:
            self.left[row][device] -= milli
        return row

    def score(self, row, devices, milli, cpu):
        after = [one - milli * (device in devices) for device, one in enumerate(self.left[row])]
        gain = self.lost(self.cpu[row], self.left[row]) - self.lost(self.cpu[row] - cpu, after)
        return int(100 / (1 + math.exp(-gain / 1000)))

    def lost(self, cpu, left):
        total = 0.0
        for wants_cpu, milli, count in self.classes:
            fits = milli and cpu >= wants_cpu and sum(one >= milli for one in left) >= count
            total += sum(one for one in left if not fits or one < milli) / 6
        return total


class Plain:
    """The policies as plain loops over lists."""

    def __init__(self, cpu, gpus, policy):
        self.cpu, self.left, self.policy = cpu, [[1000] * count for count in gpus], policy
        self.classes = [[] for _ in gpus]

    def place(self, milli, count, cpu):
        cpu *= 1000
        fits = [
            row for row in range(len(self.cpu)) if self.cpu[row] >= cpu and self.enough(row, milli) >= (count if milli else 0)
        ]
        if not fits:
            return None
        scores = {row: self.score(row, milli, count, cpu) for row in fits}
        if self.policy == "BestFitScore":
            low, high = min(scores.values()), max(scores.values())
            scores = {row: (one - low) * 100 // (high - low) if high > low else 0 for row, one in scores.items()}
        row = min(fits, key=lambda one: (-scores[one], one))
        self.cpu[row] -= cpu
        if milli:
            self.classes[row].append("share" if milli < 1000 else count)
            order = sorted(range(len(self.left[row])), key=lambda device: (self.left[row][device], device))
            devices = [device for device in order if self.left[row][device] >= milli][:count]
            for device in devices:
                self.left[row][device] -= milli
        return row

    def enough(self, row, milli):
        return sum(left >= milli for left in self.left[row])

    def score(self, row, milli, count, cpu):
        left, total, wanted = self.left[row], sum(self.left[row]), milli * count
        if self.policy == "BestFitScore":
            return int(100 * (1 - (0.5 * (self.cpu[row] - cpu) / 128_000 + 0.5 * (total - wanted) / 8000)))
        if self.policy == "DotProductScore":
            return int(100 * (1 - (self.cpu[row] / 128_000 * (cpu / 128_000) + total / 8000 * (wanted / 8000)) / 2))
        if not milli:
            return 0
        if self.policy == "GpuClusteringScore":
            own = "share" if milli < 1000 else count
            held = set(self.classes[row])
            bonus = 25 if not held else 0 if own not in held else 75 if held == {own} else 50
            return 25 * (8000 - total) // 8000 + bonus
        unused = left.count(1000)
        if unused == len(left):
            return max(33 - unused, unused)
        taken = [one for one in sorted(left) if one >= milli][:count]
        if 1000 in taken:
            return max(50 - taken.count(1000), 33)
        return max(100 - sum(one * 100 // 1000 for one in taken) // 10, 50)
