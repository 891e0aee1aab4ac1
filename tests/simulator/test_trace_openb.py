"""Test the openb trace format: how lines become objects, and which errors name their position."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.validation import validate
from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError
from moorage.simulator.trace import GPU_MILLI, WHOLE_GPU
from moorage.simulator.traces.openb import QOS, read_openb
from moorage.simulator.traces.task_tables import GPU_MODEL

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "trace-openb"
SHARED = Path(os.environ.get("MOORAGE_SHARED", ROOT.parent / "shared")) / "traces"

NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
SHORT = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
LONG = f"{SHORT},gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def trace(nodes: str | bytes = NODE_HEADER, pods: str | bytes = SHORT, **more):
    files = [text if isinstance(text, bytes) else text.encode() for text in (nodes, pods)]
    return read_openb(InputFile("nodes.csv", files[0]), InputFile("pods.csv", files[1]), **more)


def node(line: str, **more):
    return trace(f"{NODE_HEADER}\n{line}\n", **more).nodes[0]


def arrival(line: str, **more):
    header = LONG if line.count(",") > 4 else SHORT
    return trace(pods=f"{header}\n{line}\n", **more).arrivals[0]


NODES = {  # line, whole GPUs? → allocatable, labels
    "without GPUs": ("n-0,32000,262144,0,", False, {"cpu": "32000m", "memory": "262144Mi", "pods": "110"}, {}),
    "with shared GPUs": (
        "n-0,96000,1024,8,V100M32",
        False,
        {"cpu": "96000m", "memory": "1024Mi", "pods": "110", GPU_MILLI: "8000"},
        {GPU_MODEL: "V100M32"},
    ),
    "with whole GPUs": (
        "n-0,96000,1024,8,V100M32",
        True,
        {"cpu": "96000m", "memory": "1024Mi", "pods": "110", WHOLE_GPU: "8"},
        {GPU_MODEL: "V100M32"},
    ),
}


@pytest.mark.parametrize(("line", "whole", "amounts", "labels"), NODES.values(), ids=NODES)
def test_machines(line, whole, amounts, labels):
    found = node(line, whole_gpus=whole)
    assert found.status.allocatable == found.status.capacity == amounts
    assert found.labels == {"kubernetes.io/hostname": "n-0", **labels}
    assert validate(found) == []


TASKS = {  # line, whole GPUs? → requests, models
    "without GPUs": ("p-0,500,1024,0,0", False, {"cpu": "500m", "memory": "1024Mi"}, None),
    "a share": ("p-0,500,1024,1,460", False, {"cpu": "500m", "memory": "1024Mi", GPU_MILLI: "460"}, None),
    "a share rounded up to a whole GPU": (
        "p-0,500,1024,1,460",
        True,
        {"cpu": "500m", "memory": "1024Mi", WHOLE_GPU: "1"},
        None,
    ),
    "several": ("p-0,500,1024,8,1000", False, {"cpu": "500m", "memory": "1024Mi", GPU_MILLI: "8000"}, None),
    "models": (
        "p-0,500,1024,1,1000,T4|P100,LS,Running,5,9,6",
        False,
        {"cpu": "500m", "memory": "1024Mi", GPU_MILLI: "1000"},
        ("T4", "P100"),
    ),
}


@pytest.mark.parametrize(("line", "whole", "requests", "models"), TASKS.values(), ids=TASKS)
def test_tasks(line, whole, requests, models):
    pod = arrival(line, whole_gpus=whole).pod
    resources = pod.spec.containers[0].resources
    assert resources.requests == requests
    assert set(resources.limits) == set(requests) & {GPU_MILLI, WHOLE_GPU}
    assert validate(pod) == []
    if models is None:
        assert pod.spec.affinity is None
        return
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    (asked,) = required.node_selector_terms[0].match_expressions
    assert (asked.key, asked.operator, asked.values) == (GPU_MODEL, "In", models)


TIMES = {  # creation, deletion, scheduled → time, duration
    "ran": ("5,100,10", 5.0, 90.0),
    "never scheduled": ("5,100,", 5.0, 95.0),
    "never deleted": ("5,,10", 5.0, None),
    "fractions of a second": ("0.5,2.75,0.5", 0.5, 2.25),
}


@pytest.mark.parametrize(("times", "time_s", "duration_s"), TIMES.values(), ids=TIMES)
def test_times(times, time_s, duration_s):
    found = arrival(f"p-0,1,1,0,0,,LS,Running,{times}")
    assert (found.time_s, found.duration_s) == (time_s, duration_s)
    assert found.pod.labels == {QOS: "LS"}


def test_arrivals_are_in_order_of_time_then_of_the_file_and_copies_share_a_spec():
    lines = ["a,1,1,0,0,,,X,9,10,9", "b,1,1,0,0,,,X,5,10,9", "c,1,1,0,0,,,X,5,10,9"]
    found = trace(pods="\n".join([LONG, *lines])).arrivals
    assert [one.pod.name for one in found] == ["b", "c", "a"]
    assert len({id(one.pod.spec) for one in found}) == 1


def test_the_short_layout_has_no_times():
    found = arrival("p-0,1,1,0,0")
    assert (found.time_s, found.duration_s, found.pod.labels) == (0.0, None, {})


READABLE = {
    "no final newline": f"{SHORT}\np-0,1,1,0,0",
    "CRLF": f"{SHORT}\r\np-0,1,1,0,0\r\n",
    "a byte order mark": f"\ufeff{SHORT}\np-0,1,1,0,0\n",
    "blank lines": f"{SHORT}\n\np-0,1,1,0,0\n\n",
    "quotes": f'{SHORT}\n"p-0","1",1,0,0\n',
}


@pytest.mark.parametrize("text", READABLE.values(), ids=READABLE)
def test_accepted_variants(text):
    assert [one.pod.name for one in trace(pods=text).arrivals] == ["p-0"]


REFUSED_PODS = {  # pod list → message
    "empty": ("", "pods.csv:1: the file is empty"),
    "another header": ("name,cpu\n", f"pods.csv:1: these columns are not known; expected {SHORT} or {LONG}"),
    "a missing cell": (f"{SHORT}\np-0,1,1,0\n", "pods.csv:2: expected 5 cells, found 4"),
    "an extra cell": (f"{SHORT}\np-0,1,1,0,0\np-1,1,1,0,0,\n", "pods.csv:3: expected 5 cells, found 6"),
    "no number": (f"{SHORT}\np-0,many,1,0,0\n", "pods.csv:2: cpu_milli: expected a whole number, found 'many'"),
    "below zero": (f"{SHORT}\np-0,-1,1,0,0\n", "pods.csv:2: cpu_milli: expected a whole number, found '-1'"),
    "a fraction": (f"{SHORT}\np-0,1.5,1,0,0\n", "pods.csv:2: cpu_milli: expected a whole number, found '1.5'"),
    "blanks": (f"{SHORT}\np-0, 1,1,0,0\n", "pods.csv:2: cpu_milli: expected a whole number, found ' 1'"),
    "non-ASCII digits": (f"{SHORT}\np-0,\u0661,1,0,0\n", "pods.csv:2: cpu_milli: expected a whole number"),
    "too many digits": (f"{SHORT}\np-0,{'9' * 5000},1,0,0\n", "pods.csv:2: cpu_milli: expected a whole number"),
    "NaN": (f"{LONG}\np-0,1,1,0,0,,LS,X,NaN,,\n", "pods.csv:2: creation_time: expected a number, found 'NaN'"),
    "more than a whole GPU": (f"{SHORT}\np-0,1,1,1,1001\n", "pods.csv:2: gpu_milli: expected at most 1000"),
    "a share of zero GPUs": (f"{SHORT}\np-0,1,1,0,500\n", "pods.csv:2: gpu_milli: expected none with num_gpu 0, found '500'"),
    "GPUs, no share": (f"{SHORT}\np-0,1,1,2,0\n", "pods.csv:2: gpu_milli: expected some with num_gpu 2, found '0'"),
    "no name": (f"{SHORT}\n,1,1,0,0\n", "pods.csv:2: name: expected a name"),
    "an invalid name": (f"{SHORT}\n../x,1,1,0,0\n", "pods.csv:2: name: expected a name"),
    "a duplicate name": (
        f"{SHORT}\np-0,1,1,0,0\np-0,1,1,0,0\n",
        "pods.csv:3: name: expected a name of its own, this is that of pods.csv:2, found 'p-0'",
    ),
    "an invalid model": (f"{LONG}\np-0,1,1,1,1000,T4|a b,LS,X,0,,\n", "pods.csv:2: gpu_spec: expected what a label can hold"),
    "an empty model": (f"{LONG}\np-0,1,1,1,1000,T4|,LS,X,0,,\n", "pods.csv:2: gpu_spec: expected what a label can hold"),
    "deleted before its creation": (f"{LONG}\np-0,1,1,0,0,,LS,X,9,5,\n", "pods.csv:2: deletion_time: expected no less"),
    "scheduled before its creation": (f"{LONG}\np-0,1,1,0,0,,LS,X,9,,5\n", "pods.csv:2: scheduled_time: expected no less"),
    "not UTF-8": (f"{SHORT}\np-0,1,1,0,0\n".encode() + b"\xff", "pods.csv:3: this is not UTF-8"),
    "NUL": (f"{SHORT}\np\0,1,1,0,0\n", "pods.csv:2: this is not CSV"),
    "an unclosed quote": (f'{SHORT}\n"p-0,1,1,0,0\n', "pods.csv:2: this is not CSV"),
    "text after a quote": (f'{SHORT}\n"p-0"x,1,1,0,0\n', "pods.csv:2: this is not CSV"),
    "a cell that is too long": (f"{SHORT}\n{'x' * 200_000},1,1,0,0\n", "pods.csv:2: this is not CSV"),
}


@pytest.mark.parametrize(("pods", "message"), REFUSED_PODS.values(), ids=REFUSED_PODS)
def test_rejected_pod_lists(pods, message):
    with pytest.raises(InputError) as caught:
        trace(pods=pods)
    assert str(caught.value).startswith(message)


def test_rejected_node_lists():
    with pytest.raises(InputError, match=r"^nodes.csv:2: gpu: expected a whole number, found ''"):
        trace(f"{NODE_HEADER}\nn-0,1,1,,\n")
    with pytest.raises(InputError, match=r"^nodes.csv:3: sn: expected a name of its own"):
        trace(f"{NODE_HEADER}\nn-0,1,1,0,\nn-0,1,1,0,\n")
    with pytest.raises(InputError, match=r"^nodes.csv:2: model: expected what a label can hold"):
        trace(f"{NODE_HEADER}\nn-0,1,1,1,a b\n")


@settings(max_examples=50)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_rejected(data):
    for text in (data, f"{SHORT}\n".encode() + data):
        try:
            trace(pods=text)
        except InputError as error:
            assert str(error).startswith("pods.csv:")  # noqa: PT017


def test_the_example():
    found = read_openb(str(EXAMPLE / "nodes.csv"), str(EXAMPLE / "pods.csv"))
    assert [one.name for one in found.nodes] == ["cpu-0", "gpu-a-0", "gpu-a-1", "gpu-b-0"]
    assert [(one.pod.name, one.time_s, one.duration_s) for one in found.arrivals][-2:] == [
        ("train-1", 900.0, 3600.0),
        ("batch-0", 1200.0, 59.0),
    ]
    cluster = found.as_cluster()
    assert [pod.name for pod in cluster.pods] == [one.pod.name for one in found.arrivals]


def test_files_may_be_compressed_but_must_be_regular(tmp_path):
    packed = tmp_path / "pods.csv.gz"
    packed.write_bytes(gzip.compress((EXAMPLE / "pods.csv").read_bytes()))
    assert read_openb(str(EXAMPLE / "nodes.csv"), str(packed)) == read_openb(
        str(EXAMPLE / "nodes.csv"), str(EXAMPLE / "pods.csv")
    )
    with pytest.raises(InputError):
        read_openb(str(EXAMPLE / "nodes.csv"), str(tmp_path))
    with pytest.raises(InputError, match="No such file"):
        read_openb(str(tmp_path / "gone"), str(packed))


PUBLISHED = {  # pod list → tasks, thousandths of GPUs they request
    "openb_pod_list_default.csv": (8152, 6_086_800),
    "openb_pod_list_gpushare40.csv": (8152, 5_641_250),
    "openb_pod_list_gpuspec33.csv": (8152, 6_086_800),
    "openb_pod_list_multigpu20.csv": (8324, 7_086_800),
}


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published traces are not at {SHARED}")
@pytest.mark.parametrize(("name", "expected"), PUBLISHED.items(), ids=PUBLISHED)
def test_the_published_traces(name, expected):
    found = read_openb(str(SHARED / "openb_node_list_all_node.csv"), str(SHARED / name))
    asked = [int(one.pod.spec.containers[0].resources.requests.get(GPU_MILLI, 0)) for one in found.arrivals]
    assert (len(found.arrivals), sum(asked)) == expected
    assert len(found.nodes) == 1523
    assert sum(int(one.status.allocatable.get(GPU_MILLI, 0)) for one in found.nodes) == 6_212_000
    times = [one.time_s for one in found.arrivals]
    assert times == sorted(times)
    assert not [fault for one in found.arrivals[::50] for fault in validate(one.pod)]
