"""Fragmentation of shared GPUs: the check values of the published experiment, and plain loops."""

import csv
import gzip
from bisect import bisect_right
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.plugins.gpu_sharing.fgd import FGDScore, FGDScoreArgs, TypicalPodArgs
from moorage.plugins.gpu_sharing.fragmentation import CASES, FragmentModel, PodClass, TypicalPod, typical_pods

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the traces are not beside the project")

#: List → pods, classes, typical classes, fragment amount of the empty cluster in milli.
LISTS = {
    "default": (8152, 91, 35, 866_232.55),
    "cpu050": (7439, 89, 35, 344_952.23),
    "cpu100": (7853, 91, 35, 657_379.98),
    "cpu200": (8832, 90, 34, 1_293_221.52),
    "cpu250": (9420, 91, 34, 1_607_291.06),
    "gpushare40": (8152, 88, 36, 862_220.68),
    "gpushare60": (8152, 85, 33, 858_375.85),
    "gpushare80": (8152, 80, 32, 851_773.23),
    "gpushare100": (8152, 49, 21, 847_450.92),
    "gpuspec10": (8152, 249, 74, 1_179_977.54),
    "gpuspec20": (8152, 285, 102, 1_605_509.88),
    "gpuspec25": (8152, 312, 113, 1_794_185.93),
    "gpuspec33": (8152, 330, 127, 2_204_453.28),
    "multigpu20": (8324, 91, 38, 870_998.99),
    "multigpu30": (8508, 91, 40, 873_714.46),
    "multigpu40": (8746, 91, 42, 879_883.41),
    "multigpu50": (9061, 91, 43, 915_078.28),
}


def rows(name):
    path = TRACES / f"openb_{name}.csv"
    if path.exists():
        with path.open(encoding="utf-8") as file:
            return list(csv.DictReader(file))
    with gzip.open(f"{path}.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def classes(name):
    return [
        PodClass(
            int(row["cpu_milli"]), min(int(row["gpu_milli"]), 1000) if int(row["num_gpu"]) else 0, int(row["num_gpu"]),
            row.get("gpu_spec") or "",
        )
        for row in rows(f"pod_list_{name}")
    ]  # fmt: skip


@needs_traces
@pytest.mark.parametrize("name", LISTS)
def test_the_check_values_of_a_list(name):
    pods, nodes = classes(name), rows("node_list_gpu_node")
    typical = typical_pods(pods)
    left = np.zeros((len(nodes), 8), dtype=np.int64)
    for i, node in enumerate(nodes):
        left[i, : int(node["gpu"])] = 1000
    cpu = np.array([int(node["cpu_milli"]) for node in nodes])
    total = FragmentModel(typical).amounts(cpu, left, [node["model"] for node in nodes]).sum()
    assert (len(pods), len(set(pods)), len(typical), round(float(total), 2)) == LISTS[name]


@needs_traces
def test_the_check_values_of_nodes_and_scores():
    typical = typical_pods(classes("default"))
    assert [round(one.frequency, 6) for one in typical[:3]] == [0.134818, 0.112542, 0.077131]
    model = FragmentModel(typical)
    nodes = [
        (64_000, [1000, 1000], 271.9547), (0, [1000, 1000], 2000), (64_000, [300, 1000], 427.5174),
        (96_000, [1000] * 8, 1087.8187), (8_000, [1000] * 8, 4841.6173), (96_000, [500] * 8, 3260.3657),
    ]  # fmt: skip
    for cpu, left, amount in nodes:
        assert round(float(model.amounts(np.array([cpu]), np.array([left]), [""])[0]), 4) == amount
    plugin = FGDScore(
        FGDScoreArgs(typical_pods=tuple(TypicalPodArgs(**one.pod._asdict(), frequency=one.frequency) for one in typical))
    )
    kinds = {(4000, 460, 1): 42, (8000, 1000, 1): 53, (32_000, 0, 0): 50, (64_000, 1000, 8): 74}
    forms, steps = plugin._forms, plugin._steps
    empty = forms.number(((1000,) * 8, ""))
    found = {
        (cpu, milli, count): forms.score((milli, count), empty, *(bisect_right(steps, left) for left in (96_000, 96_000 - cpu)))
        for cpu, milli, count in kinds
    }
    assert {kind: one.score for kind, one in found.items()} == kinds


PODS = st.builds(
    PodClass, st.integers(0, 20) , st.sampled_from([0, 300, 500, 1000]), st.integers(1, 3), st.sampled_from(["", "A", "A|B"])
).map(lambda pod: pod if pod.gpu_milli else pod._replace(gpu_count=0, gpu_models=""))  # fmt: skip
NODES = st.tuples(st.integers(0, 20), st.lists(st.sampled_from([0, 200, 300, 500, 1000]), min_size=3, max_size=3),
                  st.sampled_from(["", "A", "B"]))  # fmt: skip


@given(st.lists(PODS, min_size=1, max_size=8), st.lists(NODES, min_size=1, max_size=5))
def test_fragments_equal_plain_loops(pods, nodes):
    typical = [TypicalPod(pod, 1 / len(pods)) for pod in pods]
    cpu, left, models = zip(*nodes, strict=True)
    found = FragmentModel(typical).fragments(np.array(cpu), np.array(left), models)
    for row, node in zip(found, nodes, strict=True):
        assert np.allclose(row, list(plainly(typical, *node).values()))


@settings(max_examples=25)
@given(st.lists(PODS, min_size=1, max_size=8), NODES)
def test_amounts_by_cpu_equal_those_of_each_cpu(pods, node):
    model = FragmentModel([TypicalPod(pod, 1 / len(pods)) for pod in pods])
    _, left, name = node
    by_cpu = model.amounts_by_cpu(left, name)
    for at in range(len(by_cpu)):
        assert model.amounts_by_cpu(left, name, slice(at, at + 2)) == by_cpu[at : at + 2]
    for cpu in range(-1, 22):
        [amount] = model.amounts(np.array([cpu]), np.array([left]), [name])
        assert by_cpu[bisect_right(model.cpu_steps.tolist(), cpu)] == amount


def plainly(typical, cpu, left, model):
    cases = dict.fromkeys(CASES, 0.0)
    for pod, frequency in typical:
        fits_cpu = cpu >= pod.cpu_milli
        if not pod.gpu_milli:
            cases["xl_satisfied" if fits_cpu else "xr_lack_cpu"] += frequency * sum(left)
        elif pod.gpu_models and model not in pod.gpu_models.split("|"):
            cases["no_access"] += frequency * sum(left)
        elif sum(milli >= pod.gpu_milli for milli in left) < pod.gpu_count:
            cases["q2_lack_gpu" if fits_cpu else "q1_lack_both"] += frequency * sum(left)
        elif not fits_cpu:
            cases["q4_lack_cpu"] += frequency * sum(left)
        else:
            useless = sum(milli for milli in left if milli < pod.gpu_milli)
            cases["q2_lack_gpu"] += frequency * useless
            cases["q3_satisfied"] += frequency * (sum(left) - useless)
    return cases


def test_typical_pods_cover_the_share_and_sum_to_one():
    pods = [PodClass(1, 1000, 1)] * 6 + [PodClass(2, 0, 0)] * 3 + [PodClass(3, 500, 1)]
    assert typical_pods(pods, covered=0.9) == (
        TypicalPod(pods[0], pytest.approx(2 / 3)),
        TypicalPod(pods[6], pytest.approx(1 / 3)),
    )
    assert [one.frequency for one in typical_pods(pods)] == [0.6, 0.3, 0.1]
