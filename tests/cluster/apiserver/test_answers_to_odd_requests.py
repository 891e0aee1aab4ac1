"""Odd requests, with the codes and messages of kube-apiserver v1.36.2 (a distribution's build, over etcd 3.4)."""

import json

import pytest

from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.statuses import ApiError
from moorage.api.durations import DurationError, parse_duration
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import serve
from tests.cluster.apiserver.custom_kinds import ADMIN, WIDGETS, define, definition

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
MERGE, JSON_PATCH, APPLY = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
CLASSES, BUDGETS = "/apis/node.k8s.io/v1/runtimeclasses", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENT = (
    b'{"metadata": {"name": "held"}, "regarding": {"namespace": "default"}, "reason": "R", "type": "Normal", "action": "A", '
    b'"reportingController": "a.b/c", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z"}'
)
HELD = {
    "/apis/events.k8s.io/v1/namespaces/default/events": EVENT,
    MAPS: b'{"metadata": {"name": "held"}}', CLASSES: b'{"metadata": {"name": "held"}, "handler": "runc"}',
    WIDGETS: b'{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "held"}}',
}  # fmt: skip
UNNAMED = "the name of the object (held based on URL) was undeterminable: name must be provided"
NO_MESSAGE = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
NO_KIND = "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in"
BOM = "couldn't get version/kind; json parse error: invalid character 'ï' looking for beginning of value"
NO_VERSION = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
VOID = (
    b'{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc", '
    b'"metadata": {"name": "held", "resourceVersion": "0"}}'
)
SLICE = (
    b'{"metadata": {"name": "s"}, "spec": {"driver": "a.b", "nodeName": "n", "pool": {"name": "p", "generation": 1, '
    b'"resourceSliceCount": 1}, "devices": [{"name": "d", EXTRA}]}}'
)
CASES = {  # method, path, media type, body, code, part of the message
    "a patch that removes the version": ("PATCH", f"{MAPS}/held", MERGE, b'{"apiVersion": null}', 400, UNNAMED),
    "a JSON patch that empties the version": (
        "PATCH", f"{MAPS}/held", JSON_PATCH, b'[{"op": "replace", "path": "/apiVersion", "value": ""}]', 400, UNNAMED,
    ),
    "a patch that removes the version and makes the metadata a list": (
        "PATCH", f"{MAPS}/held", MERGE, b'{"apiVersion": "", "metadata": [{"name": "held"}]}', 400, UNNAMED,
    ),
    "a JSON patch that makes an object of the name": (
        "PATCH", f"{MAPS}/held", JSON_PATCH,
        b'[{"op": "remove", "path": "/apiVersion"}, {"op": "add", "path": "/metadata/name", "value": {}}]', 400, UNNAMED,
    ),
    "a patch of a custom object that removes the version": (
        "PATCH", f"{WIDGETS}/held", MERGE, b'{"apiVersion": null}', 500,
        "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
    ),
    "a patch of a custom object that removes the kind": (
        "PATCH", f"{WIDGETS}/held", MERGE, b'{"kind": null}', 422, "Object 'Kind' is missing in",
    ),
    "protobuf of no bytes": (
        "POST", LEASES, PROTOBUF, b"", 400, "the object provided is unrecognized (must be of type Lease): empty data (<empty>)",
    ),
    "protobuf of a space": ("PUT", f"{LEASES}/a", PROTOBUF, b" ", 400, f"(must be of type Lease): {NO_MESSAGE} (20)"),
    "a deletion with protobuf of a space": ("DELETE", f"{LEASES}/a", PROTOBUF, b" ", 400, NO_MESSAGE),
    "a custom object without a kind": ("POST", WIDGETS, JSON, b'{"metadata": {"name": "x"}}', 400, NO_KIND),
    "a custom object without a kind in YAML": ("POST", WIDGETS, YAML, b"metadata: {name: x}", 400, NO_KIND),
    "a custom object without a version": (
        "POST", WIDGETS, JSON, b'{"kind": "Widget", "metadata": {"name": "x"}}', 400,
        "the API version in the data () does not match the expected API version (example.com/v1)",
    ),
    "a custom object at another name's path": (
        "POST", f"{WIDGETS}/other", JSON, HELD[WIDGETS].replace(b"held", b"made"), 201, "",
    ),
    "an object at another name's path": ("POST", f"{MAPS}/other", JSON, b"{}", 405, "does not allow this method"),
    "an apply that voids a needed version": (
        "PATCH", f"{CLASSES}/held?fieldManager=me", APPLY,
        VOID,
        422, NO_VERSION,
    ),
    "a byte order mark": ("POST", MAPS, JSON, b"\xef\xbb\xbf{}", 400, BOM),
    "a byte order mark before options": ("DELETE", MAPS, JSON, b"\xef\xbb\xbf{}", 400, BOM),
    "a byte order mark in YAML": ("POST", MAPS, YAML, b'\xef\xbb\xbf{"metadata": {"name": "b"}}', 201, ""),
    "a token for a manager that cannot be printed": (
        "POST", "/api/v1/namespaces/default/serviceaccounts/default/token?fieldManager=\n", JSON, b"{}", 422,
        "fieldManager: Invalid value: \"\\n\": invalid character U+000A (at position 0)",
    ),
    "a device with conditions for success alone": (
        "POST", "/apis/resource.k8s.io/v1/resourceslices", JSON,
        SLICE.replace(b"EXTRA", b'"bindingConditions": ["a", "b"]'), 422,
        ("spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use "
        "bindingConditions"),
    ),
    "a device with one condition for both": (
        "POST", "/apis/resource.k8s.io/v1/resourceslices", JSON,
        SLICE.replace(b"EXTRA", b'"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]'), 422,
        "bindingFailureConditions must not overlap with bindingConditions",
    ),
    "a template of claims with a name": (
        "POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", JSON,
        b'{"metadata": {"name": "t"}, "spec": {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {}}}', 422,
        "spec.metadata.name: Forbidden: cannot be set",
    ),
    "a stream as a dry run": (
        "GET", "/api/v1/namespaces/default/pods/none/exec?dryRun=all", "", b"", 400, "dryRun is not supported",
    ),
    "an event of another version": (
        "DELETE", "/apis/events.k8s.io/v1/namespaces/default/events/held?resourceVersion=1", "", b"", 409,
        'Operation cannot be fulfilled on Event "held"',
    ),
    "a review with a link": (
        "POST", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", JSON,
        (b'{"metadata": {"namespace": "default", "selfLink": "x"}, "spec": {"user": "u", "resourceAttributes": '
        b'{"verb": "get", "resource": "pods", "namespace": "default"}}}'), 201, "",
    ),
    "an object that a PUT creates with a uid": (
        "PUT", f"{LEASES}/new", JSON, b'{"metadata": {"name": "new", "uid": "u"}, "spec": {}}', 409,
        "/registry/leases/default/new, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u,",
    ),
    "a review with a long manager": (
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews?fieldManager=" + "m" * 129, JSON,
        b'{"spec": {"namespace": "default"}}', 422, "fieldManager: Too long: may not be more than 128 bytes",
    ),
    "a budget with any name": (
        "POST", BUDGETS, JSON, b'{"metadata": {"name": "A_' + b"x" * 260 + b'"}, "spec": {"minAvailable": 1}}', 201, "",
    ),
    "a budget with a name that no path can have": (
        "POST", BUDGETS, JSON, b'{"metadata": {"name": "a%b"}, "spec": {"minAvailable": 1}}', 422, "may not contain '%'",
    ),
}  # fmt: skip


