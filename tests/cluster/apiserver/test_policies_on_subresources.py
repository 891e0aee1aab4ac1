"""Which policies are for which requests: every served subresource and operation, and what expressions see of each.

Source  the admission requests that kube-apiserver 1.37.2 made of the same requests
"""

from __future__ import annotations

import json
import time
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.access.service_account_tokens import AccountTokens
from moorage.cluster.apiserver.http.requests import serve
from moorage.cluster.apiserver.schema.discovery import SUBRESOURCES
from moorage.rules.store.store import Store

GROUP = "admissionregistration.k8s.io/v1"
ADMIN = User("admin", ("system:masters",), uid="7", extra={"team": ("a",)})
KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
SPEC = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"app": "mast"}}, "spec": SPEC}
WORKLOAD = {"selector": {"matchLabels": {"app": "mast"}}, "template": TEMPLATE}
CSR = {"request": "", "signerName": "example.com/s", "usages": ["client auth"]}
MERGE = "application/merge-patch+json"


class Case(NamedTuple):
    """A request, the operation and resource that policies see, and the kinds of ``object`` and ``oldObject``."""

    method: str
    path: str
    body: object
    operation: str
    resource: str
    object: str | None
    old: str | None
    group: str = ""
    query: str = ""


POD, DEPLOYMENT, HPA = "/api/v1/namespaces/berth/pods/heron", "/apis/apps/v1/namespaces/berth/deployments/mast", (
    "/apis/autoscaling/v1/namespaces/berth/horizontalpodautoscalers/trim"
)  # fmt: skip
CONFIG = "/api/v1/namespaces/berth/configmaps"
CASES = {
    "create": Case("POST", CONFIG, {"metadata": {"name": "new"}}, "CREATE", "configmaps", "ConfigMap", None),
    "replace": Case(
        "PUT", f"{CONFIG}/chart", {"metadata": {"name": "chart"}}, "UPDATE", "configmaps", "ConfigMap", "ConfigMap",
    ),
    "patch": Case("PATCH", f"{CONFIG}/chart", {"data": {"a": "1"}}, "UPDATE", "configmaps", "ConfigMap", "ConfigMap"),
    "delete": Case("DELETE", f"{CONFIG}/chart", None, "DELETE", "configmaps", None, "ConfigMap"),
    "delete a collection": Case("DELETE", CONFIG, None, "DELETE", "configmaps", None, "ConfigMap"),
    "bind": Case("POST", f"{POD}/binding", {"metadata": {"name": "heron"}, "target": {"kind": "Node", "name": "n1"}},
                 "CREATE", "pods/binding", "Binding", None),
    "bind by bindings": Case(
        "POST", "/api/v1/namespaces/berth/bindings", {"metadata": {"name": "heron"}, "target": {"kind": "Node", "name": "n1"}},
        "CREATE", "bindings", "Binding", None,
    ),
    "evict": Case("POST", f"{POD}/eviction", {"metadata": {"name": "heron"}}, "CREATE", "pods/eviction", "Eviction", None),
    "scale": Case("PATCH", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 2}}, "UPDATE", "deployments/scale", "Scale",
                  "Scale", "apps"),
    "replace a scale": Case("PUT", f"{DEPLOYMENT}/scale", {"metadata": {"name": "mast", "namespace": "berth"},
                            "spec": {"replicas": 2}}, "UPDATE", "deployments/scale", "Scale", "Scale", "apps"),
    "scale a custom object": Case(
        "PATCH", "/apis/dock.example.net/v1/namespaces/berth/rafts/r/scale", {"spec": {"replicas": 2}}, "UPDATE", "rafts/scale",
        "Scale", "Scale", "dock.example.net",
    ),
    "status": Case("PATCH", f"{POD}/status", {"status": {"phase": "Running"}}, "UPDATE", "pods/status", "Pod", "Pod"),
    "status of a custom object": Case(
        "PATCH", "/apis/dock.example.net/v1/namespaces/berth/rafts/r/status", {"status": {"n": 1}}, "UPDATE", "rafts/status",
        "Raft", "Raft", "dock.example.net",
    ),
    "ephemeral containers": Case(
        "PATCH", f"{POD}/ephemeralcontainers", {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}, "UPDATE",
        "pods/ephemeralcontainers", "Pod", "Pod",
    ),
    "resize": Case("PATCH", f"{POD}/resize", {"metadata": {"labels": None}}, "UPDATE", "pods/resize", "Pod", "Pod"),
    "approve": Case(
        "PATCH", "/apis/certificates.k8s.io/v1/certificatesigningrequests/flag/approval", {"metadata": {"labels": {"a": "b"}}},
        "UPDATE", "certificatesigningrequests/approval", "CertificateSigningRequest", "CertificateSigningRequest",
        "certificates.k8s.io",
    ),
    "finalize": Case("PUT", "/api/v1/namespaces/berth/finalize", {"metadata": {"name": "berth"}, "spec": {"finalizers": []}},
                     "UPDATE", "namespaces/finalize", "Namespace", "Namespace"),
    "token": Case("POST", "/api/v1/namespaces/berth/serviceaccounts/default/token", {"spec": {}}, "CREATE",
                  "serviceaccounts/token", "TokenRequest", None),
    "exec": Case("POST", f"{POD}/exec", None, "CONNECT", "pods/exec", "PodExecOptions", None, "",
                 "container=c&command=ls&command=-l&stdin=true"),
    "attach": Case("POST", f"{POD}/attach", None, "CONNECT", "pods/attach", "PodAttachOptions", None),
    "port forward": Case("POST", f"{POD}/portforward", None, "CONNECT", "pods/portforward", "PodPortForwardOptions", None, "",
                         "ports=80"),
    "proxy of a pod": Case("GET", f"{POD}/proxy", None, "CONNECT", "pods/proxy", "PodProxyOptions", None),
    "proxy of a service": Case("GET", "/api/v1/namespaces/berth/services/rope/proxy/x/y", None, "CONNECT", "services/proxy",
                               "ServiceProxyOptions", None),
    "proxy of a node": Case("GET", "/api/v1/nodes/n1/proxy", None, "CONNECT", "nodes/proxy", "NodeProxyOptions", None),
    "another version": Case("PATCH", HPA, {"spec": {"maxReplicas": 7}}, "UPDATE", "horizontalpodautoscalers",
                            "HorizontalPodAutoscaler", "HorizontalPodAutoscaler", "autoscaling"),
}  # fmt: skip


