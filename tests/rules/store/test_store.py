"""The store: rejected requests, deletion, and a model of versions and watches."""

import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.rules.store.list_selection import ALL, Selection, selection
from moorage.rules.store.store import DeleteOptions, Store
from moorage.rules.store.subresources import options_of

CONFIG = find_kind("configmaps")
SPACES = find_kind("namespaces")


def pod(name="web", **more):
    spec = {"containers": [{"name": "c", "image": "nginx"}], **more.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more}, "spec": spec}


def config(name="web", **more):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}}


def refused(call, *args, **options):
    with pytest.raises(ApiError) as caught:
        call(*args, **options)
    return caught.value


# -- creating -----------------------------------------------------------------------------------------------------------


def test_a_created_object_has_the_servers_metadata(store, pods):
    before = store.version
    made = store.create(pods, "default", pod(spec={"hostname": "kept"})).document()
    assert made["metadata"]["creationTimestamp"] == "2025-06-15T15:06:40Z"
    assert made["metadata"]["resourceVersion"] == str(before + 1)
    assert made["metadata"]["generation"] == 1
    assert len(made["metadata"]["uid"]) == 36
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["spec"]["hostname"] == "kept"
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert store.get(pods, "default", "web").document() == made


def test_unknown_fields_are_kept(store, pods):
    given_pod = pod(spec={"mystery": {"deep": [1, {"x": None}]}})
    given_pod["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"port": 80}}
    made = store.create(pods, "default", given_pod).document()
    assert made["spec"]["mystery"] == {"deep": [1, {"x": None}]}
    assert made["spec"]["containers"][0]["livenessProbe"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}


def test_requests_default_to_limits(store, pods):
    asked = pod()
    asked["spec"]["containers"][0] |= {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "lifecycle": {"x": 1}}
    made = store.create(pods, "default", asked).document()
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert made["spec"]["containers"][0]["lifecycle"] == {"x": 1}
    assert made["status"]["qosClass"] == "Guaranteed"


def test_generated_names_start_with_their_prefix_and_differ(store):
    names = {store.create(CONFIG, "default", {**config(), "metadata": {"generateName": "a-"}}).name for _ in range(50)}
    assert len(names) == 50
    assert all(len(name) == 7 and name.startswith("a-") for name in names)


def test_a_sent_status_is_dropped_except_for_nodes(store, pods, nodes):
    assert store.create(pods, "default", {**pod(), "status": {"phase": "Running"}}).document()["status"]["phase"] == "Pending"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4", "pods": "9"}}}
    assert store.create(nodes, "", node).document()["status"]["allocatable"] == {"cpu": "4", "pods": "9"}


NUMBER_FOR_LABEL = (
    'Pod in version "v1" cannot be handled as a Pod: Pod default/web: metadata.labels[v]: '
    'expected str, found int 1; quote it: "1"'
)
REFUSED = {
    "no name": (
        {"metadata": {}}, 422, "Invalid",
        'Pod "" is invalid: metadata.name: Required value: name or generateName is required',
    ),
    "a taken name": (pod("held"), 409, "AlreadyExists", 'pods "held" already exists'),
    "a version": (pod(resourceVersion="5"), 500, "", "resourceVersion should not be set on objects to be created"),
    "no containers": (
        {"metadata": {"name": "x"}, "spec": {}}, 422, "Invalid",
        'Pod "x" is invalid: spec.containers: Required value',
    ),
    "a number for a label": (
        pod(labels={"v": 1}), 400, "BadRequest",
        NUMBER_FOR_LABEL,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "code", "reason", "message"), REFUSED.values(), ids=REFUSED)
def test_rejected_creations(store, pods, sent, code, reason, message):
    store.create(pods, "default", pod("held"))
    version = store.version
    error = refused(store.create, pods, "default", {"apiVersion": "v1", "kind": "Pod", **sent})
    assert (error.code, error.reason, error.message) == (code, reason, message)
    assert store.version == version


def test_an_error_becomes_a_status(store, pods):
    store.create(pods, "default", pod())
    assert refused(store.create, pods, "default", pod()).status() == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": 'pods "web" already exists',
        "reason": "AlreadyExists", "details": {"name": "web", "kind": "pods"}, "code": 409,
    }  # fmt: skip