def ask(store, method, path, form, body, accept=""):
    path, _, query = path.partition("?")
    request = HTTPRequest(method, path, dict(one.split("=") for one in query.split("&") if one), accept, form, body, ADMIN, "t")
    guard = Authenticator({})
    guard.accounts = store.accounts if hasattr(store, "accounts") else object()
    try:
        answer = serve(store, guard, Authorizer(store), request, find_target(path, store.kinds))
        return answer.code, "", answer.warnings
    except ApiError as error:
        return error.code, error.message, error.warnings


@pytest.fixture
def held(store):
    define(store, definition({"type": "object"}))
    for path, body in HELD.items():
        assert ask(store, "POST", path, JSON, body)[0] == 201
    return store


@pytest.mark.parametrize(("method", "path", "form", "body", "code", "said"), CASES.values(), ids=CASES)
def test_an_odd_request_is_answered_as_kube_apiserver_answers_it(held, method, path, form, body, code, said):
    answered, message, _ = ask(held, method, path, form, body)
    assert (answered, said in message) == (code, True), message


def test_what_a_patch_without_a_version_loses_is_named(held):
    _, _, warnings = ask(held, "PATCH", f"{MAPS}/held", MERGE, b'{"apiVersion": null, "data": {}}')
    assert warnings == ('unknown field "data"', 'unknown field "metadata"')


