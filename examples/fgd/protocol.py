"""The protocol of the experiment: lists of nodes and pods, their order and number, and one run.

A run places the pods of a list one after the other until 130 % of the cluster's GPUs were requested. No pod ends; a pod that
does not fit is deleted and counts as arrived. After every pod it records what arrived, what is in use and how fragmented the
rest is.
"""

import csv
import gzip
import json
import random
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from moorage.api.core import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from moorage.api.meta import ObjectMeta
from moorage.core.engine.facts import Seen
from moorage.framework.plugin_runner import ask
from moorage.plugins.gpu_sharing.devices import GPU_COUNT, GPU_MILLI, GPU_MODEL, WHOLE, device_table
from moorage.plugins.gpu_sharing.fgd import FGDScore
from moorage.plugins.gpu_sharing.fragmentation import FragmentModel, PodClass, typical_pods
from moorage.plugins.gpu_sharing.node_order import WEIGHT, NodeOrderHigh, NodeOrderLow
from moorage.plugins.gpu_sharing.open_gpu_share import OpenGpuShare
from moorage.plugins.gpu_sharing.policies import BestFitScore, DotProductScore, GpuClusteringScore, GpuPackingScore, RandomScore
from moorage.plugins.gpu_sharing.power import PowerScore, cpu_watts, gpu_watts
from moorage.simulator.simulate import Options, prepare
from moorage.state.pod_info import PodInfo

#: Policy → its plugin, and the method that gives a share its device.
POLICIES = {
    "Random": (RandomScore, "random"),
    "DotProd": (DotProductScore, "best"),
    "GpuClustering": (GpuClusteringScore, "best"),
    "GpuPacking": (GpuPackingScore, "best"),
    "BestFit": (BestFitScore, "best"),
    "FGD": (FGDScore, "FGDScore"),
    "PWR": (PowerScore, "PowerScore"),
}
LISTS = (
    "default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100", "multigpu20",
    "multigpu30", "multigpu40", "multigpu50", "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33",
)  # fmt: skip
#: Raise this when the results of a run change, so that sweeps repeat stored runs.
REVISION = "2"
#: The share of the cluster's GPUs that all pods of a run request together.
LOAD = 1.3
MAX_PODS = 1001
SCHEDULER = "simon-scheduler"


@dataclass(frozen=True)
class Task:
    """A row of a list of pods."""

    name: str
    cpu_milli: int
    memory_mib: int
    count: int
    milli: int
    models: str

    @property
    def pod_class(self):
        return PodClass(self.cpu_milli, self.milli, self.count, self.models)

    @property
    def gpu_milli(self):
        return self.count * self.milli


@dataclass(frozen=True)
class Record:
    """The state after one pod: requested milli-GPU so far, milli-GPU in use, the fragment amount in milli-GPU, and watts."""

    arrived: int
    used: int
    fragments: float
    watts: int


def list_file(path):
    """Return the path of a list, which may be compressed."""
    packed = Path(f"{path}.gz")
    return packed if not Path(path).exists() and packed.exists() else Path(path)


@cache
def read_rows(path):
    """Return the rows of a list as dictionaries; each list is read once."""
    path = list_file(path)
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def read_tasks(path):
    return [
        Task(
            row["name"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]),
            min(int(row["gpu_milli"]), WHOLE) if int(row["num_gpu"]) else 0,
            (row.get("gpu_spec") or "") if int(row["num_gpu"]) else "",
        )
        for row in read_rows(path)
    ]  # fmt: skip


def arranged(tasks, capacity_milli, chance):
    """Return the tasks in random order, with copies appended or tasks removed until they request LOAD times the capacity."""
    ordered = sorted(tasks, key=lambda task: task.name)
    shuffled = ordered.copy()
    chance.shuffle(shuffled)
    total = sum(task.gpu_milli for task in shuffled)
    target = LOAD * capacity_milli
    while total > target:
        total -= shuffled.pop(chance.randrange(len(shuffled))).gpu_milli
    copies = []
    while total < target and (drawn := chance.choice(ordered)) and total + drawn.milli <= target:
        copies.append(drawn)
        total += drawn.gpu_milli
    return shuffled + copies


