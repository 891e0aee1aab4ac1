"""Custom kinds: definitions, their names and versions, and what happens to their objects."""

import copy

import pytest

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import built_in_kinds
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.http.serve import open_store
from moorage.cluster.apiserver.schema import discovery, openapi
from moorage.rules.store.list_selection import ALL
from tests.cluster.apiserver.custom_kinds import APPLY, DEFINITIONS, MERGE, WIDGETS, ask, define, definition, message, widget

SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "color": {"type": "string", "default": "red"},
        "replicas": {"type": "integer"},
        "parts": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}  # fmt: skip
SUBRESOURCES = {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}


@pytest.fixture
def widgets(store):
    """A store with a definition of widgets."""
    define(store, definition(SPEC, subresources=SUBRESOURCES))
    return store


def kind_of(store, version="v1"):
    return store.kinds.find("widgets", "example.com", version)


def with_versions(*more, **changes):
    document = definition(SPEC, **changes)
    document["spec"]["versions"] += more
    return document


def conditions(store, name="widgets.example.com"):
    _, found = ask(store, "GET", f"{DEFINITIONS}/{name}")
    return {one["type"]: (one["status"], one["reason"]) for one in found["status"]["conditions"]}


# -- definitions ----------------------------------------------------------------------------------------------------------


def test_a_definition_is_established_when_it_is_stored(widgets):
    assert conditions(widgets) == {
        "NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")
    }  # fmt: skip
    _, found = ask(widgets, "GET", f"{DEFINITIONS}/widgets.example.com")
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"] == found["spec"]["names"]
    assert (found["spec"]["names"]["singular"], found["spec"]["names"]["listKind"]) == ("widget", "WidgetList")


APPROVALS = {
    "by a URL": ("https://github.com/kubernetes/enhancements/pull/1", "True", "ApprovedAnnotation", "approved in https://"),
    "not approved": ("unapproved, experimental", "False", "UnapprovedAnnotation", 'not approved: "unapproved, experimental"'),
}


@pytest.mark.parametrize(("text", "status", "reason", "said"), APPROVALS.values(), ids=APPROVALS)
def test_a_group_of_the_project_has_a_condition_on_its_approval(widgets, text, status, reason, said):
    document = definition(SPEC)
    document["metadata"] = {"name": "widgets.x-k8s.io", "annotations": {"api-approved.kubernetes.io": text}}
    document["spec"]["group"] = "x-k8s.io"
    define(widgets, document)
    assert "KubernetesAPIApprovalPolicyConformant" not in conditions(widgets, "widgets.x-k8s.io")  # x-k8s.io is another group
    document["metadata"] = {"name": "widgets.sub.k8s.io", "annotations": {"api-approved.kubernetes.io": text}}
    document["spec"]["group"] = "sub.k8s.io"
    define(widgets, document)
    _, found = ask(widgets, "GET", f"{DEFINITIONS}/widgets.sub.k8s.io")
    condition = found["status"]["conditions"][0]
    assert condition["type"] == "KubernetesAPIApprovalPolicyConformant"
    assert (condition["status"], condition["reason"]) == (status, reason)
    assert condition["message"].startswith(said)
    found["metadata"]["annotations"]["api-approved.kubernetes.io"] = "https://example.com/other"
    ask(widgets, "PUT", f"{DEFINITIONS}/widgets.sub.k8s.io", found)
    assert conditions(widgets, "widgets.sub.k8s.io")["KubernetesAPIApprovalPolicyConformant"] == ("True", "ApprovedAnnotation")


