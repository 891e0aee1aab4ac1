"""Comparisons on traces: the runs are those of each side alone, paired by seed."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.comparison import CompareSetting
from moorage.simulator.trace import Trace, simulate_trace

PACKED = moorage.Options(config=Path("examples/config/most-allocated.yaml").read_bytes(), where="packed.yaml")
SIZE = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def trace():
    nodes = [{"metadata": {"name": f"n{at}"}, "status": {"allocatable": SIZE, "capacity": SIZE}} for at in range(3)]
    spec = [{"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]} for cpu in (1, 2, 3, 8)]
    pods = [(6.0 * at, {"metadata": {"name": f"p{at}"}, "spec": spec[at % 4]}, 60.0 + 7 * (at % 5)) for at in range(60)]
    return Trace.of(nodes, pods)


@pytest.mark.slow
def test_a_trace_is_compared_by_seed():
    found = moorage.compare(trace(), b=PACKED, seeds=range(5), setting=CompareSetting(gates=("jct.mean > +0",)))
    assert [gate.metric for gate in found.gates] == ["jct.mean"]
    for seed in range(5):
        for side, options in enumerate((moorage.Options(seed=seed), moorage.Options(PACKED.config, seed=seed))):
            run = simulate_trace(trace().shuffle(seed), options)
            done = [pod.ended_s - pod.arrived_s for pod in run.pods]
            assert found.runs[side][seed].metrics["jct.mean"] == pytest.approx(sum(done) / len(done))
    metric = found.metrics["jct.mean"]
    assert metric.runs == 5
    assert metric.difference == pytest.approx(metric.b - metric.a)


@pytest.mark.slow
def test_processes_make_the_same_runs():
    here = moorage.compare(trace(), b=PACKED, seeds=[0, 1])
    with ProcessPoolExecutor(1) as executor:
        there = moorage.compare(trace(), b=PACKED, seeds=[0, 1], executor=executor)
    assert there.to_dict() == here.to_dict()


def test_what_does_not_go_with_a_trace_is_refused():
    with pytest.raises(InputError, match="on its own nodes"):
        moorage.compare(trace(), seeds=[0], setting=CompareSetting(replace_all=True))
