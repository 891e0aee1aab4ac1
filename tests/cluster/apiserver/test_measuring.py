"""Metrics of pods and nodes: the declared usage, in metrics-server's form."""

import copy

import pytest

from moorage.api.documents.served_kinds import MEASURED, served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.tables.usage_metrics import measure, measure_all
from moorage.rules.store.list_selection import ALL, selection

NODES, PODS = MEASURED
BASE = "/apis/metrics.k8s.io/v1beta1"


def add_node(store, name, ready="True"):
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    store.create(
        served("nodes"),
        "",
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"name": name}}, "status": status},
    )


def add_pod(store, name, containers, node="n1", status=None, namespace="default", annotations=None, **spec):
    """Create a running pod. ``containers`` maps names to their requests."""
    made = [
        {"name": one, "image": "i", "resources": {"requests": dict(asked)}} if asked else {"name": one, "image": "i"}
        for one, asked in containers.items()
    ]
    metadata = {"name": name, "labels": {"app": name}, "annotations": annotations or {}}
    store.create(
        served("pods"),
        namespace,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": made, "nodeName": node, **copy.deepcopy(spec)},
        },
    )
    ran = {"phase": "Running"} if status is None else status
    store.change(served("pods"), namespace, name, lambda pod: {**pod, "status": ran}, subresource="status")


def used(store, name):
    """Return the reported usage of a pod's containers."""
    metrics = measure(store, PODS, "default", name).document()
    return {one["name"]: (one["usage"]["cpu"], one["usage"]["memory"]) for one in metrics["containers"]}


@pytest.fixture
def store(store):
    add_node(store, "n1")
    return store


def test_a_container_uses_what_it_requests(store):
    add_pod(store, "web", {"a": {"cpu": "0.1", "memory": "64Mi"}, "b": {"cpu": "2", "memory": "1000"}, "c": {}})
    assert used(store, "web") == {"a": ("100m", "64Mi"), "b": ("2", "1000"), "c": ("0", "0")}


DECLARED = {  # requests of two containers, what the pod declares, what each then uses of the processor
    "shared as requested": (("100m", "300m"), "2", ("500m", "1500m")),
    "shared equally": ((None, None), "1", ("500m", "500m")),
    "what is left over goes to the first": (("1", "2"), "100m", ("34m", "66m")),
    "nothing": (("100m", "300m"), "0", ("0", "0")),
    "no quantity": (("100m", "300m"), "much", ("100m", "300m")),
    "below nothing": (("100m", "300m"), "-1", ("100m", "300m")),
}


@pytest.mark.parametrize(("requests", "declared", "each"), DECLARED.values(), ids=DECLARED)
def test_a_pod_may_declare_other_usage(store, requests, declared, each):
    containers = {name: {"cpu": asked} if asked else {} for name, asked in zip("ab", requests, strict=True)}
    add_pod(store, "web", containers, annotations={"moorage.dev/usage-cpu": declared})
    assert tuple(cpu for cpu, _ in used(store, "web").values()) == each


def test_memory_is_declared_separately(store):
    add_pod(store, "web", {"a": {"cpu": "1", "memory": "1Gi"}}, annotations={"moorage.dev/usage-memory": "3Gi"})
    assert used(store, "web") == {"a": ("1", "3Gi")}


def test_pod_level_requests_count_without_container_requests(store):
    whole = {"requests": {"cpu": "4", "memory": "2Gi"}}
    add_pod(store, "web", {"a": {"cpu": "1"}, "b": {}}, resources=whole)
    assert used(store, "web") == {"a": ("1", "1Gi"), "b": ("0", "1Gi")}


def test_only_running_containers_are_reported(store):
    states = [{"name": "a", "state": {"running": {}}}, {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    status = {"phase": "Running", "containerStatuses": states, "initContainerStatuses": [
        {"name": "first", "state": {"terminated": {}}}, {"name": "side", "state": {"running": {}}},
    ]}  # fmt: skip
    inits = [{"name": "first", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}]
    add_pod(store, "web", {"a": {"cpu": "1"}, "b": {"cpu": "1"}}, status=status, initContainers=inits)
    assert list(used(store, "web")) == ["a", "side"]


NONE = {  # the pod's status, its node
    "it waits": ({"phase": "Pending"}, "n1"),
    "it has ended": ({"phase": "Succeeded"}, "n1"),
    "its containers wait": ({"phase": "Running", "containerStatuses": [{"name": "a", "state": {"waiting": {}}}]}, "n1"),
    "its node is lost": ({"phase": "Running"}, "lost"),
    "its node is gone": ({"phase": "Running"}, "gone"),
}


@pytest.mark.parametrize(("status", "node"), NONE.values(), ids=NONE)
def test_pods_that_are_not_running_have_no_metrics(store, status, node):
    add_node(store, "lost", ready="Unknown")
    add_pod(store, "web", {"a": {"cpu": "1"}}, node=node, status=status)
    with pytest.raises(ApiError) as refused:
        measure(store, PODS, "default", "web")
    assert (refused.value.code, str(refused.value)) == (404, 'podmetrics.metrics.k8s.io "default/web" not found')
    assert measure_all(store, PODS, ALL) == []


def test_a_node_uses_the_sum_of_its_pods(store):
    add_node(store, "n2")
    add_node(store, "lost", ready="Unknown")
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "lost")):
        add_pod(store, name, {"c": {"cpu": "700m", "memory": "1Gi"}}, node=node)
    add_pod(store, "over", {"c": {"cpu": "700m"}}, status={"phase": "Failed"})
    usage = {record.name: record.document()["usage"] for record in measure_all(store, NODES, ALL)}
    assert usage == {"n1": {"cpu": "1400m", "memory": "2Gi"}, "n2": {"cpu": "0", "memory": "0"}}
    with pytest.raises(ApiError, match=r'nodemetrics\.metrics\.k8s\.io "lost" not found'):
        measure(store, NODES, "", "lost")
    with pytest.raises(ApiError, match='nodes "n9" not found'):
        measure(store, NODES, "", "n9")