def test_a_namespace_must_exist(store, pods):
    error = refused(store.create, pods, "nowhere", pod())
    assert (error.code, error.message) == (404, 'namespaces "nowhere" not found')


def test_a_dry_run_responds_and_changes_nothing(store, pods):
    version = store.version
    assert store.create(pods, "default", pod(), dry_run=True).document()["spec"]["restartPolicy"] == "Always"
    assert store.version == version
    assert store.find(pods, "default", "web") is None


# -- updating -----------------------------------------------------------------------------------------------------------


def test_an_update_with_an_outdated_version_is_a_conflict(store):
    first = store.create(CONFIG, "default", config())
    store.update(CONFIG, "default", "web", {**first.document(), "data": {"a": "1"}})
    error = refused(store.update, CONFIG, "default", "web", config(resourceVersion=str(first.version)))
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == (
        'Operation cannot be fulfilled on configmaps "web": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_an_update_without_a_version_replaces(store):
    made = store.create(CONFIG, "default", {**config(), "data": {"a": "1"}})
    changed = store.update(CONFIG, "default", "web", {**config(), "data": {"b": "2"}}).document()
    assert changed["data"] == {"b": "2"}
    assert changed["metadata"]["uid"] == made.document()["metadata"]["uid"]


def test_an_update_with_version_zero_replaces_too(store):
    store.create(CONFIG, "default", {**config(), "data": {"a": "1"}})
    document = {**config(), "data": {"b": "2"}}
    document["metadata"] = {**document["metadata"], "resourceVersion": "0"}
    assert store.update(CONFIG, "default", "web", document).document()["data"] == {"b": "2"}


def test_an_update_without_changes_makes_no_version(store):
    made = store.create(CONFIG, "default", config())
    assert store.update(CONFIG, "default", "web", made.document()).version == made.version == store.version


def test_an_object_recreated_under_its_name_is_a_conflict(store):
    store.create(CONFIG, "default", config())
    assert refused(store.update, CONFIG, "default", "web", config(uid="another")).code == 409


def test_status_has_its_own_path(store, pods):
    made = store.create(pods, "default", pod()).document()
    through_main = store.change(pods, "default", "web", lambda held: held["status"].update(phase="Running")).document()
    assert through_main["status"]["phase"] == "Pending"

    def edit(held):
        held["status"]["phase"] = "Running"
        held["spec"]["nodeName"] = "sneaky"
        held["metadata"]["labels"] = {"seen": "yes"}

    through_status = store.change(pods, "default", "web", edit, subresource="status").document()
    assert through_status["status"]["phase"] == "Running"
    assert through_status["spec"] == made["spec"]
    assert through_status["metadata"]["labels"] == {"seen": "yes"}


def test_generation_counts_spec_changes_only(store):
    kind = find_kind("deployments", "apps")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    sent = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    store.create(kind, "default", sent)
    labelled = store.change(kind, "default", "d", lambda held: held["metadata"].update(labels={"x": "y"}))
    assert labelled.document()["metadata"]["generation"] == 1
    scaled = store.change(kind, "default", "d", lambda held: held["spec"].update(replicas=3))
    assert scaled.document()["metadata"]["generation"] == 2


def test_a_pods_node_cannot_be_set_through_the_main_path(store, pods):
    store.create(pods, "default", pod())
    error = refused(store.change, pods, "default", "web", lambda held: held["spec"].update(nodeName="n1"))
    assert (error.code, error.reason) == (422, "Invalid")
    assert "pod updates may not change fields other than" in error.message


def test_a_scheduling_gate_can_be_removed_but_not_added(store, pods):
    store.create(pods, "default", pod(spec={"schedulingGates": [{"name": "x/y"}]}))
    error = refused(store.change, pods, "default", "web", lambda held: held["spec"]["schedulingGates"].append({"name": "x/z"}))
    assert "only deletion is allowed, but found new scheduling gate 'x/z'" in error.message
    assert store.change(pods, "default", "web", lambda held: held["spec"].pop("schedulingGates") and None)


# -- deleting -----------------------------------------------------------------------------------------------------------


def placed(store, pods, name="web"):
    store.create(pods, "default", pod(name, spec={"nodeName": "n1"}))


def test_a_pod_on_a_node_is_deleted_in_two_steps(store, pods, clock):
    placed(store, pods)
    marked = store.delete(pods, "default", "web")
    assert not marked.gone
    metadata = marked.record.document()["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] == "2025-06-15T15:07:10Z"
    again = store.delete(pods, "default", "web")
    assert again.record.version == marked.record.version
    assert store.delete(pods, "default", "web", DeleteOptions(grace_s=0)).gone
    assert store.find(pods, "default", "web") is None


def test_a_grace_period_can_only_get_shorter(store, pods):
    placed(store, pods)
    store.delete(pods, "default", "web", DeleteOptions(grace_s=10))
    longer = store.delete(pods, "default", "web", DeleteOptions(grace_s=60))
    assert longer.record.document()["metadata"]["deletionGracePeriodSeconds"] == 10
    shorter = store.delete(pods, "default", "web", DeleteOptions(grace_s=5))
    assert shorter.record.document()["metadata"]["deletionGracePeriodSeconds"] == 5


def test_a_pod_without_a_node_is_deleted_at_once(store, pods):
    store.create(pods, "default", pod())
    assert store.delete(pods, "default", "web").gone


def test_finalizers_delay_the_removal(store):
    store.create(CONFIG, "default", config(finalizers=["example.com/wait"]))
    assert not store.delete(CONFIG, "default", "web").gone
    late = refused(
        store.change, CONFIG, "default", "web", lambda held: held["metadata"]["finalizers"].append("example.com/more")
    )
    assert 'found new finalizers []string{"example.com/more"}' in late.message
    store.change(CONFIG, "default", "web", lambda held: held["metadata"].pop("finalizers") and None)
    assert store.find(CONFIG, "default", "web") is None


PRECONDITIONS = {
    "uid": (DeleteOptions(uid="other"), "the UID in the precondition (other) does not match the UID in record"),
    "version": (DeleteOptions(version="1"), "the ResourceVersion in the precondition (1) does not match the ResourceVersion"),
}


@pytest.mark.parametrize(("options", "text"), PRECONDITIONS.values(), ids=PRECONDITIONS)
def test_preconditions(store, options, text):
    store.create(CONFIG, "default", config())
    error = refused(store.delete, CONFIG, "default", "web", options)
    assert error.code == 409
    assert text in error.message


def test_a_namespace_is_deleted_with_its_content(store, pods):
    store.create(SPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    store.create(pods, "team", pod(spec={"nodeName": "n1"}))
    store.create(CONFIG, "team", config(finalizers=["example.com/wait"]))
    assert not store.delete(SPACES, "", "team").gone
    assert store.get(SPACES, "", "team").document()["status"]["phase"] == "Terminating"
    assert store.find(pods, "team", "web") is None
    assert refused(store.create, pods, "team", pod()).message == (
        'pods "web" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    store.change(CONFIG, "team", "web", lambda held: held["metadata"].pop("finalizers") and None)
    assert store.find(SPACES, "", "team") is None


def test_an_empty_namespace_is_deleted_at_once_and_system_ones_never(store):
    store.create(SPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    assert store.delete(SPACES, "", "team").gone
    assert refused(store.delete, SPACES, "", "default").code == 403


# -- listing ------------------------------------------------------------------------------------------------------------


def test_pages_show_one_version(store):
    for i in range(7):
        store.create(CONFIG, "default", config(f"m{i}"))
    first = store.page(CONFIG, Selection("default"), limit=3)
    assert [one.name for one in first.records] == ["m0", "m1", "m2"]
    assert first.remaining == 4
    store.delete(CONFIG, "default", "m4")
    store.create(CONFIG, "default", config("m35"))
    second = store.page(CONFIG, Selection("default"), limit=10, token=first.token)
    assert [one.name for one in second.records] == ["m3", "m4", "m5", "m6"]
    assert second.version == first.version
    assert not second.token


@pytest.mark.parametrize("spoil", [lambda text: text[:-2], lambda text: "AA" + text, lambda text: "!!", lambda text: "é"])
def test_a_forged_token_is_rejected(store, spoil):
    for i in range(3):
        store.create(CONFIG, "default", config(f"m{i}"))
    token = store.page(CONFIG, limit=1).token
    error = refused(store.page, CONFIG, limit=1, token=spoil(token))
    assert (error.code, error.message) == (400, "invalid continue token: continue key is not valid")


def test_a_token_is_valid_for_its_own_list_only(store):
    for i in range(3):
        store.create(CONFIG, "default", config(f"m{i}"))
    token = store.page(CONFIG, Selection("default"), limit=1).token
    assert refused(store.page, CONFIG, limit=1, token=token).code == 400
    assert refused(store.page, find_kind("secrets"), Selection("default"), limit=1, token=token).code == 400


def test_versions_no_longer_cached_are_expired(clock):
    store = Store(clock, random.Random(1), b"k", capacity=4)
    for i in range(3):
        store.create(CONFIG, "default", config(f"m{i}"))
    page = store.page(CONFIG, limit=1)
    for i in range(5):
        store.change(CONFIG, "default", "m0", lambda held, i=i: held.update(data={"i": str(i)}))
    for call in (
        lambda: store.page(CONFIG, limit=1, token=page.token),
        lambda: store.page(CONFIG, version=str(page.version), match="Exact"),
        lambda: store.watch(CONFIG, ALL, str(page.version), lambda: None),
    ):
        error = refused(call)
        assert (error.code, error.reason) == (410, "Expired")


VERSIONS = {"abc": 400, "-1": 400, "99999999999999999999": 400, "1e3": 400, "4000000": 504, "٣": 400}


@pytest.mark.parametrize(("version", "code"), VERSIONS.items())
def test_invalid_and_future_versions(store, version, code):
    assert refused(store.page, CONFIG, version=version).code == code
    watching = 500 if code == 400 else code  # as kube-apiserver does not foresee it there
    assert refused(store.watch, CONFIG, ALL, version, lambda: None, initial=True).code == watching


def test_a_watch_waits_for_a_future_version(store):
    watch = store.watch(CONFIG, ALL, str(store.version + 1), lambda: None)
    store.create(CONFIG, "default", config("first"))
    store.create(CONFIG, "default", config("second"))
    assert [seen.record.name for seen in watch.take()] == ["second"]


def test_a_version_with_a_continue_token_is_rejected(store):
    assert refused(store.page, CONFIG, version="1", token="x").code == 400


def test_selectors_restrict_lists(store, pods):
    store.create(pods, "default", pod("a", labels={"app": "x"}, spec={"nodeName": "n1"}))
    store.create(pods, "default", pod("b", labels={"app": "y"}))

    def names(labels="", fields=""):
        return [one.name for one in store.page(pods, selection(pods, "default", labels, fields)).records]

    assert names() == ["a", "b"]
    assert names(labels="app=x") == ["a"]
    assert names(labels="app notin (x)") == ["b"]
    assert names(fields="spec.nodeName=n1") == ["a"]
    assert names(fields="spec.nodeName!=n1,metadata.namespace==default") == ["b"]
    assert names(fields="metadata.name=b,status.phase=Pending") == ["b"]
    assert names(fields="spec.nodeName=") == ["b"]
    assert names(fields="metadata.name!=a,metadata.name!=c,metadata.name!=d") == ["b"]
    assert names(fields="metadata.name=a,metadata.name!=b,metadata.name=a") == ["a"]
    assert names(fields="metadata.name=a,metadata.name=b,metadata.name=c") == []


REFUSED = {  # resource, label selector, field selector: in a kube-apiserver's words
    "unknown of a pod": ("pods", "", "spec.priority=1", "field label not supported: spec.priority"),
    "namespace of a node": ("nodes", "", "metadata.namespace=x", "field label not supported: metadata.namespace"),
    "unknown of a config map": (
        "configmaps", "", "data.x=1", '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
    ),
    "replicas of a replica set": (
        "replicasets.apps", "", "status.replicas=1",
        '"status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
    ),
    "unknown of a job": ("jobs.batch", "", "status.succeeded=1", 'field label "status.succeeded" not supported for Job'),
    "unknown of a slice": (
        "resourceslices.resource.k8s.io", "", "metadata.namespace=x",
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: metadata.namespace",
    ),
    "source of a new event": ("events.events.k8s.io", "", "source=x", "field label not supported: source"),
    "no operator": (
        "pods", "", "spec.nodeName,a=b", "invalid selector: 'spec.nodeName,a=b'; can't understand 'spec.nodeName'",
    ),
    "a wrong escape": ("pods", "", r"spec.nodeName=a\b", r"invalid field selector: invalid escape sequence: \b"),
    "an escape of nothing": ("pods", "", "spec.nodeName=a\\", "invalid field selector: invalid escape sequence: \\"),
    "a value with a sign": (
        "pods", "", "spec.nodeName=a=b", "invalid field selector: unescaped character in value: 61",
    ),
    "labels without a key": ("pods", "=", "", "found '=', expected: !, identifier, or 'end of string'"),
    "labels without a list": ("pods", "a in", "", "unable to parse requirement: found '' expected: '('"),
    "two labels": ("pods", "a=1 b", "", "found 'b', expected: ',' or 'end of string'"),
}  # fmt: skip


@pytest.mark.parametrize(("resource", "labels", "fields", "text"), REFUSED.values(), ids=REFUSED)
def test_rejected_selectors(resource, labels, fields, text):
    name, _, group = resource.partition(".")
    error = refused(selection, find_kind(name, group), None, labels, fields)
    assert (error.code, error.message) == (400, text)


def test_selector_fields_with_other_locations(store):
    job = {"metadata": {"name": "j"}, "status": {"succeeded": 2}}
    event = {"metadata": {"name": "e"}, "source": {"component": "kubelet"}}
    other = {"metadata": {"name": "f"}, "reportingComponent": "controller"}
    for resource, document, field in (
        ("jobs.batch", job, "status.successful=2"), ("events", event, "source=kubelet"), ("events", other, "source=controller"),
        ("nodes", {"metadata": {"name": "n"}}, "spec.unschedulable=false"), ("pods", pod("p"), "="),
        ("clusterroles.rbac.authorization.k8s.io", {"metadata": {"name": "c"}}, "metadata.namespace="),
    ):  # fmt: skip
        name, _, group = resource.partition(".")
        kind = find_kind(name, group)
        assert selection(kind, None, "", field).matches(Record.of(kind, document, 1))


def test_a_list_reports_more_objects_even_if_the_selector_matches_none(store):
    for i in range(4):
        store.create(CONFIG, "default", {**config(f"m{i}"), "metadata": {"name": f"m{i}", "labels": {"odd": str(i % 2)}}})
    even = selection(CONFIG, "default", "odd=0", "")
    first = store.page(CONFIG, even, limit=2)
    assert ([one.name for one in first.records], first.remaining) == (["m0", "m2"], None)
    rest = store.page(CONFIG, even, limit=2, token=first.token)
    assert (rest.records, rest.token) == ([], "")


def test_a_list_at_any_version_is_not_paged(store):
    for i in range(3):
        store.create(CONFIG, "default", config(f"m{i}"))
    for more in ({"version": "0"}, {"version": "0", "match": "NotOlderThan"}):
        assert len(store.page(CONFIG, Selection("default"), limit=1, **more).records) == 3
    assert len(store.page(CONFIG, Selection("default"), limit=-1).records) == 3


# -- watching -----------------------------------------------------------------------------------------------------------


def test_a_watch_sees_objects_enter_and_leave_its_selection(store):
    version = str(store.version)
    watch = store.watch(CONFIG, selection(CONFIG, None, "on=yes", ""), version, lambda: None)
    store.create(CONFIG, "default", config())
    store.change(CONFIG, "default", "web", lambda held: held["metadata"].update(labels={"on": "yes"}))
    store.change(CONFIG, "default", "web", lambda held: held.update(data={"a": "b"}))
    store.change(CONFIG, "default", "web", lambda held: held["metadata"].update(labels={}))
    seen = watch.take()
    assert [one.type for one in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[-1].record.labels == {"on": "yes"}
    assert seen[-1].record.version == store.version == int(seen[-1].record.document()["metadata"]["resourceVersion"])


NAMES = st.sampled_from(["a", "b", "a-b", "c"])
STEPS = st.lists(st.tuples(st.sampled_from(["create", "update", "delete"]), NAMES, st.sampled_from(["x", "y"])), max_size=30)


@pytest.mark.slow
@hypothesis_settings(max_examples=30, deadline=None)
@given(steps=STEPS, start=st.integers(0, 30), label=st.sampled_from(["", "app=x", "app!=x"]))
def test_list_then_watch_equals_list(steps, start, label):
    """For any history, a list at any version plus the watch from there equals the current list, and versions only increase."""
    store = Store(lambda: 0.0, random.Random(3), b"k")
    chosen = selection(CONFIG, "default", label, "")
    base, known, watched = store.version, {}, None
    states, refusals = {}, []

    def show(page):
        return {one.name: one.version for one in page.records}

    for i, (verb, name, value) in enumerate(steps):
        if i == start:
            page = store.page(CONFIG, chosen)
            known, watched = show(page), store.watch(CONFIG, chosen, str(page.version), lambda: None)
        states[store.version] = show(store.page(CONFIG, chosen))
        try:
            if verb == "create":
                store.create(CONFIG, "default", config(name, labels={"app": value}))
            elif verb == "update":
                store.change(CONFIG, "default", name, lambda held, value=value: held["metadata"].update(labels={"app": value}))
            else:
                store.delete(CONFIG, "default", name)
        except ApiError as error:
            refusals.append((verb, error.code))
    assert set(refusals) <= {("create", 409), ("update", 404), ("delete", 404)}
    for version, state in states.items():
        assert show(store.page(CONFIG, chosen, version=str(version), match="Exact")) == state
    replayed = {}
    past = store.watch(CONFIG, chosen, str(base), lambda: None)
    for watch, state in ((past, replayed), (watched, known)):
        if watch is None:
            continue
        last = 0
        for seen in watch.take():
            assert seen.record.version > last
            last = seen.record.version
            assert (seen.record.name in state) is (seen.type != "ADDED")
            if seen.type == "DELETED":
                del state[seen.record.name]
            else:
                state[seen.record.name] = seen.record.version
        assert state == show(store.page(CONFIG, chosen))
    tokens, paged = "", []
    while True:
        page = store.page(CONFIG, chosen, limit=1, token=tokens)
        paged += page.records
        tokens = page.token
        if not tokens:
            break
    assert paged == store.page(CONFIG, chosen).records


@pytest.mark.parametrize(
    ("asked", "finalizers"),
    [({}, None), ({"propagationPolicy": "Background"}, None), ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
     ({"propagationPolicy": "Orphan"}, ["orphan"]), ({"orphanDependents": True}, ["orphan"])],
)  # fmt: skip
def test_a_deletion_waits_for_the_garbage_collector_on_request(store, asked, finalizers):
    kind = find_kind("configmaps")
    store.create(kind, "default", {"metadata": {"name": "c"}})
    store.delete(kind, "default", "c", options_of(asked))
    left = store.find(kind, "default", "c")
    assert (left and left.document()["metadata"]["finalizers"]) == finalizers


def test_a_later_deletion_may_stop_waiting(store):
    kind = find_kind("configmaps")
    store.create(kind, "default", {"metadata": {"name": "c"}})
    store.delete(kind, "default", "c", options_of({"propagationPolicy": "Foreground"}))
    store.delete(kind, "default", "c", options_of({"propagationPolicy": "Background"}))
    assert store.find(kind, "default", "c") is None


def test_an_unknown_propagation_policy_is_rejected():
    with pytest.raises(ApiError, match='supported values: "Foreground", "Background", "Orphan", "nil"'):
        options_of({"propagationPolicy": "Sideways"})


def test_an_object_of_another_cluster_keeps_its_identity_and_status(store, pods):
    sent = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w", "namespace": "default", "uid": "u-1", "resourceVersion": "77", "managedFields": [{}],
                     "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }  # fmt: skip
    held = store.adopt(pods, sent).document()
    assert held["metadata"]["uid"] == "u-1"
    assert held["metadata"]["creationTimestamp"] == "2020-01-01T00:00:00Z"
    assert held["metadata"]["resourceVersion"] == str(store.version)
    assert held["status"]["phase"] == "Running"
    assert held["spec"]["restartPolicy"] == "Always"
    with pytest.raises(ApiError, match="already exists"):
        store.adopt(pods, held)
    with pytest.raises(ApiError, match='namespaces "gone" not found'):
        store.adopt(pods, {**sent, "metadata": {"name": "w", "namespace": "gone"}})
