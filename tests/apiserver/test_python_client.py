"""The official Python client as a peer: typed APIs, watches, the dynamic client, and what it makes of refusals."""

import contextlib
import random
import time
import urllib.request

import pytest

from moorage.apiserver.store import Store

kubernetes = pytest.importorskip("kubernetes")

pytestmark = pytest.mark.slow

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}


@pytest.fixture
def api(server_in_a_thread, token):
    configuration = kubernetes.client.Configuration()
    configuration.api_key = {"authorization": f"Bearer {token}"}
    configuration.retries = False
    with server_in_a_thread(Store(time.time, random.Random(2), b"k")) as port:
        configuration.host = f"http://127.0.0.1:{port}"
        with kubernetes.client.ApiClient(configuration) as client:
            yield client


@pytest.fixture
def core(api):
    return kubernetes.client.CoreV1Api(api)


def pod(name="web", **spec):
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [CONTAINER], **spec}}


def refused(call, *arguments, **more):
    with pytest.raises(kubernetes.client.exceptions.ApiException) as found:
        call(*arguments, **more)
    return found.value.status, found.value.reason


def test_a_pod_lives_and_dies(core):
    made = core.create_namespaced_pod("default", pod())
    assert (made.status.phase, made.spec.containers[0].resources.requests) == ("Pending", {"cpu": "100m"})
    assert made.metadata.managed_fields[0].manager == "OpenAPI-Generator"
    binding = kubernetes.client.V1Binding(
        metadata=kubernetes.client.V1ObjectMeta(name="web"), target=kubernetes.client.V1ObjectReference(kind="Node", name="n1")
    )
    with contextlib.closing(core.create_namespaced_binding("default", binding, _preload_content=False)) as bound:
        assert bound.status == 201
        bound.read()
    assert refused(core.create_namespaced_pod_binding, "web", "default", binding)[0] == 409
    assert core.read_namespaced_pod("web", "default").spec.node_name == "n1"
    patched = core.patch_namespaced_pod("web", "default", {"metadata": {"labels": {"tier": "x"}}})
    assert patched.metadata.labels == {"app": "web", "tier": "x"}
    core.patch_namespaced_pod_status("web", "default", {"status": {"phase": "Running"}})
    eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name="web"))
    core.create_namespaced_pod_eviction("web", "default", eviction)
    ending = core.read_namespaced_pod("web", "default")
    assert ending.metadata.deletion_grace_period_seconds == 30
    assert [one.type for one in ending.status.conditions] == ["PodScheduled", "DisruptionTarget"]
    core.delete_namespaced_pod("web", "default", grace_period_seconds=0)
    assert refused(core.read_namespaced_pod, "web", "default") == (404, "Not Found")


def test_lists_are_paged_selected_and_watched(core):
    for i in range(5):
        core.create_namespaced_pod("default", pod(f"p{i}"))
    first = core.list_namespaced_pod("default", limit=2)
    assert ([one.metadata.name for one in first.items], first.metadata.remaining_item_count) == (["p0", "p1"], 3)
    rest = core.list_namespaced_pod("default", limit=5, _continue=first.metadata._continue)
    assert [one.metadata.name for one in rest.items] == ["p2", "p3", "p4"]
    assert refused(core.list_namespaced_pod, "default", _continue="forged")[0] == 400
    assert [one.metadata.name for one in core.list_pod_for_all_namespaces(label_selector="app in (p1,p3)").items] == [
        "p1",
        "p3",
    ]
    assert len(core.list_pod_for_all_namespaces(field_selector="spec.nodeName=,status.phase=Pending").items) == 5
    core.delete_collection_namespaced_pod("default", label_selector="app=p4", grace_period_seconds=0)
    assert watched(core, resource_version=first.metadata.resource_version) == [("DELETED", "p4")]
    assert watched(core) == [("ADDED", f"p{i}") for i in range(4)]


def watched(core, **more):
    """Return what a watch of a second tells."""
    events = kubernetes.watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=1, **more)
    return [(event["type"], event["object"].metadata.name) for event in events]