def make_nodes(rows, chance):
    """Return the nodes; the number in front of each name is its place in the order that breaks ties."""
    rows = sorted(rows, key=lambda row: row["sn"])
    places = list(range(len(rows)))
    chance.shuffle(places)
    return [_node(f"{place:04}-{row['sn']}", row) for place, row in zip(places, rows, strict=True)]


def _node(name, row):
    gpus = int(row["gpu"])
    amounts = {
        "cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", "pods": str(MAX_PODS),
        GPU_COUNT: str(gpus), GPU_MILLI: str(gpus * WHOLE),
    }  # fmt: skip
    labels = {GPU_MODEL: row["model"]} if row["model"] else {}
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=labels), status=NodeStatus(capacity=amounts, allocatable=amounts)
    )


def make_pod(number, task):
    """Return the pod of a task; pods of equal tasks share its parts."""
    name = f"{task.name}-{number}"
    spec, annotations = _spec(task.cpu_milli, task.memory_mib), _annotations(task.count, task.milli, task.models)
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=name, annotations=annotations), spec=spec)


@lru_cache(4096)
def _spec(cpu_milli, memory_mib):
    amounts = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    resources = ResourceRequirements(requests=amounts, limits=amounts)
    return PodSpec(scheduler_name=SCHEDULER, containers=[Container(name="c", resources=resources)])


@lru_cache(4096)
def _annotations(count, milli, models):
    if not count:
        return {}
    return {GPU_COUNT: str(count), GPU_MILLI: str(milli), **({GPU_MODEL: models} if models else {})}


def configuration(policy, typical, seed):
    """Return the scheduler's configuration: Fit and the GPU filter, one policy, and the fixed order among equals."""
    plugin, method = POLICIES[policy]
    config = [{"name": "OpenGpuShare", "args": {"gpuSelMethod": method, "seed": seed}}]
    if policy == "Random":
        config.append({"name": "RandomScore", "args": {"seed": seed}})
    if policy == "FGD":
        pods = [
            {"cpuMilli": one.cpu_milli, "gpuMilli": one.gpu_milli, "gpuCount": one.gpu_count, "gpuModels": one.gpu_models,
             "frequency": frequency}
            for one, frequency in typical
        ]  # fmt: skip
        config.append({"name": "FGDScore", "args": {"typicalPods": pods}})
    scores = [(plugin.name, WEIGHT), ("NodeOrderHigh", 101), ("NodeOrderLow", 1)]
    everything = [{"name": "*"}]
    return json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": SCHEDULER,
            "plugins": {
                "multiPoint": {"disabled": everything, "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]},
                "preFilter": {"enabled": [{"name": "NodeResourcesFit"}, {"name": "OpenGpuShare"}]},
                "filter": {"enabled": [{"name": "NodeResourcesFit"}, {"name": "OpenGpuShare"}]},
                "preScore": {"enabled": [{"name": "RandomScore"}] if policy == "Random" else []},
                "score": {"enabled": [{"name": name, "weight": weight} for name, weight in scores]},
                "reserve": {"enabled": [{"name": "OpenGpuShare"}]},
                "preBind": {"enabled": [{"name": "OpenGpuShare"}]},
            },
            "pluginConfig": config,
        }],
    }).encode()  # fmt: skip