def test_a_taken_name_is_not_accepted_until_it_is_free(widgets):
    other = definition(SPEC)
    other["metadata"]["name"] = "others.example.com"
    other["spec"]["names"] = {"plural": "others", "kind": "Other", "shortNames": ["wd"]}
    define(widgets, other)
    assert conditions(widgets, "others.example.com") == {
        "NamesAccepted": ("False", "ShortNamesConflict"), "Established": ("False", "NotAccepted")
    }  # fmt: skip
    assert ask(widgets, "GET", "/apis/example.com/v1/others")[0] == 404
    ask(widgets, "DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert conditions(widgets, "others.example.com")["Established"][0] == "True"
    assert ask(widgets, "GET", "/apis/example.com/v1/others")[0] == 200


def test_discovery_and_openapi_follow_the_definitions(store):
    before = store.kinds
    define(store, with_versions(OLDER))
    group = discovery.group_document(["example.com"], store.kinds)
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]
    (listed,) = discovery.resource_list("example.com", "v1", store.kinds)["resources"]
    assert (listed["singularName"], listed["shortNames"]) == ("widget", ["wd"])
    assert "apis/example.com/v1" in openapi.index(store.kinds)["paths"]
    shown = openapi.document_of("apis/example.com/v1", store.kinds)["components"]["schemas"]["com.example.v1.Widget"]
    assert shown["properties"]["spec"] == SPEC
    old = openapi.swagger(store.kinds)["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]
    assert old["free"] == {"x-kubernetes-preserve-unknown-fields": True}, "version 2 cannot express objects with unknown fields"
    ask(store, "DELETE", f"{DEFINITIONS}/widgets.example.com")
    assert store.kinds is before is built_in_kinds(store.kinds.gates, store.kinds.server_version)


def webhook(versions=("v1",), **config):
    return {"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": [*versions]}}


WRONG = {
    "a name of another kind": (
        lambda d: d["metadata"].update(name="gadgets.example.com"),
        'metadata.name: Invalid value: "gadgets.example.com": must be spec.names.plural+"."+spec.group',
    ),
    "no storage version": (
        lambda d: d["spec"]["versions"][0].update(storage=False),
        "must have exactly one version marked as storage version",
    ),
    "no schema": (
        lambda d: d["spec"]["versions"][0].pop("schema"),
        "spec.versions[0].schema.openAPIV3Schema: Required value",
    ),
    "a schema that is not structural": (
        lambda d: spec_of(d)["properties"].update(bad={}),
        ".properties[spec].properties[bad].type: Required value: must not be empty for specified object fields",
    ),
    "a default of the wrong type": (
        lambda d: spec_of(d)["properties"].update(bad={"type": "integer", "default": "x"}),
        '.properties[spec].properties[bad].default in body must be of type integer: "string"',
    ),
    "a broken pattern": (
        lambda d: spec_of(d)["properties"].update(bad={"type": "string", "pattern": "("}),
        "must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
    ),
    "keys that items lack": (
        lambda d: spec_of(d)["properties"]["parts"].update({"x-kubernetes-list-map-keys": ["id"]}),
        'x-kubernetes-list-map-keys: Invalid value: ["id"]: entries must all be names of item properties',
    ),
    "a protected group": (
        lambda d: (d["spec"].update(group="x.k8s.io"), d["metadata"].update(name="widgets.x.k8s.io")),
        "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation",
    ),
    "a webhook without an address": (
        lambda d: d["spec"].update(conversion={"strategy": "Webhook"}),
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
    ),
    "a webhook that is called in two places": (
        lambda d: d["spec"].update(conversion=webhook(url="https://a", service={"name": "a", "namespace": "b"})),
        "exactly one of url or service is required",
    ),
    "a webhook without a version": (
        lambda d: d["spec"].update(conversion=webhook([], url="https://a")),
        "spec.conversion.conversionReviewVersions: Required value",
    ),
    "a webhook of no known version": (
        lambda d: d["spec"].update(conversion=webhook(["v2"], url="https://a")),
        'spec.conversion.conversionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1',
    ),
    "a webhook without encryption": (
        lambda d: d["spec"].update(conversion=webhook(url="http://a")),
        "'https' is the only allowed URL scheme",
    ),
    "a junctor with a type": (
        lambda d: spec_of(d).update(anyOf=[{"type": "object"}]),
        "spec.validation.openAPIV3Schema.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
    ),
}  # fmt: skip


def spec_of(document):
    return document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


@pytest.mark.parametrize(("spoil", "why"), WRONG.values(), ids=WRONG)
def test_a_wrong_definition_is_refused(store, spoil, why):
    document = copy.deepcopy(definition(SPEC))
    spoil(document)
    code, told = message(ask(store, "POST", DEFINITIONS, document))
    assert code == 422
    assert why in told


def test_a_schema_nested_too_deeply_is_refused(store):
    deep = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(ApiError, match="nested deeper than 50 levels"):
        store.create(store.kinds.find("customresourcedefinitions", "apiextensions.k8s.io", "v1"), "", definition(deep))


# -- versions -------------------------------------------------------------------------------------------------------------

OLDER = {
    "name": "v1beta1", "served": True, "storage": False, "deprecated": True,
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"size": {"type": "integer"}}}}}},
}  # fmt: skip
OLD_WIDGETS = WIDGETS.replace("/v1/", "/v1beta1/")


