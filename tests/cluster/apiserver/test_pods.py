"""Binding and eviction, with kube-apiserver's responses."""

import contextlib

import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.rules.store.deletion import options_of
from moorage.rules.store.subresources import bind, evict

BUDGETS = find_kind("poddisruptionbudgets", "policy")


def pod(name="web", **spec):
    metadata = {"name": name, "labels": {"app": "web"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def binding(name="web", target=None, **metadata):
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": "n1"} if target is None else target}


def test_binding_assigns_the_pod_and_sets_its_condition(store, pods, clock):
    store.create(pods, "default", pod())
    store.change(pods, "default", "web", lambda held: held["status"].update(nominatedNodeName="n2"), subresource="status")
    bind(store, "default", "web", binding(annotations={"a": "1"}, labels={"app": "not this", "zone": "z"}))
    held = store.get(pods, "default", "web").document()
    assert held["spec"]["nodeName"] == "n1"
    assert "nominatedNodeName" not in held["status"]
    assert held["metadata"]["annotations"] == {"a": "1"}
    assert held["metadata"]["labels"] == {"app": "not this", "zone": "z"}
    assert held["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": "2025-06-15T15:06:40Z"}
    ]


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@pytest.fixture
def placed(store):
    labels = {ZONE: "z1", REGION: "r1", "kubernetes.io/hostname": "n1"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    store.create(find_kind("nodes", ""), "", node)


@pytest.mark.parametrize(
    ("target", "sent", "labels"),
    [
        ({"kind": "Node", "name": "n1"}, {}, {"app": "web", ZONE: "z1", REGION: "r1"}),
        ({"kind": "Node", "name": "n1"}, {ZONE: "other"}, {"app": "web", ZONE: "z1", REGION: "r1"}),
        ({"name": "n1"}, {}, {"app": "web"}),
        ({"kind": "Node", "name": "n2"}, {}, {"app": "web"}),
    ],
)
@pytest.mark.usefixtures("placed")
def test_a_bound_pod_gets_the_zone_labels_of_its_node(store, pods, target, sent, labels):
    store.create(pods, "default", pod())
    bind(store, "default", "web", binding(target=target, labels=sent))
    assert store.get(pods, "default", "web").document()["metadata"]["labels"] == labels


@pytest.mark.usefixtures("placed")
def test_the_zone_label_of_the_node_overrides_the_bindings(store, pods):
    document = pod()
    document["metadata"]["labels"][ZONE] = "mine"
    store.create(pods, "default", document)
    bind(store, "default", "web", binding(labels={ZONE: "other"}))
    assert store.get(pods, "default", "web").document()["metadata"]["labels"][ZONE] == "z1"


@pytest.mark.usefixtures("placed")
def test_a_pod_created_with_a_node_gets_its_zone_labels(store, pods):
    document = pod(nodeName="n1")
    document["metadata"]["labels"][ZONE] = "mine"
    store.create(pods, "default", document)
    assert store.get(pods, "default", "web").document()["metadata"]["labels"] == {"app": "web", ZONE: "z1", REGION: "r1"}


REFUSED = {
    "no such pod": (None, binding(), 404, "NotFound", 'pods "web" not found'),
    "another name": (
        pod(), binding("db"), 400, "BadRequest", "name in URL does not match name in Binding object",
    ),
    "already placed": (
        pod(nodeName="n0"), binding(), 409, "Conflict",
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "n0"',
    ),
    "gated": (
        pod(schedulingGates=[{"name": "x/y"}]), binding(), 409, "Conflict",
        'Operation cannot be fulfilled on pods/binding "web": pod web has non-empty .spec.schedulingGates',
    ),
    "not a node": (
        pod(), binding(target={"kind": "Pod", "name": "n1"}), 500, "",
        'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"',
    ),
    "no target": (pod(), binding(target={}), 500, "", "target.name: Required value"),
    "neither": (
        pod(), binding(target={"kind": "Pod"}), 500, "",
        '[target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>", target.name: Required value]',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("held", "sent", "code", "reason", "message"), REFUSED.values(), ids=REFUSED)
def test_rejected_bindings(store, pods, held, sent, code, reason, message):
    if held is not None:
        store.create(pods, "default", {**held, "metadata": {**held["metadata"]}})
    with pytest.raises(ApiError) as caught:
        bind(store, "default", "web", sent)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (code, reason, message)


def body_of(kind, group, **more):
    return {"apiVersion": f"{group}/v1".removeprefix("/"), "kind": kind, "metadata": {"name": "web", **more}}


ELSEWHERE = {  # what is asked for in the namespace default, and the body without its own namespace
    "a pod's binding": ("POST", "/api/v1/namespaces/default/pods/web/binding", binding()),
    "a binding": ("POST", "/api/v1/namespaces/default/bindings", binding()),
    "an eviction": ("POST", "/api/v1/namespaces/default/pods/web/eviction", body_of("Eviction", "policy")),
    "a scale": (
        "PUT", "/apis/apps/v1/namespaces/default/deployments/web/scale",
        {**body_of("Scale", "autoscaling"), "spec": {"replicas": 2}},
    ),
    "a review": (
        "POST", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
        {**body_of("LocalSubjectAccessReview", "authorization.k8s.io"), "spec": {"user": "x"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "sent"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_body_for_another_namespace_than_the_path_is_rejected(against_a_server, method, path, sent):
    async def test(client, _):
        body = {**sent, "metadata": {**sent["metadata"], "namespace": "other"}}
        code, answer = await client.ask(method, path, body)
        why = "the namespace of the provided object does not match the namespace sent on the request"
        assert (code, answer["reason"], answer["message"]) == (400, "BadRequest", why)

    against_a_server(test)


def test_a_scale_with_another_name_than_the_path_is_rejected(against_a_server):
    async def test(client, _):
        method, path, sent = ELSEWHERE["a scale"]
        code, answer = await client.ask(method, path, {**sent, "metadata": {"name": "other"}})
        assert (code, answer["message"]) == (400, "the name of the object (other) does not match the name on the URL (web)")

    against_a_server(test)


def test_a_terminating_pod_is_not_bound(store, pods):
    held = pod()
    held["metadata"]["finalizers"] = ["example.com/x"]
    store.create(pods, "default", held)
    store.delete(pods, "default", "web")
    with pytest.raises(ApiError, match="pod web is being deleted, cannot be assigned to a host"):
        bind(store, "default", "web", binding())


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_binding_a_recreated_pod_is_rejected(store, pods, field):
    store.create(pods, "default", pod())
    with pytest.raises(ApiError) as caught:
        bind(store, "default", "web", binding(**{field: "77"}))
    assert caught.value.code == 409
    assert "Precondition failed" in caught.value.message
    record = store.get(pods, "default", "web")
    bind(store, "default", "web", binding(**{field: record.document()["metadata"][field]}))


def test_one_of_two_bindings_succeeds(store, pods):
    store.create(pods, "default", pod())
    bind(store, "default", "web", binding())
    with pytest.raises(ApiError) as caught:
        bind(store, "default", "web", binding(target={"kind": "Node", "name": "n2"}))
    assert caught.value.code == 409
    assert store.get(pods, "default", "web").fields["spec.nodeName"] == "n1"


# -- eviction -----------------------------------------------------------------------------------------------------------


def running(store, pods, ready="True"):
    store.create(pods, "default", pod(nodeName="n1"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    store.change(pods, "default", "web", lambda held: held.update(status=status), subresource="status")


def budget(store, name="b", **status):
    sent = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    sent["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    store.create(BUDGETS, "default", sent)
    store.change(BUDGETS, "default", name, lambda held: held["status"].update(status), subresource="status")


EVICTION = {"metadata": {"name": "web"}}


def test_a_pod_without_a_budget_is_deleted_gracefully(store, pods):
    running(store, pods)
    assert not evict(store, "default", "web", EVICTION).gone
    assert store.get(pods, "default", "web").document()["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_budget_is_used_up(store, pods):
    running(store, pods)
    budget(store, observedGeneration=1, disruptionsAllowed=1)
    evict(store, "default", "web", EVICTION)
    status = store.get(BUDGETS, "default", "b").document()["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["disruptedPods"] == {"web": "2025-06-15T15:06:40Z"}


DENIED = {
    "no room": (
        {"observedGeneration": 1, "desiredHealthy": 2, "currentHealthy": 2}, 0,
        "The disruption budget b needs 2 healthy pods and has 2 currently",
    ),
    "not up to date": ({}, 10, "The disruption budget b is still being processed by the server."),
}  # fmt: skip


@pytest.mark.parametrize(("status", "retry", "cause"), DENIED.values(), ids=DENIED)
def test_a_budget_rejects_an_eviction(store, pods, status, retry, cause):
    running(store, pods)
    budget(store, **status)
    with pytest.raises(ApiError) as caught:
        evict(store, "default", "web", EVICTION)
    assert caught.value.code == 429
    assert caught.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert caught.value.retry_after_s == retry
    assert caught.value.status()["details"]["causes"] == [{"reason": "DisruptionBudget", "message": cause}]


def test_an_unready_pod_is_evicted_if_enough_others_are_healthy(store, pods):
    running(store, pods, ready="False")
    budget(store, observedGeneration=1, desiredHealthy=2, currentHealthy=2)
    assert evict(store, "default", "web", EVICTION)


def test_two_budgets_are_an_error(store, pods):
    running(store, pods)
    budget(store, "a")
    budget(store, "b")
    with pytest.raises(ApiError) as caught:
        evict(store, "default", "web", EVICTION)
    assert caught.value.code == 500
    assert "more than one PodDisruptionBudget" in caught.value.message


def test_delete_options_are_applied(store):
    sent = {"gracePeriodSeconds": 0, "preconditions": {"uid": "u", "resourceVersion": "5"}}
    options = options_of({**sent, "dryRun": ["All"]})
    assert options[:-1] == (0, "u", "5", "", True, False, False)
    assert options.sent == {**sent, "dryRun": ["All"]}
    assert options_of(None)[:-1] == (None, "", "", "", False, False, False)
    with pytest.raises(ApiError, match="type int64"):
        options_of({"gracePeriodSeconds": "soon"})


def test_an_evicted_pod_has_a_disruption_condition(store, pods):
    running(store, pods)
    evict(store, "default", "web", EVICTION)
    told = store.get(pods, "default", "web").document()["status"]["conditions"][-1]
    assert (told["type"], told["status"], told["reason"]) == ("DisruptionTarget", "True", "EvictionByEvictionAPI")


def test_the_last_allowed_disruption_is_reported(store, pods):
    running(store, pods)
    budget(store, observedGeneration=1, disruptionsAllowed=1)
    evict(store, "default", "web", EVICTION)
    (condition,) = store.get(BUDGETS, "default", "b").document()["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionAllowed", "False", "InsufficientPods")


def test_an_unready_pod_counts_if_too_few_others_are_healthy(store, pods):
    running(store, pods, ready="False")
    budget(store, observedGeneration=1, desiredHealthy=2, currentHealthy=1, disruptionsAllowed=1)
    evict(store, "default", "web", EVICTION)
    assert store.get(BUDGETS, "default", "b").document()["status"]["disruptionsAllowed"] == 0


@pytest.mark.parametrize("trial", [{"dryRun": ["All"]}, {"preconditions": {"uid": "other"}}], ids=["dry run", "another pod"])
def test_an_invalid_eviction_changes_nothing(store, pods, trial):
    running(store, pods)
    budget(store, observedGeneration=1, disruptionsAllowed=1)
    version = store.version
    with contextlib.suppress(ApiError):
        evict(store, "default", "web", {**EVICTION, "deleteOptions": trial})
    assert store.version == version


def test_an_invalid_budget_allows_nothing(store, pods):
    running(store, pods)
    budget(store, observedGeneration=1)
    held = store.get(BUDGETS, "default", "b")
    wrong = held.document()
    wrong["status"]["disruptionsAllowed"] = -1
    store.put(BUDGETS, held, wrong)
    with pytest.raises(ApiError, match="pdb disruptions allowed is negative") as refused:
        evict(store, "default", "web", EVICTION)
    assert refused.value.code == 403