def test_options_in_the_body_of_a_deletion_replace_those_of_the_path(held):
    assert ask(held, "DELETE", f"{MAPS}/held?dryRun=All", JSON, b'{"gracePeriodSeconds": 0}')[0] == 200
    assert ask(held, "GET", f"{MAPS}/held", "", b"")[0] == 404


LIST_OF_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
UNFIT = {  # method, path, body, what the client accepts, code, whether the object "held" is deleted
    "a new custom object": ("POST", WIDGETS, b'{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}}',
                            PROTOBUF, 406, False),
    "a deletion": ("DELETE", f"{MAPS}/held", b"", LIST_OF_METADATA, 200, True),
    "a deletion that a finalizer delays": (
        "DELETE", f"{MAPS}/held", b'{"propagationPolicy": "Orphan"}', LIST_OF_METADATA, 406, False,
    ),
    "a deletion of a custom object that a finalizer delays": (
        "DELETE", f"{WIDGETS}/held", b'{"propagationPolicy": "Foreground"}', PROTOBUF, 406, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "accept", "code", "is_gone"), UNFIT.values(), ids=UNFIT)
def test_a_write_whose_answer_the_client_cannot_take_changes_nothing(held, method, path, body, accept, code, is_gone):
    version = held.version
    assert ask(held, method, path, JSON, body, accept)[0] == code
    assert (held.version != version) == is_gone


def test_the_generation_of_an_object_that_is_being_deleted_stays_a_number_of_64_bits(store):
    body = b'{"metadata": {"name": "x", "finalizers": ["a.b/c"], "generation": 9223372036854775807}}'
    assert ask(store, "POST", MAPS, JSON, body)[0] == 201
    assert ask(store, "DELETE", f"{MAPS}/x", JSON, b"")[0] == 200
    found = store.get(find_target(MAPS, store.kinds).kind, "default", "x").document()["metadata"]
    assert found["generation"] == 2**63 - 1


PREFER = (
    'metadata.finalizers: "cleanup.example.com": prefer a domain-qualified finalizer name including a path (/) to avoid '
    "accidental conflicts with other finalizer writers"
)
PLAIN = {  # a path of objects, an object with a finalizer that names no domain, code, warnings
    "a custom object": (WIDGETS, {"kind": "Widget", "apiVersion": "example.com/v1"}, 201, (PREFER,)),
    "a lease": (LEASES, {}, 201, ()),
    "a config map": (MAPS, {}, 422, ()),
}  # fmt: skip


@pytest.mark.parametrize(("path", "document", "code", "warnings"), PLAIN.values(), ids=PLAIN)
def test_objects_of_some_groups_may_have_finalizers_without_a_domain(held, path, document, code, warnings):
    metadata = {"name": "held-by-one", "finalizers": ["cleanup.example.com"]}
    body = json.dumps({**document, "metadata": metadata}).encode()
    answered, _, warned = ask(held, "POST", path, JSON, body)
    assert (answered, warned) == (code, warnings)


def test_a_namespace_has_a_phase_whatever_a_client_writes(held):
    path = "/api/v1/namespaces/default"
    assert ask(held, "PUT", f"{path}/status", JSON, b'{"metadata": {"name": "default"}}')[0] == 200
    assert held.get(find_target(path, held.kinds).kind, "", "default").document()["status"] == {"phase": "Active"}


def test_a_name_of_an_object_that_is_being_deleted_is_taken_still(held):
    body = b'{"metadata": {"name": "kept", "finalizers": ["a.b/c"]}}'
    assert ask(held, "POST", MAPS, JSON, body)[0] == 201
    assert ask(held, "DELETE", f"{MAPS}/kept", "", b"")[0] == 200
    code, message, _ = ask(held, "POST", MAPS, JSON, body)
    assert (code, message) == (409, 'object is being deleted: configmaps "kept" already exists')


def test_a_duration_that_is_too_long_is_invalid_whatever_its_unit():
    with pytest.raises(DurationError, match="time: invalid duration"):
        parse_duration("99999999999999999999s?watch")


def test_the_status_of_a_deployment_does_not_change_its_labels(held):
    path = "/apis/apps/v1/namespaces/default/deployments"
    body = (
        b'{"metadata": {"name": "d", "labels": {"a": "b"}}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": '
        b'{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}'
    )
    assert ask(held, "POST", path, JSON, body)[0] == 201
    assert ask(held, "PATCH", f"{path}/d/status", MERGE, b'{"metadata": {"labels": {"": "A_b"}}}')[0] == 200
    assert held.get(find_target(path, held.kinds).kind, "default", "d").document()["metadata"]["labels"] == {"a": "b"}
