"""The ``scale`` subresource: forms, validation, patches and apply, with the messages of a kube-apiserver v1.36.2."""

import json
import random

import pytest

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.api.fields.managed_fields import FieldManager
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.http.scale_requests import answer_scale
from moorage.cluster.apiserver.schema.request_bodies import APPLY, JSON, PATCH_TYPES
from moorage.rules.store.store import Store
from tools.attacks.objects import valid_object

DEPLOYMENTS = served("deployments", "apps")


@pytest.fixture
def store():
    made = Store(lambda: 1_790_000_000.0, random.Random(3), b"k")
    bootstrap_cluster(made)
    made.create(served("namespaces"), "", {"metadata": {"name": "open"}})
    made.create(DEPLOYMENTS, "open", valid_object(DEPLOYMENTS, "open", "web"), manager=FieldManager("maker", version="apps/v1"))
    return made


def ask(store, method, body=None, form=JSON, accept="", **query):
    sent = b"" if body is None else json.dumps(body).encode()
    request = HTTPRequest(method, "/", query, accept, form, sent, User("me", ()), "test")
    answer = answer_scale(store, request, Target(DEPLOYMENTS, "open", "web", "scale"))
    return json.loads(answer.body)


def scale(replicas, **metadata):
    return {
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "open", **metadata},
        "spec": {"replicas": replicas},
    }  # fmt: skip


REFUSED = {
    "less than none": (scale(-1), 422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    "another uid": (scale(1, uid="x"), 409, 'on deployments/scale.apps "web": Precondition failed: UID in precondition: x'),
    "another version": (scale(1, resourceVersion="1"), 409, "the object has been modified"),
    "another namespace": (scale(1, namespace="closed"), 400, "the namespace of the provided object does not match"),
}


@pytest.mark.parametrize(("body", "code", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_invalid_scales_are_refused(store, method, body, code, message):
    with pytest.raises(ApiError) as caught:
        ask(store, method, body, JSON if method == "PUT" else PATCH_TYPES[1])
    assert caught.value.code == code
    assert message in caught.value.message


def test_a_scale_in_every_form(store):
    form = "application/json;as={};g=meta.k8s.io;v=v1"
    assert ask(store, "PUT", scale(3), accept=form.format("Table"))["rows"][0]["cells"][:3] == ["web", 3, 0]
    shown = ask(store, "GET", accept=form.format("PartialObjectMetadata"))
    assert (shown["kind"], shown["metadata"]["name"]) == ("PartialObjectMetadata", "web")
    with pytest.raises(ApiError) as caught:
        ask(store, "GET", accept=form.format("PartialObjectMetadataList"))
    assert caught.value.message.endswith("but the requested object is not a list (*autoscaling.Scale)")
    assert ask(store, "PUT", scale(0))["spec"] == {}


def test_an_applied_scale_owns_the_replicas(store):
    with pytest.raises(ApiError) as caught:
        ask(store, "PUT", scale(4)) and ask(store, "PATCH", scale(5), APPLY, fieldManager="me")
    assert [cause.message for cause in caught.value.causes] == [
        'conflict with "test" with subresource "scale" using autoscaling/v1'
    ]
    assert ask(store, "PATCH", scale(5), APPLY, fieldManager="me", force="true")["spec"] == {"replicas": 5}
    managed = store.get(DEPLOYMENTS, "open", "web").document()["metadata"]["managedFields"]
    own = next(one for one in managed if one["manager"] == "me")
    assert (own["operation"], own["subresource"], own["fieldsV1"]) == ("Apply", "scale", {"f:spec": {"f:replicas": {}}})
