"""Field management: what updates record, and what server-side apply derives from it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.documents.served_kinds import KINDS, find_kind
from moorage.api.documents.statuses import ApiError
from moorage.api.fields.field_merge import compare, field_set, merge, type_faults
from moorage.api.fields.fieldsets import (
    difference,
    intersection,
    is_field_set,
    paths,
    shown,
    union,
    union_all,
    without,
)  # fmt: skip
from moorage.api.fields.managed_fields import LAST_APPLIED, FieldManager, apply, manager_of, track
from moorage.api.schema.field_types import Struct
from moorage.api.schema.schemas import kind_schema

NOW = "2026-01-01T00:00:00Z"
DEPLOYMENTS = kind_schema(find_kind("deployments", "apps"))
PODS = kind_schema(find_kind("pods"))


def test_every_kind_has_a_schema():
    for kind in KINDS:
        fields = kind_schema(kind).fields
        assert {"apiVersion", "kind", "metadata"} <= set(fields)
        assert isinstance(fields["metadata"].type, Struct)


# -- sets ---------------------------------------------------------------------------------------------------------------


def has(held, path):
    for element in path:
        if element not in held:
            return False
        held = held[element]
    return not held or "." in held


ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"c"}', 'v:"x"', "f:d"])
PATHS = st.sets(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=12)


def set_of(all_paths):
    made = {}
    for path in all_paths:
        one = {}
        for element in reversed(path):
            one = {element: one}
        made = union(made, one)
    return made


@given(PATHS, PATHS)
@settings(max_examples=75)
def test_field_sets_are_sets_of_paths(left, right):
    one, two = set_of(left), set_of(right)
    assert set(paths(one)) == left
    assert is_field_set(one)
    assert set(paths(union(one, two))) == left | right
    assert set(paths(intersection(one, two))) == left & right
    assert set(paths(difference(one, two))) == left - right
    kept = {path for path in left if not any(path[: len(other)] == other for other in right)}
    assert set(paths(without(one, two))) == kept
    assert all(has(one, path) for path in left)
    assert not any(has(one, path) for path in right - left)


@given(st.lists(PATHS, max_size=4))
@settings(max_examples=50)
def test_the_union_of_many_sets_has_all_their_paths(many):
    assert set(paths(union_all(map(set_of, many)))) == set().union(*many)


NO_SETS = [None, [], {"x": {}}, {"q:x": 1}, {"f:a": None}, {"k:{": {}}, {"k:1": {}}, {"i:x": {}}]


@pytest.mark.parametrize("sent", NO_SETS, ids=str)
def test_invalid_field_sets_are_detected(sent):
    assert not is_field_set(sent)


def test_paths_are_shown_in_readable_form():
    path = ("f:spec", "f:ports", 'k:{"protocol":"TCP","containerPort":80}', "f:name")
    assert shown(path) == '.spec.ports[containerPort=80,protocol="TCP"].name'
    assert shown(("f:metadata", "f:finalizers", 'v:"x/y"')) == '.metadata.finalizers[="x/y"]'


# -- updates ------------------------------------------------------------------------------------------------------------


def created_by_kubectl():
    """Return the managers of a deployment on a real cluster after ``kubectl create deployment``."""
    own = (
        ".",
        "f:image",
        "f:imagePullPolicy",
        "f:name",
        "f:resources",
        "f:terminationMessagePath",
        "f:terminationMessagePolicy",
    )
    container = {key: {} for key in own}
    plain = ("f:dnsPolicy", "f:restartPolicy", "f:schedulerName", "f:securityContext", "f:terminationGracePeriodSeconds")
    labels = {"f:labels": {".": {}, "f:app": {}}}
    return {
        "f:metadata": labels,
        "f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": labels,
                "f:spec": {"f:containers": {'k:{"name":"nginx"}': container}, **{key: {} for key in plain}},
            },
        },
    }  # fmt: skip


def test_a_new_object_is_managed_by_its_creator(store):
    document = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "nginx", "labels": {"app": "nginx"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "nginx"}},
            "template": {"metadata": {"labels": {"app": "nginx"}}, **template(container("nginx", image="nginx"))},
        },
        "status": {"replicas": 7},
    }  # fmt: skip
    kind = find_kind("deployments", "apps")
    record = store.create(kind, "default", document, manager=FieldManager("kubectl-create", version="apps/v1"))
    [entry] = record.document()["metadata"]["managedFields"]
    assert entry.pop("fieldsV1") == created_by_kubectl()
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "manager": "kubectl-create", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
    }  # fmt: skip


def deployment(**spec):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def updater(name, subresource=""):
    return FieldManager(name, version="apps/v1", subresource=subresource)


def applier(name):
    return FieldManager(name, applies=True)


def managers(document):
    """Return the fields of every manager, as texts."""
    return {
        (one["manager"], one["operation"]): sorted(shown(path) for path in paths(one["fieldsV1"]))
        for one in document["metadata"].get("managedFields", [])
    }


def test_a_changed_field_gets_the_new_manager():
    first = deployment(replicas=1, paused=True)
    track(DEPLOYMENTS, None, first, updater("a"), NOW)
    second = {**deployment(replicas=2, minReadySeconds=3), "metadata": dict(first["metadata"])}
    track(DEPLOYMENTS, first, second, updater("b"), NOW)
    assert managers(second) == {("b", "Update"): [".spec.minReadySeconds", ".spec.replicas"]}


EVENTS = kind_schema(find_kind("events", "events.k8s.io"))
texts = st.sampled_from([None, "", "x", "y"])
labels = st.dictionaries(st.sampled_from("ab"), texts)
events = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("e")}, optional={"labels": labels})},
    optional={
        "action": texts,
        "note": texts,
        "deprecatedCount": st.sampled_from([None, 0, 1, 2]),
        "regarding": st.dictionaries(st.sampled_from(["kind", "name", "unknown"]), texts),
        "series": st.none() | st.fixed_dictionaries({"count": st.sampled_from([0, 3])}),
    },
)


@settings(max_examples=30)
@given(st.lists(events, min_size=2, max_size=6))
def test_a_new_object_s_fields_do_not_depend_on_cached_ones(documents):
    for document in documents:
        changed = compare(EVENTS, {"metadata": {}}, document)
        wanted = difference(union(changed.added, changed.modified), set_of([("f:metadata",), ("f:metadata", "f:name")]))
        track(EVENTS, None, document, updater("a"), NOW)
        entries = document["metadata"].get("managedFields", [])
        assert [entry["fieldsV1"] for entry in entries] == ([wanted] if wanted else [])


def test_unchanged_fields_keep_their_manager():
    first = deployment(replicas=1)
    track(DEPLOYMENTS, None, first, updater("a"), NOW)
    again = json.loads(json.dumps(first))
    track(DEPLOYMENTS, first, again, updater("b"), "2027-01-01T00:00:00Z")
    assert again == first


def test_an_object_without_managers_stays_so():
    first, second = deployment(replicas=1), deployment(replicas=2)
    track(DEPLOYMENTS, first, second, updater("b"), NOW)
    assert "managedFields" not in second["metadata"]


@pytest.mark.parametrize("sent", [[], [{}]], ids=["none", "an empty one"])
def test_a_client_may_reset_the_managers(sent):
    first = deployment(replicas=1)
    track(DEPLOYMENTS, None, first, updater("a"), NOW)
    second = deployment(replicas=2)
    second["metadata"]["managedFields"] = sent
    track(DEPLOYMENTS, first, second, updater("b"), NOW)
    assert managers(second) == {}


def test_old_update_managers_are_merged():
    document = deployment(replicas=0)
    track(DEPLOYMENTS, None, document, updater("m00"), "2026-01-01T00:00:00Z")
    for i in range(1, 14):
        later = json.loads(json.dumps(document))
        later["metadata"].setdefault("labels", {})[f"l{i}"] = "x"
        track(DEPLOYMENTS, document, later, updater(f"m{i:02}"), f"2026-01-01T00:00:{i:02}Z")
        document = later
    names = [one["manager"] for one in document["metadata"]["managedFields"]]
    assert len(names) == 10
    assert names[0] == "ancient-changes"
    assert ".metadata.labels.l1" in managers(document)["ancient-changes", "Update"]


def test_managers_are_named_after_the_user_agent():
    assert manager_of("given", "kubectl/v1.32") == "given"
    assert manager_of("", "kubectl/v1.32 (linux)") == "kubectl"
    assert manager_of("", "py\x07thon/3 " + "x" * 300) == "python"
    assert len(manager_of("", "y" * 300)) == 128


# -- apply --------------------------------------------------------------------------------------------------------------


def applied(live, config, name="me", force=False):
    assert not list(type_faults(DEPLOYMENTS, config))
    return apply(DEPLOYMENTS, live, config, applier(name), NOW, force=force)


def container(name="c", **more):
    return {"name": name, **more}


def template(*containers):
    return {"spec": {"containers": list(containers)}}


def test_a_field_no_longer_applied_is_removed_unless_another_manager_owns_it():
    first = applied(None, deployment(replicas=1, paused=True, minReadySeconds=5))
    second = applied(first, deployment(paused=True), "you")
    third = applied(second, deployment(replicas=1))
    assert third["spec"] == {"replicas": 1, "paused": True}
    assert managers(third) == {("me", "Apply"): [".spec.replicas"], ("you", "Apply"): [".spec.paused"]}


def test_equal_values_are_shared_and_different_ones_conflict():
    first = applied(None, deployment(replicas=1, paused=True))
    shared = applied(first, deployment(replicas=1), "you")
    assert managers(shared)["you", "Apply"] == [".spec.replicas"]
    with pytest.raises(ApiError) as refused:
        applied(shared, deployment(replicas=3), "her")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert str(refused.value) == (
        'Apply failed with 2 conflicts: conflicts with "me":\n- .spec.replicas\nconflicts with "you":\n- .spec.replicas'
    )
    assert [cause.document() for cause in refused.value.causes] == [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{name}"', "field": ".spec.replicas"}
        for name in ("me", "you")
    ]
    forced = applied(shared, deployment(replicas=3), "her", force=True)
    assert forced["spec"]["replicas"] == 3
    assert managers(forced) == {("me", "Apply"): [".spec.paused"], ("her", "Apply"): [".spec.replicas"]}


def test_a_conflict_with_an_update_names_version_and_subresource():
    live = deployment(replicas=1)
    track(DEPLOYMENTS, None, live, updater("hpa", "scale"), NOW)
    with pytest.raises(ApiError) as refused:
        applied(live, deployment(replicas=2))
    why = 'conflict with "hpa" with subresource "scale" using apps/v1'
    assert str(refused.value) == f"Apply failed with 1 conflict: {why}: .spec.replicas"


def test_objects_without_managers_belong_to_before_first_apply():
    with pytest.raises(ApiError, match=r'conflict with "before-first-apply" using apps/v1: \.spec\.replicas'):
        applied(deployment(replicas=1), deployment(replicas=2))


def test_associative_lists_are_applied_by_key():
    first = applied(None, deployment(template=template(container("a", image="x"), container("b", image="y"))))
    second = applied(first, deployment(template=template(container("side", image="z"))), "you")
    names = [one["name"] for one in second["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["a", "b", "side"]
    third = applied(second, deployment(template=template(container("b", image="y2"))))
    kept = {one["name"]: one["image"] for one in third["spec"]["template"]["spec"]["containers"]}
    assert kept == {"b": "y2", "side": "z"}


def test_applying_the_same_again_changes_nothing():
    first = applied(None, deployment(replicas=1, template=template(container("a"), container("b"))))
    again = apply(DEPLOYMENTS, first, deployment(replicas=1, template=template(container("b"), container("a"))), applier("me"),
                  "2030-01-01T00:00:00Z")  # fmt: skip
    assert again == first


def test_kubectl_applies_over_its_own_last_configuration():
    live = deployment(replicas=1, paused=True)
    text = json.dumps(deployment(replicas=1))
    live["metadata"]["annotations"] = {LAST_APPLIED: text}
    track(DEPLOYMENTS, None, live, updater("kubectl-client-side-apply"), NOW)
    made = applied(live, deployment(replicas=4), "kubectl")
    assert made["spec"]["replicas"] == 4
    renewed = json.loads(made["metadata"]["annotations"][LAST_APPLIED])
    assert renewed["spec"] == {"replicas": 4}
    assert "annotations" not in renewed["metadata"]  # none but this one
    with pytest.raises(ApiError, match=r"conflict: .*: \.spec\.paused"):
        applied(live, deployment(replicas=4, paused=False), "kubectl")


UNFIT = {
    "an unknown field": ({"spec": {"foo": 1}}, ".spec.foo: field not declared in schema"),
    "a text for a number": (
        {"spec": {"replicas": "3"}}, '.spec.replicas: expected numeric (int or float), got string',
    ),
    "a list for a map": ({"metadata": {"labels": []}}, ".metadata.labels: expected map, got &{[]}"),
    "the same thing twice": (
        {"spec": {"template": template(container(), container())}},
        '.spec.template.spec.containers: duplicate entries for key [name="c"]',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "wanted"), UNFIT.values(), ids=UNFIT)
def test_type_errors_are_reported(config, wanted):
    assert list(type_faults(DEPLOYMENTS, config)) == [wanted]


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, NAMES)
@settings(max_examples=100)
def test_merged_lists_have_all_items_in_the_applied_order(live, config):
    shape = PODS.fields["spec"].type
    held, given_ = (
        {"containers": [container(name, image=where) for name in names]} for where, names in (("l", live), ("c", config))
    )
    merged = [(one["name"], one["image"]) for one in merge(shape, held, given_)["containers"]]
    names = [name for name, _ in merged]
    assert sorted(names) == sorted({*live, *config})
    assert [name for name in names if name in config] == config
    assert all(image == ("c" if name in config else "l") for name, image in merged)
    if not set(live) & set(config):
        assert [name for name in names if name in live] == live


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "paused": st.booleans(),
        "template": st.lists(st.builds(container, st.sampled_from("abc"), image=st.sampled_from("xy")), min_size=1, max_size=3,
                             unique_by=lambda one: one["name"]).map(lambda found: template(*found)),
    },
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["me", "you"]), SPECS), min_size=1, max_size=5))
@settings(max_examples=75)
def test_an_applied_object_has_what_each_manager_applied_last(steps):
    """With force, each step's own fields have the applied values, and fields that no manager applies are removed."""
    live = None
    for name, spec in steps:
        config = deployment(**spec)
        live = applied(live, config, name, force=True)
        changed = compare(DEPLOYMENTS, config, merge(DEPLOYMENTS, live, config))
        assert not changed.removed
        assert not set(paths(compare(DEPLOYMENTS, live, merge(DEPLOYMENTS, live, config)).modified))
    owned = {path for one in live["metadata"].get("managedFields", []) for path in paths(one["fieldsV1"])}
    there = {path for path in paths(field_set(DEPLOYMENTS, live)) if path[0] == "f:spec" and len(path) > 1}
    assert there <= owned