class Run:
    """One list under one policy with one seed.

    No pod waits, and none ends, so each is decided by the scheduling cycle, gets its devices by Reserve and is counted on its
    node, without the queue and the binding of a simulation. ``SimulatedRun`` makes the same run as a whole simulation.
    """

    def __init__(self, nodes, tasks, policy, seed):
        typical = typical_pods([task.pod_class for task in tasks])
        chance = random.Random(seed)
        capacity = WHOLE * sum(int(row["gpu"]) for row in nodes)
        self.tasks = arranged(tasks, capacity, chance)
        options = Options(
            config=configuration(policy, typical, seed), seed=seed,
            plugins=(OpenGpuShare, FGDScore, BestFitScore, DotProductScore, GpuPackingScore, GpuClusteringScore, RandomScore,
                     PowerScore, NodeOrderHigh, NodeOrderLow),
        )  # fmt: skip
        self.simulation, _ = prepare(options)
        self.simulation.load(make_nodes(nodes, chance))
        self.model = FragmentModel(typical)
        self.devices = device_table(self.simulation.scheduler)
        self.most_devices = max(int(row["gpu"]) for row in nodes)
        self.failed = []

    def records(self):
        """Run, and return the record after each pod."""
        nodes = self.simulation.scheduler.snapshot.nodes
        row_of = nodes.table.row_of
        first = [self._state(node) for node in nodes]
        changes = []
        sums = []
        arrived = used = 0
        watts = [self._watts(node) for node in nodes]
        power = sum(watts)
        for number, task in enumerate(self.tasks):
            node = self.placed(make_pod(number, task))
            arrived += task.gpu_milli
            if node is None:
                self.failed.append(task)
            else:
                used += task.gpu_milli
                row = row_of[node]
                changes.append((number, row, self._state(nodes.one(row))))
                now = self._watts(nodes.one(row))
                power, watts[row] = power + now - watts[row], now
            sums.append((arrived, used, power))
        totals = self._totals(first, changes)
        return [Record(arrived, used, total, power) for (arrived, used, power), total in zip(sums, totals, strict=True)]

    def placed(self, pod):
        """Place a pod and return its node, or None if it does not fit."""
        scheduler, pod = self.simulation.scheduler, PodInfo(pod)
        profile = scheduler.profiles[SCHEDULER]
        found = self._decision(pod, profile)
        if found is None:
            return None
        node, states = found
        scheduler.cluster.assume(pod, node)
        for step in profile.at("reserve"):
            if ask(step, "reserve", states.get(step.name), pod, node) is not None:
                raise RuntimeError(f"{step.name} has no devices on {node} for {pod.key}")
        return node

    def _decision(self, pod, profile):
        """Return the node that the scheduling cycle chooses, with PreFilter's states; None if the pod does not fit."""
        scheduler = self.simulation.scheduler
        cycle, snapshot = scheduler.cycle, scheduler.snapshot
        quick = cycle.path(profile).decide_known(pod, snapshot, cycle.seed)
        if quick is not None:
            return snapshot.table.nodes[quick.row].name, quick.found.states
        fitting = cycle.path(profile).feasible(pod, snapshot)
        if fitting is not None and not fitting.number:
            return None
        decision = cycle.decide(profile, pod, snapshot)
        return None if decision.node is None else (decision.node, decision.found.states)

    def _totals(self, first, changes):
        """Yield the fragment amount of the cluster after each pod, from the states of nodes before and after changes."""
        amounts = self._amounts(first)
        after = self._amounts([state for _, _, state in changes])
        total, at = float(amounts.sum()), 0
        for number in range(len(self.tasks)):
            while at < len(changes) and changes[at][0] == number:
                row = changes[at][1]
                total += after[at] - amounts[row]
                amounts[row] = after[at]
                at += 1
            yield float(total)

    def _state(self, node):
        """Return the free milli-CPU of a node, the free milli-GPU of each device, and the model."""
        left = self.devices.of(node)
        cpu = node.allocatable("cpu") - node.requested("cpu")
        return cpu, (*left, *[0] * (self.most_devices - len(left))), node.labels.get(GPU_MODEL, "")

    def _watts(self, node):
        """Return the power of a node."""
        gpus = gpu_watts(self.devices.of(node), node.labels.get(GPU_MODEL, ""))
        return cpu_watts(node.requested("cpu"), node.allocatable("cpu")) + gpus

    def _amounts(self, states, at_once=512):
        """Return the fragment amounts of nodes in given states."""
        found = [np.zeros(0)]
        for start in range(0, len(states), at_once):
            cpu, left, models = zip(*states[start : start + at_once], strict=True)
            found.append(self.model.amounts(np.array(cpu), np.array(left), models))
        return np.concatenate(found)


class SimulatedRun(Run):
    """The same run with the queue, the binding and the API server of a simulation, which takes twice the time."""

    def placed(self, pod):
        """Place a pod and return its node, or None; a pod that does not fit is deleted."""
        simulation = self.simulation
        simulation.tell([Seen(pod)])
        simulation.attempt(pod)
        node = simulation.records[pod.metadata.uid].node
        if not node:
            simulation.delete(pod.metadata.uid)
        return node or None
