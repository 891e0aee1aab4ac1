"""A simulation is recorded as a log, which says the same as the simulation."""

from __future__ import annotations

import json

import pytest

import moorage
from moorage.api.core import Node, Pod
from moorage.basis.recording.log_reader import ClusterLog
from moorage.errors import InputError
from moorage.laboratory.dynamics import AtTimes, ClusterAutoscaler, Fixed, NodePool, PodArrivals, PodKind
from moorage.laboratory.recording.run_recorder import RunRecorder
from moorage.testing.builders import a_node, a_pod

START_S = 1_786_924_800.0
SHAPE = {"status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "20"}}}


def run_into(directory) -> tuple[moorage.Simulation, ClusterLog]:
    simulation = moorage.Simulation.from_objects([a_node("n0", allocatable={"cpu": "1", "memory": "1Gi", "pods": 5})], seed=3)
    pod = a_pod("web", {"app": "web"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "3"}}}]).pod
    simulation.use(PodArrivals(AtTimes([10.0, 20.0, 30.0]), [PodKind(pod, lifetime=Fixed(600.0))]))
    pools = [NodePool(name="big", node=SHAPE, provision_s=60.0)]
    simulation.use(ClusterAutoscaler(pools, flags=["--scale-down-unneeded-time=2m"]))
    recorder = simulation.use(RunRecorder(directory, START_S))
    simulation.run(until=3600.0)
    recorder.close()
    return simulation, ClusterLog(directory)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return run_into(tmp_path_factory.mktemp("runs") / "log")


def names(log: ClusterLog, second: float, kind: str) -> dict[str, dict]:
    objects = log.state_at(round((START_S + second) * 1e6)).objects
    return {key: json.loads(body) for (found, key), (_, body) in objects.items() if found == kind}


def test_a_log_has_what_came_and_went(ran):
    simulation, log = ran
    first, last = log.span()
    assert first == START_S * 1e6
    assert names(log, 5, "Pod") == {}
    waiting, placed = names(log, 35, "Pod"), names(log, 200, "Pod")
    assert [one["spec"].get("nodeName", "") for one in waiting.values()] == ["", "", ""]
    assert sorted(one["spec"]["nodeName"] for one in placed.values()) == ["big-new-1", "big-new-2", "big-new-3"]
    assert sorted(names(log, 200, "Node")) == ["big-new-1", "big-new-2", "big-new-3", "n0"]
    born = [one["metadata"]["creationTimestamp"] for name, one in sorted(names(log, 200, "Node").items()) if name != "n0"]
    assert born == ["2026-08-17T00:01:20Z", "2026-08-17T00:01:30Z", "2026-08-17T00:01:40Z"]
    assert sorted(names(log, (last - first) / 1e6, "Node")) == sorted(node.name for node in simulation.table.nodes) == ["n0"]


def test_the_end_of_the_log_is_the_end_of_the_simulation(ran):
    simulation, log = ran
    objects = [one for one in simulation.objects() if isinstance(one, Node | Pod)]
    state = log.state_at(log.span()[1]).objects
    assert {(type(one).__name__, one.key) for one in objects} == {key for key in state if key[0] in {"Node", "Pod"}}


def test_a_directory_with_a_log_is_refused(ran, tmp_path):
    with pytest.raises(InputError, match="it has a log already"):
        RunRecorder(ran[1].directory, START_S)
