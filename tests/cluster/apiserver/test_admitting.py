"""Admission: how pods and claims are changed, and which are rejected."""

import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError

CLAIMS = find_kind("persistentvolumeclaims")


def pod(**spec):
    containers = [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": 1}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers, **spec}}


def add(store, resource, group, namespace, name, **rest):
    kind = find_kind(resource, group)
    store.create(kind, namespace, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **rest})


def test_a_plain_pod_gets_a_priority_and_default_tolerations(store, pods):
    spec = store.create(pods, "default", pod()).document()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["tolerations"] == [
        {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for trouble in ("not-ready", "unreachable")
    ]


def test_a_priority_class_becomes_a_number(store, pods):
    add(store, "priorityclasses", "scheduling.k8s.io", "", "high", value=1000, preemptionPolicy="Never")
    spec = store.create(pods, "default", pod(priorityClassName="high")).document()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


def test_the_default_priority_class_applies_to_pods_without_one(store, pods):
    add(store, "priorityclasses", "scheduling.k8s.io", "", "usual", value=7, globalDefault=True)
    spec = store.create(pods, "default", pod()).document()["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "usual")


def test_limit_ranges_set_defaults_and_enforce_limits(store, pods):
    limits = [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "4"}}]
    add(store, "limitranges", "", "default", "usual", spec={"limits": limits})
    container = store.create(pods, "default", pod()).document()["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    assert container["livenessProbe"]["httpGet"] == {"port": 1, "path": "/", "scheme": "HTTP"}
    greedy = pod()
    greedy["metadata"]["name"] = "greedy"
    greedy["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5"}}
    with pytest.raises(ApiError) as caught:
        store.create(pods, "default", greedy)
    assert caught.value.code == 403
    assert caught.value.message == 'pods "greedy" is forbidden: maximum cpu usage per Container is 4, but limit is 5'


def test_a_runtime_class_adds_its_overhead(store, pods):
    add(store, "runtimeclasses", "node.k8s.io", "", "boxed", handler="box", overhead={"podFixed": {"memory": "64Mi"}})
    spec = store.create(pods, "default", pod(runtimeClassName="boxed")).document()["spec"]
    assert spec["overhead"] == {"memory": "64Mi"}


@pytest.mark.parametrize("spec", [{"priorityClassName": "none"}, {"runtimeClassName": "none"}])
def test_unknown_classes_are_rejected(store, pods, spec):
    version = store.version
    with pytest.raises(ApiError) as caught:
        store.create(pods, "default", pod(**spec))
    assert caught.value.code == 403
    assert caught.value.message.startswith('pods "web" is forbidden: ')
    assert store.version == version


def test_a_claim_gets_the_default_storage_class(store):
    marked = {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    kind = find_kind("storageclasses", "storage.k8s.io")
    store.create(kind, "", {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": marked, "provisioner": "x/y"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    sent = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    assert store.create(CLAIMS, "default", sent).document()["spec"]["storageClassName"] == "fast"