def test_an_object_is_served_in_each_version(store):
    define(store, with_versions(OLDER))
    ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))
    code, shown = ask(store, "GET", f"{OLD_WIDGETS}/a")
    assert (code, shown["apiVersion"], shown["spec"]) == (200, "example.com/v1beta1", {"size": 2}), "it has no color there"
    code, changed = ask(store, "PATCH", f"{OLD_WIDGETS}/a", {"spec": {"size": 3}}, form=MERGE)
    assert (code, changed["apiVersion"]) == (200, "example.com/v1beta1")
    _, stored = ask(store, "GET", f"{WIDGETS}/a")
    assert (stored["apiVersion"], stored["spec"], stored["metadata"]["generation"]) == ("example.com/v1", {"size": 3}, 2)
    _, listed = ask(store, "GET", OLD_WIDGETS)
    assert [one["apiVersion"] for one in listed["items"]] == ["example.com/v1beta1"]
    assert ask(store, "DELETE", f"{OLD_WIDGETS}/a")[0] == 200
    assert store.count(kind_of(store)) == 0


def test_a_watch_shows_the_version_that_it_asked_for(store):
    define(store, with_versions(OLDER))
    ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))
    watch = store.watch(kind_of(store, "v1beta1"), ALL, "", lambda: None)
    seen = watch.take()
    ask(store, "PATCH", f"{WIDGETS}/a", {"spec": {"size": 3}}, form=MERGE)
    ask(store, "DELETE", f"{WIDGETS}/a")
    seen += watch.take()
    assert [one.type for one in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert {one.record.document()["apiVersion"] for one in seen} == {"example.com/v1beta1"}


def test_a_watch_shows_how_its_kind_ends(widgets):
    ask(widgets, "POST", WIDGETS, widget("a", spec={"size": 2}))
    watch = widgets.watch(kind_of(widgets), ALL, "", lambda: None)
    seen = watch.take()
    assert ask(widgets, "DELETE", f"{DEFINITIONS}/widgets.example.com")[0] == 200
    assert widgets.kinds.find_stored("widgets.example.com") is None
    assert not watch.closed, "it has not shown the end of the object"
    seen += watch.take()
    assert [one.type for one in seen] == ["ADDED", "DELETED"]
    assert watch.closed


def test_the_storage_version_can_move(store):
    define(store, with_versions(OLDER))
    ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))
    watch = store.watch(kind_of(store), ALL, "", lambda: None)
    assert [one.type for one in watch.take()] == ["ADDED"]
    moved = [{"storage": False}, {"storage": True}]
    _, held = ask(store, "GET", f"{DEFINITIONS}/widgets.example.com")
    for version, change in zip(held["spec"]["versions"], moved, strict=True):
        version.update(change)
    code, changed = ask(store, "PUT", f"{DEFINITIONS}/widgets.example.com", held)
    assert (code, changed["status"]["storedVersions"]) == (200, ["v1", "v1beta1"])
    assert kind_of(store).stored_as is kind_of(store, "v1beta1")
    assert watch.closed, "its clients list again"
    shown = ask(store, "GET", f"{WIDGETS}/a")[1]
    assert (shown["apiVersion"], shown["spec"]) == ("example.com/v1", {"size": 2}), "the stored version has no color"


def test_a_deprecated_version_warns(store):
    define(store, with_versions(OLDER))
    assert kind_of(store, "v1beta1").custom.warning == "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"
    assert kind_of(store).custom.warning == ""


def test_a_changed_schema_shows_stored_objects_anew(widgets):
    ask(widgets, "POST", WIDGETS, widget("a", spec={"size": 2, "replicas": 1}))
    version = ask(widgets, "GET", f"{WIDGETS}/a")[1]["metadata"]["resourceVersion"]
    _, held = ask(widgets, "GET", f"{DEFINITIONS}/widgets.example.com")
    properties = spec_of(held)["properties"]
    properties["shape"] = {"type": "string", "default": "round"}
    del properties["replicas"]
    assert ask(widgets, "PUT", f"{DEFINITIONS}/widgets.example.com", held)[0] == 200
    shown = ask(widgets, "GET", f"{WIDGETS}/a")[1]
    assert (shown["spec"], shown["metadata"]["resourceVersion"]) == ({"size": 2, "color": "red", "shape": "round"}, version)


