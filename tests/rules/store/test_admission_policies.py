"""Admission policies: which requests they are for, what they refuse and change, and in which words."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from moorage.api.cel.values import RightsDecision
from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import ALL_KINDS, served
from moorage.api.documents.statuses import ApiError
from moorage.rules.store.policy_requests import requested_by

PODS = served("pods")
CONFIG_MAPS = served("configmaps")
GROUP = "admissionregistration.k8s.io/v1"
ON_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"]}


def make(store, kind, name, spec):
    found = ALL_KINDS.find_type(GROUP, kind)
    return store.create(found, "", {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec})


def bind(store, form, spec):
    actions = {"validationActions": ["Deny"]} if form == "Validating" else {}
    make(store, f"{form}AdmissionPolicyBinding", "b", {"policyName": "p", **actions, **spec})


def validate(store, *validations, rules=ON_PODS, binding=MappingProxyType({}), **spec):
    given = [{"expression": one} if isinstance(one, str) else one for one in validations]
    spec = {"matchConstraints": {"resourceRules": [rules]}, "validations": given, **spec}
    make(store, "ValidatingAdmissionPolicy", "p", spec)
    bind(store, "Validating", binding)


def mutate(store, *mutations, rules=ON_PODS, binding=MappingProxyType({}), **spec):
    given = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": one}} if one.startswith("[") else
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": one}} for one in mutations
    ]  # fmt: skip
    constraints = {"resourceRules": [rules]}
    make(store, "MutatingAdmissionPolicy", "p",
         {"matchConstraints": constraints, "mutations": given, "reinvocationPolicy": "Never", **spec})  # fmt: skip
    bind(store, "Mutating", binding)


def a_pod(name="web", **metadata):
    containers = [{"name": "c", "image": "nginx:1"}, {"name": "d", "image": "nginx:2"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": {"containers": containers}}


def refusal(store, document=None, kind=PODS, namespace="default"):
    with pytest.raises(ApiError) as refused:
        store.create(kind, namespace, a_pod() if document is None else document)
    return refused.value


DENIED = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
NO_KEY = "expression 'object.metadata.labels.team != \"\"' resulted in error: no such key: labels"
VIOLATIONS = {  # validation → message, code and reason
    "the expression": ("object.metadata.name != 'web'", ("failed expression: object.metadata.name != 'web'", 422, "Invalid")),
    "a message": ({"expression": "false", "message": " no "}, ("no", 422, "Invalid")),
    "a message that is made": (
        {"expression": "false", "message": "no", "messageExpression": "'not ' + object.metadata.name"},
        ("not web", 422, "Invalid"),
    ),
    "a message that cannot be made": (
        {"expression": "false", "message": "no", "messageExpression": "string(object.no)"}, ("no", 422, "Invalid"),
    ),
    "a message of two lines": (
        {"expression": "false", "messageExpression": "'a\\nb'"}, ("failed expression: false", 422, "Invalid"),
    ),
    "a reason": ({"expression": "false", "reason": "Forbidden"}, ("failed expression: false", 403, "Forbidden")),
    "an error": ("object.metadata.labels.team != \"\"", (NO_KEY, 422, "Invalid")),
    "over a list": ("object.spec.containers.all(c, c.image.endsWith(':1'))",
                    ("failed expression: object.spec.containers.all(c, c.image.endsWith(':1'))", 422, "Invalid")),
}  # fmt: skip


@pytest.mark.parametrize(("validation", "found"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_refused(store, validation, found):
    validate(store, validation)
    refused = refusal(store)
    message, code, reason = found
    assert (refused.code, refused.reason) == (code, reason)
    assert str(refused) == f'pods "web" is forbidden: {DENIED}{message}'
    assert store.find(PODS, "default", "web") is None


SATISFIED = {
    "request": "request.operation == 'CREATE' && request.kind.kind == 'Pod' && request.namespace == 'default'",
    "user": "request.userInfo.username == 'system:apiserver'",
    "old object": "oldObject == null",
    "namespace": "namespaceObject.metadata.name == 'default'",
    "defaults": "object.spec.restartPolicy == 'Always'",
    "head": "object.apiVersion == 'v1' && object.kind == 'Pod'",
    "absence": "!has(object.metadata.labels) || object.metadata.labels.size() == 0",
}


@pytest.mark.parametrize("expression", SATISFIED.values(), ids=SATISFIED)
def test_what_expressions_see(store, expression):
    validate(store, expression)
    store.create(PODS, "default", a_pod())


BAD_SELECTORS = {  # the selector → the fault
    "no operator": ({"matchExpressions": [{"key": "a"}]}, 'operator: Invalid value: "": not a valid selector operator'),
    "no value": ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "values: Required value: must be specified"),
    "a value that is no label": (
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["a.b/c"]}]}, 'values[0]: Invalid value: "a.b/c"',
    ),
    "a label that is no label value": ({"matchLabels": {"a": "b/c"}}, 'matchLabels: Invalid value: "b/c"'),
}  # fmt: skip


@pytest.mark.parametrize("form", ["Mutating", "Validating"])
@pytest.mark.parametrize(("selector", "fault"), BAD_SELECTORS.values(), ids=BAD_SELECTORS)
def test_selectors_are_checked(store, selector, fault, form):
    """A selector that cannot be read would refuse every write that it is asked about."""
    make_rule = validate if form == "Validating" else mutate
    for part in ("namespaceSelector", "objectSelector"):
        with pytest.raises(ApiError) as refused:
            make_rule(store, "true", matchConstraints={"resourceRules": [ON_PODS], part: selector})
        assert refused.value.code == 422
        assert f"spec.matchConstraints.{part}." in str(refused.value)
        assert fault in str(refused.value)
    for place, part in (("matchResources", "objectSelector"), ("paramRef", "selector")):
        other = {"parameterNotFoundAction": "Deny"} if place == "paramRef" else {}
        with pytest.raises(ApiError) as refused:
            bind(store, form, {place: {part: selector, **other}})
        assert f"spec.{place}.{part}." in str(refused.value)


def test_variables_and_conditions(store):
    validate(
        store, "variables.images.all(i, i.startsWith('nginx'))", "variables.count == 1",
        variables=[
            {"name": "images", "expression": "object.spec.containers.map(c, c.image)"},
            {"name": "count", "expression": "variables.images.size()"},
        ],
        matchConditions=[{"name": "not-system", "expression": "!object.metadata.name.startsWith('system')"}],
    )  # fmt: skip
    store.create(PODS, "default", a_pod("system-1"))
    assert str(refusal(store)).endswith("failed expression: variables.count == 1")


def test_an_update_sees_both_versions_and_a_deletion_the_old_one(store):
    made = store.create(PODS, "default", a_pod(labels={"a": "1"}))
    rules = {**ON_PODS, "operations": ["UPDATE", "DELETE"]}
    validate(store, "request.operation == 'DELETE' ? oldObject.metadata.labels.a == '9' && object == null : "
             "object.metadata.labels.a == oldObject.metadata.labels.a", rules=rules)  # fmt: skip
    document = made.document()
    document["metadata"]["labels"] = {"a": "2"}
    with pytest.raises(ApiError, match="denied request: failed expression"):
        store.update(PODS, "default", "web", document)
    with pytest.raises(ApiError, match="denied request: failed expression"):
        store.delete(PODS, "default", "web")
    assert store.get(PODS, "default", "web").labels == {"a": "1"}


MATCHES = {  # rules, the rest of the constraints → whether a pod web, labelled app=web, in default is meant
    "all": ({"resources": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}, {}, True),
    "another operation": ({"operations": ["DELETE"]}, {}, False),
    "another group": ({"apiGroups": ["apps"]}, {}, False),
    "a subresource": ({"resources": ["pods/status"]}, {}, False),
    "all parts": ({"resources": ["pods/*"]}, {}, True),
    "of clusters": ({"scope": "Cluster"}, {}, False),
    "of namespaces": ({"scope": "Namespaced"}, {}, True),
    "by name": ({"resourceNames": ["web"]}, {}, True),
    "by another name": ({"resourceNames": ["api"]}, {}, False),
    "its labels": ({}, {"objectSelector": {"matchLabels": {"app": "web"}}}, True),
    "other labels": ({}, {"objectSelector": {"matchLabels": {"app": "api"}}}, False),
    "its namespace": ({}, {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
    "another namespace": (
        {}, {"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]}}, False,
    ),
    "excluded": ({}, {"excludeResourceRules": [ON_PODS]}, False),
}  # fmt: skip


@pytest.mark.parametrize("place", ["policy", "binding"])
@pytest.mark.parametrize(("rules", "more", "is_meant"), MATCHES.values(), ids=MATCHES)
def test_which_requests_are_meant(store, rules, more, is_meant, place):
    wanted = {"resourceRules": [{**ON_PODS, **rules}], **more}
    if place == "policy":
        validate(store, "false", matchConstraints=wanted)
    else:
        validate(store, "false", binding={"matchResources": wanted})
    if is_meant:
        refusal(store, a_pod(labels={"app": "web"}))
    else:
        store.create(PODS, "default", a_pod(labels={"app": "web"}))


def config(name, most, **labels):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"most": most}}


PARAMS = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}


def test_parameters(store):
    store.create(CONFIG_MAPS, "default", config("few", "1", size="few"))
    store.create(CONFIG_MAPS, "default", config("many", "9", size="many"))
    reference = {"name": "few", "parameterNotFoundAction": "Deny"}
    few = "object.spec.containers.size() <= int(params.data.most)"
    message = {"expression": few, "messageExpression": "'at most ' + params.data.most"}
    validate(store, message, binding={"paramRef": reference}, **PARAMS)
    assert str(refusal(store)).endswith("denied request: at most 1")


def test_every_selected_parameter_counts(store):
    for name, most in (("few", "1"), ("many", "9")):
        store.create(CONFIG_MAPS, "default", config(name, most, limit="yes"))
    reference = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"}
    validate(store, "object.spec.containers.size() <= int(params.data.most)", binding={"paramRef": reference}, **PARAMS)
    refusal(store)
    store.delete(CONFIG_MAPS, "default", "few")
    store.create(PODS, "default", a_pod())


@pytest.mark.parametrize(("action", "fails"), [("Deny", True), ("Allow", False)])
def test_parameters_that_are_missing(store, action, fails):
    validate(store, "false", binding={"paramRef": {"name": "none", "parameterNotFoundAction": action}}, **PARAMS)
    if fails:
        assert "no params found for policy binding with `Deny` parameterNotFoundAction" in str(refusal(store))
    else:
        store.create(PODS, "default", a_pod())


def test_a_warning_does_not_refuse(store):
    validate(store, "false", binding={"validationActions": ["Warn", "Audit"]})
    with requested_by(User("jane", ("dev",))) as warnings:
        store.create(PODS, "default", a_pod())
    assert warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false"]


def test_the_user_is_that_of_the_request(store):
    validate(store, "request.userInfo.username == 'jane' && 'dev' in request.userInfo.groups")
    refusal(store)
    with requested_by(User("jane", ("dev",))):
        store.create(PODS, "default", a_pod())


@pytest.mark.parametrize("expression", ["object.nothing == 1", "object.spec.containers[9].name == 'x'"])
def test_errors_are_ignored_if_the_policy_says_so(store, expression):
    validate(store, expression, failurePolicy="Ignore")
    store.create(PODS, "default", a_pod())


def test_policies_are_not_for_policies(store):
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    validate(store, "false", rules=everything)
    refusal(store, config("c", "1"), CONFIG_MAPS)
    store.delete(ALL_KINDS.find_type(GROUP, "ValidatingAdmissionPolicyBinding"), "", "b")
    store.create(CONFIG_MAPS, "default", config("c", "1"))


def test_without_a_binding_or_a_policy_nothing_is_refused(store):
    make(store, "ValidatingAdmissionPolicy", "p",
         {"matchConstraints": {"resourceRules": [ON_PODS]}, "validations": [{"expression": "false"}]})  # fmt: skip
    make(store, "ValidatingAdmissionPolicyBinding", "b", {"policyName": "other", "validationActions": ["Deny"]})
    store.create(PODS, "default", a_pod())


def test_a_changed_policy_counts_at_once(store):
    validate(store, "false")
    kind = ALL_KINDS.find_type(GROUP, "ValidatingAdmissionPolicy")
    document = store.get(kind, "", "p").document()
    document["spec"]["validations"] = [{"expression": "true"}]
    store.update(kind, "", "p", document)
    store.create(PODS, "default", a_pod())


MUTATIONS = {  # expressions, the field that is looked at, its value
    "labels": (
        ["Object{metadata: Object.metadata{labels: {'team': 'a'}}}"], ("metadata", "labels"), {"app": "web", "team": "a"},
    ),
    "an item of a list by its key": (
        ["Object{spec: Object.spec{containers: [Object.spec.containers{name: 'd', image: 'other'}]}}"],
        ("spec", "containers", 1, "image"), "other",
    ),
    "an added item": (
        ["Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'i', image: 'x'}]}}"],
        ("spec", "initContainers", 0, "terminationMessagePath"), "/dev/termination-log",
    ),
    "a patch": (
        ["[JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'disk': 'ssd'}}]"],
        ("spec", "nodeSelector"), {"disk": "ssd"},
    ),
    "two, in order": (
        ["Object{metadata: Object.metadata{labels: {'n': '1'}}}",
         "[JSONPatch{op: 'replace', path: '/metadata/labels/n', value: object.metadata.labels.n + '2'}]"],
        ("metadata", "labels", "n"), "12",
    ),
    "an optional field": (
        ["Object{metadata: Object.metadata{?labels: optional.none()}}"], ("metadata", "labels"), {"app": "web"},
    ),
    "a list that is computed": (
        ["[] + object.spec.containers.map(c, JSONPatch{op: 'add', path: '/spec/containers/0/image', value: c.image + '-x'})"],
        ("spec", "containers", 0, "image"), "nginx:2-x",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("expressions", "path", "value"), MUTATIONS.values(), ids=MUTATIONS)
def test_an_object_is_changed(store, expressions, path, value):
    mutate(store, *expressions)
    held = store.create(PODS, "default", a_pod(labels={"app": "web"})).document()
    for step in path:
        held = held[step]
    assert held == value


def test_a_change_is_checked_by_the_policies_that_refuse(store):
    mutate(store, "Object{metadata: Object.metadata{labels: {'team': 'a'}}}")
    spec = {
        "matchConstraints": {"resourceRules": [ON_PODS]},
        "validations": [{"expression": "object.metadata.labels.team == 'b'"}],
    }
    make(store, "ValidatingAdmissionPolicy", "p", spec)
    bind(store, "Validating", {})
    refusal(store)


NO_CHANGES = {
    "a field that is not there": (
        "Object{metadata: Object.metadata{nosuch: 'x'}}",
        (
            "policy 'p' with binding 'b' denied request: failed to convert patch object to typed object: "
            ".metadata.nosuch: field not declared in schema"
        ),
    ),
    "an atomic list": (
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'd', args: ['x']}]}}",
        "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args",
    ),
    "another name": ("Object{metadata: Object.metadata{name: 'other'}}", "must not change the identity of the object"),
    "a path that leads nowhere": ("[JSONPatch{op: 'remove', path: '/spec/no'}]", "denied request: JSON Patch: "),
    "an error": ("Object{metadata: Object.metadata{labels: {'a': object.no}}}", "no such key: no"),
}


@pytest.mark.parametrize(("expression", "why"), NO_CHANGES.values(), ids=NO_CHANGES)
def test_a_mutation_that_fails_refuses_the_request(store, expression, why):
    mutate(store, expression)
    refused = refusal(store)
    assert why in str(refused)
    assert (refused.code, refused.reason) == (403, "Invalid")


def test_a_patch_whose_test_fails_is_not_applied(store):
    mutate(store, "[JSONPatch{op: 'test', path: '/metadata/name', value: 'other'},"
           " JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]")  # fmt: skip
    assert store.create(PODS, "default", a_pod()).labels == {}


def test_a_patch_with_an_unknown_field_is_an_error_of_the_server(store):
    mutate(store, "[JSONPatch{op: 'add', path: '/spec/nosuch', value: 1}]")
    refused = refusal(store)
    assert refused.code == 500
    assert str(refused) == 'Internal error occurred: strict decoding error: unknown field "spec.nosuch"'


BAD_EXPRESSIONS = {  # what is written → the place and the fault
    "a name": (
        {"validations": [{"expression": "tide == 1"}]}, "spec.validations[0].expression", "undeclared reference to 'tide'",
    ),
    "a syntax": ({"validations": [{"expression": "object.spec +"}]}, "spec.validations[0].expression", "Syntax error"),
    "a type": (
        {"validations": [{"expression": "'text'"}]}, "spec.validations[0].expression", "must evaluate to bool but got string",
    ),
    "a message": (
        {"validations": [{"expression": "true", "messageExpression": "1"}]}, "spec.validations[0].messageExpression",
        "must evaluate to string but got int",
    ),
    "a message that asks for rights": (
        {"validations": [{"expression": "true", "messageExpression": "authorizer.path('/x').check('get').reason()"}]},
        "spec.validations[0].messageExpression", "undeclared reference to 'authorizer'",
    ),
    "parameters without a kind of them": (
        {"validations": [{"expression": "params.x"}]}, "spec.validations[0].expression", "undeclared reference to 'params'",
    ),
    "a field of requests": (
        {"validations": [{"expression": "request.uid == ''"}]}, "spec.validations[0].expression", "undefined field 'uid'",
    ),
    "a field of namespaces": (
        {"validations": [{"expression": "namespaceObject.metadata.managedFields == []"}]}, "spec.validations[0].expression",
        "undefined field 'managedFields'",
    ),
    "a variable that comes later": (
        {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}],
         "validations": [{"expression": "true"}]},
        "spec.variables[0].expression", "variables",
    ),
    "a variable's type": (
        {"variables": [{"name": "a", "expression": "'x'"}], "validations": [{"expression": "variables.a > 1"}]},
        "spec.validations[0].expression", "found no matching overload for '_>_' applied to '(string, int)'",
    ),
    "a condition": (
        {"matchConditions": [{"name": "c", "expression": "1"}], "validations": [{"expression": "true"}]},
        "spec.matchConditions[0].expression", "must evaluate to bool but got int",
    ),
    "an annotation": (
        {"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}, "spec.auditAnnotations[0].valueExpression",
        "must evaluate to one of [string null_type] but got int",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "place", "fault"), BAD_EXPRESSIONS.values(), ids=BAD_EXPRESSIONS)
def test_an_expression_is_compiled_when_it_is_written(store, spec, place, fault):
    with pytest.raises(ApiError) as refused:
        make(store, "ValidatingAdmissionPolicy", "p", {"matchConstraints": {"resourceRules": [ON_PODS]}, **spec})
    assert refused.value.code == 422
    assert f"{place}: Invalid value: " in str(refused.value)
    assert fault in str(refused.value)


BAD_MUTATIONS = {
    "no patch": ("[1]", "must evaluate to list(JSONPatch) but got list(int)"),
    "no object": ("'text'", "must evaluate to Object but got string"),
    "a field of patches": ("[JSONPatch{op: 'add', road: '/x'}]", "undefined field 'road'"),
}


@pytest.mark.parametrize(("expression", "fault"), BAD_MUTATIONS.values(), ids=BAD_MUTATIONS)
def test_a_mutation_is_compiled_when_it_is_written(store, expression, fault):
    with pytest.raises(ApiError) as refused:
        mutate(store, expression)
    assert refused.value.code == 422
    assert fault in str(refused.value)


RIGHTS = {
    "authorizer.group('apps').resource('deployments').namespace('default').check('create').allowed()": True,
    "authorizer.group('apps').resource('deployments').namespace('kube-system').check('create').allowed()": False,
    "authorizer.requestResource.check('create').allowed()": True,
    "authorizer.requestResource.subresource('exec').check('create').allowed()": False,
    "authorizer.path('/healthz').check('get').allowed()": False,
    "authorizer.serviceAccount('default', 'default').requestResource.check('create').allowed()": False,
    "authorizer.requestResource.check('create').reason() == 'as the test says'": True,
    "authorizer.requestResource.check('create').errored()": False,
}


@pytest.mark.parametrize(("expression", "holds"), RIGHTS.items(), ids=RIGHTS)
def test_an_expression_asks_for_rights(store, expression, holds):
    def decide(user, parts):
        return RightsDecision(
            user is None and parts.get("namespace") == "default" and not parts.get("subresource") and "path" not in parts,
            "as the test says",
        )

    validate(store, expression)
    with requested_by(User("jane"), decide=decide):
        if holds:
            store.create(PODS, "default", a_pod())
        else:
            refusal(store)


def test_a_mutation_with_variables_and_conditions(store):
    mutate(
        store, "Object{metadata: Object.metadata{labels: {'images': variables.n}}}",
        variables=[{"name": "n", "expression": "string(object.spec.containers.size())"}],
        matchConditions=[{"name": "web", "expression": "object.metadata.name == 'web'"}],
    )  # fmt: skip
    assert store.create(PODS, "default", a_pod()).labels == {"images": "2"}
    assert store.create(PODS, "default", a_pod("api")).labels == {}


REINVOKED = {  # reinvocation policy of a and of b → what they make of a pod: a counts its calls and says what it saw of b
    "neither": ("Never", "Never", "a", "b"),
    "the first": ("IfNeeded", "Never", "aa", "b"),
    "the last": ("Never", "IfNeeded", "a", "bb"),
    "both": ("IfNeeded", "IfNeeded", "aa", "bb"),
}


@pytest.mark.parametrize(("first", "last", "a", "b"), REINVOKED.values(), ids=REINVOKED)
def test_policies_are_invoked_again_once_if_needed(store, first, last, a, b):
    """Who asks for it is invoked a second time, also if it made the last change itself. Answers of kube-apiserver 1.37.2."""
    for name, again in (("a", first), ("b", last)):
        held = f"(object.metadata.?labels['{name}'].orValue(''))"
        made = f"Object{{metadata: Object.metadata{{labels: {{'{name}': {held} + '{name}'}}}}}}"
        spec = {
            "matchConstraints": {"resourceRules": [ON_PODS]}, "reinvocationPolicy": again,
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": made}}],
        }  # fmt: skip
        make(store, "MutatingAdmissionPolicy", name, spec)
        make(store, "MutatingAdmissionPolicyBinding", name, {"policyName": name})
    labels = store.create(PODS, "default", a_pod()).document()["metadata"]["labels"]
    assert (labels["a"], labels["b"]) == (a, b)


def test_a_policy_whose_condition_held_only_later_is_not_invoked_again(store):
    condition = {"name": "late", "expression": "has(object.metadata.labels)"}
    for name, conditions in (("a", [condition]), ("b", [])):
        made = f"Object{{metadata: Object.metadata{{labels: {{'{name}': 'x'}}}}}}"
        spec = {
            "matchConstraints": {"resourceRules": [ON_PODS]}, "reinvocationPolicy": "IfNeeded", "matchConditions": conditions,
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": made}}],
        }  # fmt: skip
        make(store, "MutatingAdmissionPolicy", name, spec)
        make(store, "MutatingAdmissionPolicyBinding", name, {"policyName": name})
    assert store.create(PODS, "default", a_pod()).document()["metadata"]["labels"] == {"b": "x"}
