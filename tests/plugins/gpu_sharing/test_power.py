"""PowerScore: watts by hand, the score against the plain growth of power, and devices that plugins choose."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.api.core import Node, NodeStatus
from moorage.api.meta import ObjectMeta
from moorage.framework.points import Attachable, ScorePlugin
from moorage.plugins.gpu_sharing.devices import GPU_COUNT, GPU_INDEX, GPU_MILLI, GPU_MODEL, device_table
from moorage.plugins.gpu_sharing.open_gpu_share import OpenGpuShare
from moorage.plugins.gpu_sharing.power import PowerScore, cpu_watts, gpu_watts

WATTS = {
    "an idle node": (0, 64_000, [1000, 1000], "T4", 30 + 20),
    "one core": (1, 64_000, [1000, 1000], "T4", 135 + 20),
    "a package and a bit": (32_001, 96_000, [], "T4", 255),
    "parts of one device": (0, 32_000, [540, 1000], "P100", 15 + 275),
    "an unknown model": (0, 32_000, [0], "H900", 15 + 300),
}


@pytest.mark.parametrize(("used", "whole", "left", "model", "watts"), WATTS.values(), ids=WATTS)
def test_watts(used, whole, left, model, watts):
    assert cpu_watts(used, whole) + gpu_watts(left, model) == watts


def node(name, cpu, gpus, model):
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110", GPU_COUNT: str(gpus), GPU_MILLI: str(1000 * gpus)}
    meta = ObjectMeta(name=name, uid=name, labels={GPU_MODEL: model})
    return Node(metadata=meta, status=NodeStatus(capacity=amounts, allocatable=amounts))


def pod(name, cpu, count=0, milli=0):
    notes = {GPU_COUNT: str(count), GPU_MILLI: str(milli)} if count else {}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def configuration(score, method):
    config = [{"name": "OpenGpuShare", "args": {"gpuSelMethod": method}}]
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": score}]}
    plugins = {"multiPoint": {"enabled": [{"name": "OpenGpuShare"}]}, "score": only}
    profiles = [{"plugins": plugins, "pluginConfig": config}]
    return json.dumps(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles}
    ).encode()


def cluster(nodes, method="PowerScore", score=PowerScore):
    options = {"config": configuration(score.name, method), "plugins": (OpenGpuShare, score)}
    return moorage.Cluster.from_objects(nodes, **options)


NODES = [("a", 64, 2, "T4"), ("b", 64, 2, "V100M32"), ("c", 32, 0, ""), ("d", 96, 4, "P100")]
tasks = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from([(0, 0), (1, 200), (1, 700), (1, 1000), (2, 1000)])), max_size=12
)


@settings(max_examples=15)
@given(tasks)
def test_each_pod_goes_where_power_grows_least(rows):
    """The plain rule: place each pod on every node by hand, add up all watts, and compare with the node that it got."""
    state = {name: (1000 * cpu, 0, [1000] * gpus, model) for name, cpu, gpus, model in NODES}
    held = cluster([node(*one) for one in NODES])
    for number, (cpu, (count, milli)) in enumerate(rows):
        growth = {}
        for name, (whole, used, left, model) in state.items():
            after = placed(left, count, milli)
            if after is not None and used + 1000 * cpu <= whole:
                before = cpu_watts(used, whole) + gpu_watts(left, model)
                growth[name] = cpu_watts(used + 1000 * cpu, whole) + gpu_watts(after, model) - before
        held.add(pod(f"p{number}", cpu, count, milli))
        (found,) = held.schedule()
        if not growth:
            assert not found.node
            return
        least, most = min(growth.values()), max(growth.values())
        assert 100 * (growth[found.node] - least) < max(most - least, 1)  # scores are whole numbers of percent
        whole, used, left, model = state[found.node]
        state[found.node] = whole, used + 1000 * cpu, placed(left, count, milli), model


def placed(left, count, milli):
    """Return what is left of the devices with a pod; None if it does not fit."""
    if not count:
        return left
    fitting = sorted((at for at, one in enumerate(left) if one >= milli), key=lambda at: (left[at] == 1000, left[at], at))
    if len(fitting) < count:
        return None
    return [one - milli if at in fitting[:count] else one for at, one in enumerate(left)]


class LastDevice(ScorePlugin, Attachable):
    """Chooses the device with the highest number."""

    name = "LastDevice"

    def attach(self, handle):
        device_table(handle).choosers[self.name] = lambda pod, request, left, node: len(left) - 1

    def score(self, pod, nodes):
        return nodes.zeros()


def test_a_plugin_of_the_user_chooses_the_device():
    held = cluster([node("d", 96, 4, "P100")], "LastDevice", LastDevice)
    held.add(pod("p", 1, 1, 300))
    held.schedule()
    (placed_pod,) = held.input().pods
    assert placed_pod.metadata.annotations[GPU_INDEX] == "3"


def test_a_method_that_no_plugin_has_is_named():
    held = cluster([node("d", 96, 4, "P100")], "Nearest")
    held.add(pod("p", 1, 1, 300))
    (found,) = held.schedule()
    assert not found.node
    assert "gpuSelMethod Nearest" in found.message