# -- objects --------------------------------------------------------------------------------------------------------------


def test_an_object_is_pruned_and_defaulted(widgets):
    code, made = ask(widgets, "POST", WIDGETS, widget("a", spec={"size": 2, "x": 1, "free": {"y": 1}}, status={"a": 1}, z=1))
    assert (code, made["spec"]) == (201, {"size": 2, "free": {"y": 1}, "color": "red"})
    assert "status" not in made
    assert "z" not in made
    assert made["metadata"]["generation"] == 1
    told = message(ask(widgets, "POST", f"{WIDGETS}?fieldValidation=Strict", widget("b", spec={"x": 1})))
    assert told == (400, 'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.x"')


def test_status_and_generation(widgets):
    ask(widgets, "POST", WIDGETS, widget("a", spec={"size": 2}))
    _, shown = ask(widgets, "PATCH", f"{WIDGETS}/a/status", {"status": {"ok": True}, "spec": {"size": 9}}, form=MERGE)
    assert (shown["status"], shown["spec"]["size"], shown["metadata"]["generation"]) == ({"ok": True}, 2, 1)
    _, shown = ask(widgets, "PATCH", f"{WIDGETS}/a", {"status": None, "spec": {"size": 3}}, form=MERGE)
    assert (shown["status"], shown["metadata"]["generation"]) == ({"ok": True}, 2)


def test_scale(widgets):
    ask(widgets, "POST", WIDGETS, widget("a", spec={"replicas": 2}))
    _, scale = ask(widgets, "GET", f"{WIDGETS}/a/scale")
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 2}, {"replicas": 0})
    ask(widgets, "PATCH", f"{WIDGETS}/a/scale", {"spec": {"replicas": 5}}, form=MERGE)
    assert ask(widgets, "GET", f"{WIDGETS}/a")[1]["spec"]["replicas"] == 5
    told = message(ask(widgets, "PATCH", f"{WIDGETS}/a", {"spec": {"replicas": -1}}, form=MERGE))
    assert told[0] == 422
    assert ".spec.replicas: Invalid value: -1: should be a non-negative integer" in told[1]


def test_apply_merges_lists_by_their_keys(widgets):
    def apply(who, **spec):
        return ask(widgets, "PATCH", f"{WIDGETS}/a?fieldManager={who}", widget("a", spec=spec), form=APPLY)

    assert apply("one", parts=[{"name": "x", "n": 1}], free={"a": 1})[0] == 201
    assert apply("two", parts=[{"name": "y", "n": 2}], free={"b": 2})[0] == 200
    _, shown = ask(widgets, "GET", f"{WIDGETS}/a")
    assert shown["spec"]["parts"] == [{"name": "x", "n": 1}, {"name": "y", "n": 2}]
    assert shown["spec"]["free"] == {"a": 1, "b": 2}
    code, told = message(apply("two", parts=[{"name": "x", "n": 3}]))
    assert (code, told) == (409, 'Apply failed with 1 conflict: conflict with "one": .spec.parts[name="x"].n')
    assert "field not declared in schema" in message(apply("one", unknown=1))[1]


def test_columns_show_values_at_paths(store):
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "None", "type": "string", "jsonPath": ".spec.nothing", "priority": 1},
    ]
    define(store, definition(SPEC, additionalPrinterColumns=columns))
    status = {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "yes"}]}
    ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}, status=status))
    _, shown = ask(store, "GET", WIDGETS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [(one["name"], one["priority"]) for one in shown["columnDefinitions"]][1:] == [
        ("Size", 0),
        ("Ready", 0),
        ("None", 1),
    ]
    assert shown["rows"][0]["cells"] == ["a", 2, "yes", None]


def test_selectable_fields(store):
    define(store, definition(SPEC, selectableFields=[{"jsonPath": ".spec.color"}]))
    for name, color in (("a", "red"), ("b", "blue")):
        ask(store, "POST", WIDGETS, widget(name, spec={"color": color}))
    _, found = ask(store, "GET", f"{WIDGETS}?fieldSelector=spec.color=blue")
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]
    assert message(ask(store, "GET", f"{WIDGETS}?fieldSelector=spec.size=1")) == (400, "field label not supported: spec.size")


