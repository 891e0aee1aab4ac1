"""Each form of usage gives the same amounts; what a source does not say is refused, not guessed."""

import json

import pytest

from moorage.basis.inputs.usage import read_usage, usage_of
from moorage.errors import InputError

METRICS = {
    "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1",
    "items": [{
        "metadata": {"name": "web-1", "namespace": "shop"},
        "containers": [
            {"name": "web", "usage": {"cpu": "250123456n", "memory": "300Mi"}},
            {"name": "log", "usage": {"cpu": "10m", "memory": "20480Ki"}},
        ],
    }],
}  # fmt: skip
PROMETHEUS = {
    "status": "success",
    "data": {"resultType": "vector", "result": [
        {"metric": {"__name__": "container_cpu_usage:rate5m", "namespace": "shop", "pod": "web-1", "container": "web"},
         "value": [1, "0.25"]},
        {"metric": {"__name__": "container_memory_working_set_bytes", "namespace": "shop", "pod": "web-1", "container": "web"},
         "value": [1, "314572800"]},
        {"metric": {"resource": "cpu", "namespace": "shop", "pod": "web-1", "container": "POD"}, "value": [1, "9"]},
    ]},
}  # fmt: skip
VPA = {
    "kind": "VerticalPodAutoscaler", "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
    "status": {"recommendation": {"containerRecommendations": [
        {"containerName": "web", "target": {"cpu": "163m", "memory": "262144k"}, "upperBound": {"cpu": "9"}},
    ]}},
}  # fmt: skip
KRR = {"scans": [{
    "object": {"namespace": "shop", "kind": "Deployment", "name": "web", "container": "web"},
    "recommended": {"requests": {"cpu": {"value": 0.163}, "memory": {"value": "?"}}},
}]}  # fmt: skip
MI = 1 << 20


def read(tmp_path, content, prefix="", **options):
    path = tmp_path / "usage"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_usage([f"{prefix}{path}"], **options)


def test_pod_metrics_are_read_by_container_and_summed_by_pod(tmp_path):
    usage = read(tmp_path, METRICS)
    assert usage.measured["shop/web-1", "web"] == {"cpu": 251, "memory": 300 * MI}
    assert usage.pods == usage_of([METRICS]) == {"shop/web-1": {"cpu": 261, "memory": 320 * MI}}


TOPS = {
    "containers": "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)\nshop web-1 web 250m 300Mi\nshop web-1 log 10m 20Mi\n",
    "pods": "NAMESPACE   NAME    CPU(cores)   MEMORY(bytes)\nshop        web-1   260m         320Mi\n",
}


@pytest.mark.parametrize("text", TOPS.values(), ids=TOPS)
def test_the_table_of_kubectl_top_is_read(tmp_path, text):
    assert read(tmp_path, text).pods == {"shop/web-1": {"cpu": 260, "memory": 320 * MI}}


def test_prometheus_vectors_are_read_by_the_name_of_the_series(tmp_path):
    assert read(tmp_path, PROMETHEUS).pods == {"shop/web-1": {"cpu": 250, "memory": 300 * MI}}


@pytest.mark.parametrize(("resource", "amount"), [("cpu", 19_000), ("memory", 20)])
def test_of_a_range_the_percentile_of_cpu_and_the_largest_memory_count(tmp_path, resource, amount):
    series = {"metric": {"namespace": "a", "pod": "p", "container": "c"}, "values": [[n, str(n)] for n in range(1, 21)]}
    usage = read(tmp_path, {"data": {"resultType": "matrix", "result": [series]}}, f"{resource}=", percentile=95)
    assert usage.measured == {("a/p", "c"): {resource: amount}}


def test_recommendations_are_by_workload(tmp_path):
    assert read(tmp_path, VPA).advised == {("shop/Deployment/web", "web"): {"cpu": 163, "memory": 262_144_000}}
    assert read(tmp_path, KRR).advised == {("shop/Deployment/web", "web"): {"cpu": 163}}


NAMED = {"resource": "cpu", "namespace": "a", "pod": "p"}
NO_LABELS = {"data": {"result": [{"metric": {"pod": "p"}, "value": [1, "1"]}]}}
MISTAKES = {
    "nothing in it": ({"kind": "List", "items": []}, "no pod's usage and no recommendation found"),
    "another list": ([1], "expected PodMetrics, kubectl top's table, a Prometheus result, VPA objects or KRR's JSON"),
    "no resource": (NO_LABELS, "does not say whether it is cpu or memory"),
    "no number": ({"data": {"result": [{"metric": NAMED, "value": [1, "NaN"]}]}}, "the value NaN is no amount"),
    "no namespace": ("NAME CPU(cores) MEMORY(bytes)\nweb-1 1m 2Mi\n", "the table has no column NAMESPACE"),
    "an error of kubectl": ("NAMESPACE NAME CPU(cores) MEMORY(bytes)\nshop web-1 <unknown> 2Mi\n", "found 'shop web-1"),
    "no container": ({"scans": [{"object": {"name": "web"}}]}, r"scans\[0\]\.object needs namespace, kind, name and container"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, content)
