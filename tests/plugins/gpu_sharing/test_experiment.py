"""The experiment in examples/fgd: its short way places pods as a whole simulation does."""

import sys
from pathlib import Path

import pytest

FGD = Path(__file__).resolve().parents[3] / "examples" / "fgd"


@pytest.fixture
def protocol(monkeypatch):
    monkeypatch.syspath_prepend(str(FGD))
    import protocol

    yield protocol
    del sys.modules["protocol"]


@pytest.mark.parametrize("policy", ["Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD"])
def test_runs_equal_those_of_a_whole_simulation(protocol, policy):
    nodes = protocol.read_rows(FGD / "small" / "openb_node_list_gpu_node.csv")[:10]
    tasks = protocol.read_tasks(FGD / "small" / "openb_pod_list_default.csv")
    short, whole = (kind(nodes, tasks, policy, seed=7) for kind in (protocol.Run, protocol.SimulatedRun))
    assert short.records() == whole.records()
    assert short.failed == whole.failed
    assert 0 < len(short.failed) < len(short.tasks)
    assert devices(short) == devices(whole)


def devices(run):
    """Return what is left on the devices of each node, by name."""
    nodes = run.simulation.scheduler.snapshot.nodes
    return {node.name: run.devices.of(node) for node in nodes}
