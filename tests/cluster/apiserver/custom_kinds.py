"""A definition for tests, and requests to a store without a network."""

import copy
import json

from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import serve
from moorage.cluster.apiserver.http.responses import encode_response

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
ADMIN = User("admin", ("system:masters",))
ANY_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(spec_schema, *, more=None, **version):
    """Return a definition of widgets, whose ``spec`` has the given schema."""
    schema = {"type": "object", "properties": {"spec": spec_schema, "status": ANY_STATUS, **(more or {})}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version},
            ],
        },
    }  # fmt: skip


def widget(name, **fields):
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, **fields}


def ask(store, method, path, body=None, *, form="application/json", accept=""):
    """Return the code and the document of the response to a request."""
    path, _, query = path.partition("?")
    parameters = dict(one.partition("=")[::2] for one in query.split("&") if one)
    sent = b"" if body is None else json.dumps(body).encode()
    request = HTTPRequest(method, path, parameters, accept, form if sent else "", sent, ADMIN, "tests")
    try:
        target = find_target(path, store.kinds)
        made = encode_response(request, serve(store, Authenticator({}), Authorizer(store), request, target))
    except ApiError as error:
        return error.code, error.status()
    return made.code, json.loads(b"".join(made.parts))


def define(store, document):
    """Store a definition; return the stored object."""
    code, made = ask(store, "POST", DEFINITIONS, copy.deepcopy(document))
    assert code == 201, made["message"]
    return made


def message(answer):
    code, document = answer
    return code, document.get("message", "")
