"""A patch encodes raw fields again, which is a change where the object was created with other bytes.

The codes are those of kube-apiserver 1.37.2.
"""

import itertools
import json
import random

import pytest

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.http import write_requests
from moorage.rules.store.store import Store

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
LABEL = {"metadata": {"labels": {"a": "b"}}}
OPERATION = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
#: The text of the raw field → the codes of a merge patch, a JSON patch, a strategic patch and an apply.
TEXTS = {
    '{"a":1}': (200, 200, 200, 200),
    '{"a": 1}': (422, 422, 422, 422),
    '{"b":1,"a":1.0}': (200, 200, 422, 422),
    '{"a":1.0}': (200, 200, 422, 422),
    '{"a":1.5}': (200, 200, 200, 200),
    '{"a":"<"}': (422, 422, 422, 422),
    '{"a":"\\u003c"}': (200, 200, 200, 200),
}
KINDS = {
    ("resourceclaims", "resource.k8s.io"): (
        (
            '{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"g"}}],"config":[{"opaque":'
            '{"driver":"d.example.com","parameters":%s}}]}},"metadata":{"name":"one"}}'
        ),
        "spec: Invalid value: null: field is immutable",
    ),
    ("controllerrevisions", "apps"): ('{"metadata":{"name":"one"},"revision":1,"data":%s}', "data: Invalid value: {"),
}  # fmt: skip


def asked(store, resource, method, body, form="application/json", query=None):
    target = Target(find_kind(*resource), "default", "" if method == "POST" else "one")
    request = HTTPRequest(method, "/", query or {}, "", form, body, User("me"), "tests/1")
    ask = {"POST": write_requests.create, "PUT": write_requests.replace, "PATCH": write_requests.patch}[method]
    try:
        ask(store, request, target, None)
    except ApiError as error:
        return error.code, error.message
    return (201 if method == "POST" else 200), ""


@pytest.fixture
def store():
    seconds = itertools.count(1_795_000_000)
    made = Store(lambda: float(next(seconds)), random.Random(3), b"k")
    asked(made, ("namespaces",), "POST", b'{"metadata":{"name":"default"}}')
    return made


@pytest.mark.parametrize("resource", KINDS, ids=lambda one: one[0])
@pytest.mark.parametrize(("text", "codes"), TEXTS.items(), ids=TEXTS)
def test_a_patch_is_a_change_of_bytes(store, resource, text, codes):
    form, said = KINDS[resource]
    assert asked(store, resource, "POST", (form % text).encode())[0] == 201
    applied = {"apiVersion": find_kind(*resource).api_version, "kind": find_kind(*resource).kind, **LABEL}
    applied["metadata"] = {**applied["metadata"], "name": "one"}
    changes = [
        (MERGE, LABEL, {}), ("application/json-patch+json", OPERATION, {}), (STRATEGIC, LABEL, {}),
        ("application/apply-patch+yaml", applied, {"fieldManager": "x", "force": "true"}),
    ]  # fmt: skip
    for code, (media, change, query) in zip(codes, changes, strict=True):
        found = asked(store, resource, "PATCH", json.dumps(change).encode(), media, {**query, "dryRun": "All"})
        assert found[0] == code, (media, found)
        assert code == 200 or said in found[1]


@pytest.mark.parametrize("resource", KINDS, ids=lambda one: one[0])
def test_an_update_with_the_same_bytes_is_no_change(store, resource):
    form, said = KINDS[resource]
    assert asked(store, resource, "POST", (form % '{"a": 1}').encode())[0] == 201
    assert asked(store, resource, "PUT", (form % '{"a": 1}').encode())[0] == 200
    code, found = asked(store, resource, "PUT", (form % '{"a":1}').encode())
    assert code == 422
    assert said in found