def test_workloads_are_scaled_replaced_and_deleted(api):
    apps, batch = kubernetes.client.AppsV1Api(api), kubernetes.client.BatchV1Api(api)
    selector = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    apps.create_namespaced_deployment(
        "default", {"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": selector, "template": template}}
    )
    scale = apps.read_namespaced_deployment_scale("web", "default")
    scale.spec.replicas = 3
    assert apps.replace_namespaced_deployment_scale("web", "default", scale).spec.replicas == 3
    apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 4}})
    held = apps.read_namespaced_deployment("web", "default")
    assert (held.spec.replicas, held.spec.strategy.rolling_update.max_surge, held.metadata.generation) == (4, "25%", 3)
    held.spec.paused = True
    apps.replace_namespaced_deployment("web", "default", held)
    assert refused(apps.replace_namespaced_deployment, "web", "default", held) == (409, "Conflict")
    job = batch.create_namespaced_job(
        "default",
        {
            "metadata": {"generateName": "j-"},
            "spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
        },
    )
    assert job.metadata.name.startswith("j-")
    assert batch.list_namespaced_job("default").items[0].metadata.uid == job.metadata.uid
    gone = apps.delete_namespaced_deployment("web", "default", propagation_policy="Background")
    assert (gone["status"], gone["details"]["kind"]) == ("Success", "deployments")


def test_the_dynamic_client_finds_applies_and_watches(api, tmp_path):
    dynamic = kubernetes.dynamic.DynamicClient(api, cache_file=str(tmp_path / "cache"))
    deployments = dynamic.resources.get(api_version="apps/v1", kind="Deployment")
    body = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
        },
    }  # fmt: skip
    made = deployments.server_side_apply(body=body, name="web", namespace="default", field_manager="me")
    assert made.spec.replicas == 2
    with pytest.raises(kubernetes.dynamic.exceptions.ConflictError):
        deployments.server_side_apply(
            body={**body, "spec": {**body["spec"], "replicas": 3}}, name="web", namespace="default", field_manager="you"
        )
    nodes = dynamic.resources.get(api_version="v1", kind="Node")
    nodes.create(body={"metadata": {"name": "n1"}, "kind": "Node", "apiVersion": "v1"})
    assert [event["object"].metadata.name for event in nodes.watch(timeout=1)] == ["n1"]
    assert nodes.patch(
        name="n1", body={"spec": {"unschedulable": True}}, content_type="application/merge-patch+json"
    ).spec.unschedulable
    with pytest.raises(kubernetes.dynamic.exceptions.NotFoundError):
        nodes.get(name="n2")


def test_everything_a_scheduler_lists_is_there(api):
    """Each kind is listed and watched by its group and version, in the form that client-go asks for first."""
    headers = {
        "Accept": "application/vnd.kubernetes.protobuf, application/json",
        "Authorization": api.configuration.api_key["authorization"],
    }
    watch = "watch=1&timeoutSeconds=5&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    for path in SCHEDULER_LISTS:
        url = f"{api.configuration.host}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            assert (path, answer.status, answer.headers["Content-Type"]) == (path, 200, "application/json")
        with urllib.request.urlopen(urllib.request.Request(f"{url}?{watch}", headers=headers)) as answer:
            line = answer.readline()
            while b'"ADDED"' in line:
                line = answer.readline()
            assert b"k8s.io/initial-events-end" in line


SCHEDULER_LISTS = (
    "/api/v1/nodes", "/api/v1/pods", "/api/v1/services", "/api/v1/replicationcontrollers", "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims", "/api/v1/namespaces", "/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets",
    "/apis/policy/v1/poddisruptionbudgets", "/apis/storage.k8s.io/v1/storageclasses", "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers", "/apis/storage.k8s.io/v1/csistoragecapacities",
    "/apis/storage.k8s.io/v1/volumeattachments", "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/deviceclasses",
)  # fmt: skip