def test_a_kind_named_like_a_built_in_one_has_none_of_its_rules(store):
    document = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    document["metadata"]["name"] = "pods.example.com"
    document["spec"]["names"] = {"plural": "pods", "kind": "Pod"}
    define(store, document)
    made = {**widget("a", spec={"containers": 1, "nodeName": "n"}), "kind": "Pod"}
    path = WIDGETS.replace("widgets", "pods")
    code, shown = ask(store, "POST", path, made)
    assert (code, shown["spec"]) == (201, {"containers": 1, "nodeName": "n"})
    assert ask(store, "DELETE", f"{path}/a")[1]["status"] == "Success"


# -- deletion and persistence ---------------------------------------------------------------------------------------------


def test_a_deleted_definition_takes_its_objects_along(widgets):
    ask(widgets, "POST", WIDGETS, widget("a", spec={}))
    kept = widget("kept", spec={})
    kept["metadata"]["finalizers"] = ["example.com/wait"]
    ask(widgets, "POST", WIDGETS, kept)
    assert ask(widgets, "DELETE", f"{DEFINITIONS}/widgets.example.com")[0] == 200
    assert [one["metadata"]["name"] for one in ask(widgets, "GET", WIDGETS)[1]["items"]] == ["kept"]
    assert conditions(widgets)["Terminating"] == ("True", "InstanceDeletionPending")
    code, told = message(ask(widgets, "POST", WIDGETS, widget("b", spec={})))
    assert code == 403
    assert told.endswith("is forbidden: create not allowed while custom resource definition is terminating")
    ask(widgets, "PATCH", f"{WIDGETS}/kept", {"metadata": {"finalizers": None}}, form=MERGE)
    assert ask(widgets, "GET", f"{DEFINITIONS}/widgets.example.com")[0] == 404
    assert ask(widgets, "GET", WIDGETS)[0] == 404


def test_a_file_keeps_definitions_and_objects(tmp_path):
    store = open_store(tmp_path / "data", seed=1)
    define(store, definition(SPEC))
    ask(store, "POST", WIDGETS, widget("a", spec={"size": 2}))
    store.close()
    again = open_store(tmp_path / "data", seed=1)
    try:
        assert ask(again, "GET", f"{WIDGETS}/a")[1]["spec"] == {"size": 2, "color": "red"}
        assert conditions(again)["Established"][0] == "True"
        ask(again, "DELETE", f"{DEFINITIONS}/widgets.example.com")
        assert ask(again, "GET", WIDGETS)[0] == 404
    finally:
        again.close()


def test_namespaces_empty_themselves_of_custom_objects(widgets):
    ask(widgets, "POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    ask(widgets, "POST", WIDGETS.replace("default", "x"), widget("a", spec={}))
    ask(widgets, "DELETE", "/api/v1/namespaces/x")
    assert widgets.count(kind_of(widgets)) == 0


def test_the_status_of_a_definition_belongs_to_the_server(store):
    define(store, definition({"type": "object"}))
    found = ask(store, "GET", f"{DEFINITIONS}/widgets.example.com")[1]
    owners = {one["manager"]: one for one in found["metadata"]["managedFields"]}
    status = owners["kube-apiserver"]["fieldsV1"]["f:status"]
    assert owners["kube-apiserver"]["subresource"] == "status"
    assert [*status["f:conditions"]] == ['k:{"type":"Established"}', 'k:{"type":"NamesAccepted"}']
    assert "f:plural" in status["f:acceptedNames"]


def test_a_definition_has_no_grace_period(store):
    define(store, definition({"type": "object"}))
    metadata = ask(store, "DELETE", f"{DEFINITIONS}/widgets.example.com?dryRun=All")[1]["metadata"]
    assert "deletionTimestamp" in metadata
    assert "deletionGracePeriodSeconds" not in metadata


def test_a_write_reads_no_other_definition(store, monkeypatch):
    """The cost of one write is the same with any number of definitions."""
    read = []

    def counted(record, original=Record.document):
        read.append(record.name)
        return original(record)

    monkeypatch.setattr(Record, "document", counted)
    needed = []
    for i in range(30):
        made = copy.deepcopy(definition(SPEC))
        made["metadata"]["name"] = f"things{i}.example.com"
        made["spec"]["names"] = {"plural": f"things{i}", "kind": f"Thing{i}"}
        read.clear()
        define(store, made)
        needed.append(len([name for name in read if name.endswith(".example.com")]))
    assert set(needed) == {needed[0]}, needed
    assert all(store.kinds.find(f"things{i}", "example.com", "v1") for i in range(30))