def test_metrics_have_the_current_time_and_the_labels(store, clock):
    add_pod(store, "web", {"a": {}})
    clock.now += 90
    now = "2025-06-15T15:08:10Z"
    assert measure(store, PODS, "default", "web").document() == {
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "creationTimestamp": now},
        "timestamp": now, "window": "15s",
        "containers": [{"name": "a", "usage": {"cpu": "0", "memory": "0"}}],
    }  # fmt: skip


SELECTIONS = {  # namespace, labels, fields, which
    "all": (None, "", "", ["default/a", "default/b", "kube-system/a"]),
    "a namespace": ("default", "", "", ["default/a", "default/b"]),
    "labels": (None, "app=a", "", ["default/a", "kube-system/a"]),
    "fields": (None, "", "metadata.name!=a", ["default/b"]),
}


@pytest.mark.parametrize(("namespace", "labels", "fields", "which"), SELECTIONS.values(), ids=SELECTIONS)
def test_metrics_are_selected_like_pods(store, namespace, labels, fields, which):
    for home, name in (("default", "a"), ("kube-system", "a"), ("default", "b")):
        add_pod(store, name, {"c": {}}, namespace=home)
    chosen = selection(PODS, namespace, labels, fields)
    assert [record.key for record in measure_all(store, PODS, chosen)] == which


def test_over_http(against_a_server):
    async def test(client, store):
        add_node(store, "n1")
        add_pod(store, "web", {"a": {"cpu": "1"}})
        status, listed = await client.ask("GET", f"{BASE}/nodes?limit=500")
        assert (status, listed["kind"], listed["metadata"]) == (200, "NodeMetricsList", {})
        assert [one["metadata"]["name"] for one in listed["items"]] == ["n1"]
        assert (await client.ask("GET", f"{BASE}/namespaces/default/pods/web"))[1]["containers"][0]["usage"]["cpu"] == "1"
        table = (await client.ask("GET", f"{BASE}/pods", Accept="application/json;as=Table;v=v1;g=meta.k8s.io"))[1]
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "cpu", "memory", "Window"]
        assert [row["cells"] for row in table["rows"]] == [["web", "1", "0", "15s"]]
        for method, path in (
            ("DELETE", "/nodes/n1"), ("POST", "/namespaces/default/pods"), ("PUT", "/nodes/n1"), ("PATCH", "/nodes/n1"),
            ("DELETE", "/namespaces/default/pods"), ("GET", "/pods?watch=1"), ("PUT", "/nodes/absent"),
        ):  # fmt: skip
            assert (await client.ask(method, BASE + path, {}))[0] == 405, (method, path)
        assert (await client.ask("GET", f"{BASE}/nodes", token="weak"))[0] == 403
        assert (await client.ask("GET", f"{BASE}/nodes/n1/status"))[0] == 404

    against_a_server(test)


def test_discovery_offers_read_only_metrics(against_a_server):
    async def test(client, store):
        offered = (await client.ask("GET", BASE))[1]["resources"]
        assert [(one["name"], one["kind"], one["verbs"]) for one in offered] == [
            ("nodes", "NodeMetrics", ["get", "list"]), ("pods", "PodMetrics", ["get", "list"]),
        ]  # fmt: skip
        paths = (await client.ask("GET", "/openapi/v3/apis/metrics.k8s.io/v1beta1"))[1]["paths"]
        assert {method for path in paths.values() for method in path} == {"get"}

    against_a_server(test)


def test_viewers_may_read_metrics(store):
    from moorage.cluster.apiserver.access.bootstrap import bootstrap_objects

    rules = next(one["rules"] for _, one in bootstrap_objects() if one["metadata"]["name"] == "system:aggregate-to-view")
    assert {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]} in rules
