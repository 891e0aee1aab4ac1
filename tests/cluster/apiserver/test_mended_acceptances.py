"""What kube-apiserver v1.36.2 rejects or changes beyond the object itself: rights, namespaces, nodes and dependents."""

import random

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.access_reviews import selector_errors, selector_faults
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.rules.store.store import DeleteOptions, Store
from tools.attacks.objects import valid_object

CLAIMS = served("resourceclaims", "resource.k8s.io")
PODS, NODES, NAMESPACES = served("pods"), served("nodes"), served("namespaces")
LABEL = {"resource.kubernetes.io/admin-access": "true"}
WHY = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"


@pytest.fixture
def store():
    made = Store(lambda: 1_790_000_000.0, random.Random(3), b"k")
    bootstrap_cluster(made)
    made.create(NAMESPACES, "", {"metadata": {"name": "plain"}})
    made.create(NAMESPACES, "", {"metadata": {"name": "admin", "labels": LABEL}})
    return made


def refused(call, *args, **settings):
    with pytest.raises(ApiError) as caught:
        call(*args, **settings)
    return caught.value


def claim(name):
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [asked]}}}


def test_administrator_access_needs_a_label_on_the_namespace(store):
    error = refused(store.create, CLAIMS, "plain", claim("c"))
    assert [(one.field, one.message) for one in error.causes] == [("spec.devices.requests[0].adminAccess", f"Forbidden: {WHY}")]
    assert store.create(CLAIMS, "admin", claim("c")).name == "c"


def test_an_allocation_with_administrator_access_needs_the_label_too(store):
    plain = valid_object(CLAIMS, "plain", "c")
    held = store.create(CLAIMS, "plain", plain).document()
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "x", "adminAccess": True}
    held["status"] = {"allocation": {"devices": {"results": [result]}}}
    error = refused(store.update, CLAIMS, "plain", "c", held, subresource="status")
    assert f"status.allocation.devices.results[0].adminAccess: Forbidden: {WHY}" in error.message


@pytest.fixture
def bound(store):
    store.create(NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "nodeName": "n"}
    store.create(PODS, "plain", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod})
    return store


def resize(store, cpu):
    document = store.get(PODS, "plain", "p").document()
    document["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return store.update(PODS, "plain", "p", document, subresource="resize")


def test_a_resize_stays_within_the_node(bound):
    bound.change(NODES, "", "n", lambda node: node.update(status={"allocatable": {"cpu": "4"}}), subresource="status")
    error = refused(resize, bound, "5")
    assert (error.code, [cause.reason for cause in error.causes]) == (403, ["NodeCapacity"])
    assert error.message.endswith("node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000")
    assert resize(bound, "4").document()["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "4"}


def test_a_resize_needs_the_node_and_linux(bound):
    bound.change(NODES, "", "n", lambda node: node["metadata"].update(labels={"kubernetes.io/os": "windows"}))
    assert [cause.reason for cause in refused(resize, bound, "2").causes] == ["UnsupportedPlatform"]
    bound.delete(NODES, "", "n")
    assert refused(resize, bound, "2").message.endswith('node "n" not found')


def test_a_resize_obeys_limit_ranges(bound):
    limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
    bound.create(served("limitranges"), "plain", {"metadata": {"name": "l"}, "spec": limits})
    error = refused(resize, bound, "3")
    assert (error.code, "maximum cpu usage per Container is 2" in error.message) == (403, True)


def test_the_endpoints_of_a_service_go_with_it(store):
    services, endpoints = served("services"), served("endpoints")
    for kind in (services, endpoints):
        store.create(kind, "plain", valid_object(kind, "plain", "web"))
    store.delete(services, "plain", "web")
    assert store.find(endpoints, "plain", "web") is None


def test_events_have_no_dependents_to_wait_for(store):
    events = served("events")
    store.create(events, "plain", valid_object(events, "plain", "e"))
    assert store.delete(events, "plain", "e", DeleteOptions(propagation="Foreground")).gone


SELECTORS = {  # resource attributes → the fields at fault, what is ignored
    "none": ({}, [], ""),
    "raw and requirements": (
        {"labelSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}},
        ["spec.resourceAttributes.labelSelector.rawSelector"], "",
    ),
    "empty": ({"fieldSelector": {}}, ["spec.resourceAttributes.fieldSelector.requirements"], ""),
    "without a key": (
        {"fieldSelector": {"requirements": [{"operator": "In", "values": ["x"]}]}},
        ["spec.resourceAttributes.fieldSelector.requirements[0].key"], "",
    ),
    "values of Exists": (
        {"labelSelector": {"requirements": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
        ["spec.resourceAttributes.labelSelector.requirements[0].values"], "",
    ),
    "an operator of the future": (
        {"labelSelector": {"requirements": [{"key": "a", "operator": "Near"}, {"key": "a", "operator": "Exists"}]}}, [],
        "spec.resourceAttributes.labelSelector partially ignored due to parse error",
    ),
    "a broken raw selector": (
        {"fieldSelector": {"rawSelector": "a"}}, [], "spec.resourceAttributes.fieldSelector ignored due to parse error",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("attributes", "fields", "ignored"), SELECTORS.values(), ids=SELECTORS)
def test_selectors_of_access_reviews(attributes, fields, ignored):
    assert [fault.field for fault in selector_faults(attributes)] == fields
    assert selector_errors(attributes) == ignored