def ask(store, method, path, body=None, *, query="", form=""):
    parameters = dict(one.partition("=")[::2] for one in query.split("&") if one)
    sent = b"" if body is None else msgspec.json.encode(body)
    form = form or (MERGE if method == "PATCH" else "application/json")
    request = HTTPRequest(method, path, parameters, "", form, sent, ADMIN, "tests", query)
    target = find_target(path, store.kinds)
    return serve(store, Authenticator({}, accounts=AccountTokens(store, KEY)), Authorizer(store), request, target)


@pytest.fixture(scope="module")
def filled():
    """Return the objects that a store is filled with, as requests."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    parts = {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": parts}
    return [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "rafts.dock.example.net"}, "spec": {
                "group": "dock.example.net", "scope": "Namespaced", "names": {"plural": "rafts", "kind": "Raft"},
                "versions": [version]}}),
        ("/api/v1/namespaces", {"metadata": {"name": "berth"}}),
        ("/api/v1/nodes", {"metadata": {"name": "n1"}}),
        ("/api/v1/namespaces/berth/pods", {"metadata": {"name": "heron", "labels": {"app": "heron"}}, "spec": SPEC}),
        (CONFIG, {"metadata": {"name": "chart"}}),
        ("/api/v1/namespaces/berth/services", {"metadata": {"name": "rope"}, "spec": {"ports": [{"port": 80}]}}),
        ("/apis/apps/v1/namespaces/berth/deployments", {"metadata": {"name": "mast"}, "spec": WORKLOAD}),
        ("/apis/dock.example.net/v1/namespaces/berth/rafts", {
            "apiVersion": "dock.example.net/v1", "kind": "Raft", "metadata": {"name": "r"}, "spec": {"replicas": 1}}),
        ("/apis/autoscaling/v2/namespaces/berth/horizontalpodautoscalers", {
            "metadata": {"name": "trim"}, "spec": {
                "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "mast"}}}),
    ]  # fmt: skip


@pytest.fixture
def store(filled):
    made = Store(time.time, Random(5), b"k")
    bootstrap_cluster(made)
    for path, body in filled:
        ask(made, "POST", path, body)
    made.adopt(
        made.kinds.find("certificatesigningrequests", "certificates.k8s.io", "v1"),
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": "flag"},
            "spec": CSR,
        },
    )
    return made


def policy(
    store, resource, expression="false", *, group="*", operations=("*",), versions=("*",), name="p", message="refused",
    actions=("Deny",), **constraints,
):  # fmt: skip
    rule = {"apiGroups": [group], "apiVersions": [*versions], "operations": [*operations], "resources": [resource]}
    spec = {
        "matchConstraints": {"resourceRules": [rule], **constraints},
        "validations": [{"expression": expression, "message": message}],
    }
    for kind, held in (
        ("policies", spec), ("policybindings", {"policyName": name, "validationActions": [*actions]}),
    ):  # fmt: skip
        ask(store, "POST", f"/apis/{GROUP}/validatingadmission{kind}", {"metadata": {"name": name}, "spec": held})


def is_refused(store, case):
    try:
        ask(store, case.method, case.path, case.body, query=case.query)
    except ApiError as error:
        if "denied request: refused" in str(error):
            return True
        if error.code not in {400, 501, 503}:  # a stream without an end
            raise
    return False


def patterns(case):
    """Return patterns of resources, with whether each is for a request."""
    resource, _, part = case.resource.partition("/")
    own = {resource: not part, "*": not part, f"{resource}/*": True, "*/*": True, f"{resource}/other": False, "other": False}
    if part:
        own |= {f"{resource}/{part}": True, f"*/{part}": True, f"other/{part}": False, part: False}
    return own


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_for_the_requests_that_it_names(store, name):
    case = CASES[name]
    for at, pattern in enumerate(patterns(case)):
        policy(store, pattern, group=case.group, name=f"p{at}", message=pattern, actions=["Warn"])
    try:
        warnings = ask(store, case.method, case.path, case.body, query=case.query).warnings
    except ApiError as error:  # a stream without an end
        warnings = error.warnings
    found = {one.rpartition(": ")[2] for one in warnings if one.startswith("Validation failed for")}
    assert found == {pattern for pattern, is_meant in patterns(case).items() if is_meant}


@pytest.mark.parametrize("name", CASES)
def test_operations(store, name):
    case = CASES[name]
    policy(store, "*/*", operations=sorted({"CREATE", "UPDATE", "DELETE", "CONNECT"} - {case.operation}))
    assert not is_refused(store, case)


CLUSTER_WIDE = {"approve", "finalize", "proxy of a node"}


def shown(kind):
    return "null" if kind is None else f"'{kind}'"


@pytest.mark.parametrize("name", CASES)
def test_what_expressions_see(store, name):
    case = CASES[name]
    _, _, part = case.resource.partition("/")
    expression = " && ".join([
        f"request.operation == '{case.operation}'",
        f"request.resource.resource == '{case.resource.partition('/')[0]}' && request.resource.group == '{case.group}'",
        f"request.subResource == '{part}' && request.requestSubResource == '{part}'" if part else
        "!has(request.subResource) && !has(request.requestSubResource)",
        f"{'object.kind' if case.object else 'object'} == {shown(case.object)}",
        f"{'oldObject.kind' if case.old else 'oldObject'} == {shown(case.old)}",
        "request.userInfo.username == 'admin' && request.userInfo.uid == '7' && request.userInfo.extra.team == ['a']",
        "request.dryRun == false",
        f"request.options.kind == '{case.operation.capitalize()}Options'" if case.operation != "CONNECT" else "true",
        "!has(request.name)" if name == "delete a collection" else "has(request.name)",
        f"namespaceObject{' == null' if name in CLUSTER_WIDE else '.metadata.name == ' + repr('berth')}",
        "object.command == ['ls', '-l'] && object.stdin && object.container == 'c'" if name == "exec" else "true",
        "request.kind.version == 'v1' && object.apiVersion == 'autoscaling/v1'" if name == "another version" else "true",
        f"request.kind.kind == '{case.object or case.old}' && request.requestKind == request.kind",
    ])  # fmt: skip
    policy(store, case.resource, expression, group=case.group)
    assert not is_refused(store, case), expression


def test_every_subresource_has_a_case():
    parts = {case.resource.partition("/")[2] for case in CASES.values()} - {""}
    assert parts == SUBRESOURCES.keys() - {"log"}, "a log is read, which no policy is for"


REVIEWS = {
    "/apis/authentication.k8s.io/v1/tokenreviews": {"spec": {"token": "x"}},
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": {},
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}},
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": {"spec": {"namespace": "berth"}},
}  # fmt: skip


@pytest.mark.parametrize("path", REVIEWS)
def test_no_policy_is_for_reviews(store, path):
    policy(store, "*/*")
    assert ask(store, "POST", path, REVIEWS[path]).code == 201


def test_policies_are_for_webhook_configurations(store):
    policy(store, "validatingwebhookconfigurations", group="admissionregistration.k8s.io")
    with pytest.raises(ApiError, match="refused"):
        ask(store, "POST", f"/apis/{GROUP}/validatingwebhookconfigurations", {"metadata": {"name": "w"}, "webhooks": []})


VERSIONS = {  # the versions of the rule and how they match → whether a request in v1 is refused, and its version then
    "the sent one": (["v1"], "Equivalent", "v1"),
    "the stored one": (["v2"], "Equivalent", "v2"),
    "the stored one, exactly": (["v2"], "Exact", None),
    "any": (["*"], "Exact", "v1"),
}


@pytest.mark.parametrize(("versions", "how", "found"), VERSIONS.values(), ids=VERSIONS)
def test_versions(store, versions, how, found):
    seen = f"request.kind.version == '{found}' && object.apiVersion == 'autoscaling/{found}'"
    seen += " && request.requestKind.version == 'v1'"
    policy(store, "horizontalpodautoscalers", seen, versions=versions, matchPolicy=how)
    assert is_refused(store, CASES["another version"]) is False
    if found is not None:
        ask(store, "DELETE", f"/apis/{GROUP}/validatingadmissionpolicies/p")
        ask(store, "DELETE", f"/apis/{GROUP}/validatingadmissionpolicybindings/p")
        policy(store, "horizontalpodautoscalers", versions=versions, matchPolicy=how)
        assert is_refused(store, CASES["another version"])


OPTIONS = {  # method, query, body → an expression that holds
    "create": ("POST", "fieldManager=m&fieldValidation=Strict&dryRun=All", {"metadata": {"name": "n"}},
               ("request.options.fieldManager == 'm' && request.options.dryRun == ['All'] && request.dryRun && "
                "request.options.fieldValidation == 'Strict' && request.options.apiVersion == 'meta.k8s.io/v1'")),
    "delete": ("DELETE", "", {"propagationPolicy": "Foreground", "gracePeriodSeconds": 3},
               "request.options.propagationPolicy == 'Foreground' && request.options.gracePeriodSeconds == 3"),
    "none": ("POST", "", {"metadata": {"name": "n"}}, "!has(request.options.fieldManager) && !has(request.options.dryRun)"),
}  # fmt: skip


@pytest.mark.parametrize(("method", "query", "body", "expression"), OPTIONS.values(), ids=OPTIONS)
def test_options(store, method, query, body, expression):
    policy(store, "configmaps", expression)
    ask(store, method, CONFIG if method == "POST" else f"{CONFIG}/chart", body, query=query)


def test_an_apply_that_creates_is_a_creation(store):
    policy(store, "configmaps", "request.options.kind == 'CreateOptions' && request.operation == 'CREATE'")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}}
    ask(store, "PATCH", f"{CONFIG}/n", config, query="fieldManager=m", form="application/apply-patch+yaml")


def test_a_mutation_of_a_scale_changes_the_workload(store):
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration",
                       "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 3}}"}}],
    }  # fmt: skip
    ask(store, "POST", f"/apis/{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": "m"}, "spec": spec})
    bound = {"metadata": {"name": "m"}, "spec": {"policyName": "m"}}
    ask(store, "POST", f"/apis/{GROUP}/mutatingadmissionpolicybindings", bound)
    ask(store, "PATCH", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 50}})
    assert json.loads(ask(store, "GET", DEPLOYMENT).body)["spec"]["replicas"] == 3


def test_what_follows_from_a_request_is_not_judged(store):
    """A new namespace gets its service account, whatever policies say of service accounts."""
    policy(store, "serviceaccounts")
    assert ask(store, "POST", "/api/v1/namespaces", {"metadata": {"name": "quay"}}).code == 201
    assert ask(store, "GET", "/api/v1/namespaces/quay/serviceaccounts/default").code == 200
