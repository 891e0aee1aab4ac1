"""Pod groups and workloads on the server: served where the gate is open, checked in its words, kept while pods need them.

What is expected here was compared with the answers of a kube-apiserver v1.36.2 that had the same gates open.
"""

import asyncio
import random
import time

import msgspec
import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.api.schema.protobuf import read_protobuf, write_protobuf
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.bootstrap import bootstrap_objects
from moorage.cluster.apiserver.http.serve import serving
from moorage.cluster.apiserver.tables.tables import table
from moorage.rules.store.store import Store

GROUPS = find_kind("podgroups", "scheduling.k8s.io", "v1alpha2")
WORKLOADS = find_kind("workloads", "scheduling.k8s.io", "v1alpha2")
PODS = find_kind("pods")
JOBS = find_kind("jobs", "batch")
ALL = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true"
DEVICES = f"{ALL},DRAWorkloadResourceClaims=true"
GANG = {"gang": {"minCount": 2}}
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters"


def store_with(gates):
    return Store(time.time, random.Random(5), b"k", gates=FeatureGates.parse(gates, "1.36"))


def group(name="g", policy=GANG, **spec):
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **spec},
    }  # fmt: skip


def template(name="t", **more):
    return {"name": name, "schedulingPolicy": GANG, **more}


def workload(*templates, name="w", **spec):
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "metadata": {"name": name},
        "spec": {"podGroupTemplates": list(templates), **spec},
    }  # fmt: skip


def made(store, document):
    kind = GROUPS if document["kind"] == "PodGroup" else WORKLOADS
    return store.create(kind, "default", msgspec.json.decode(msgspec.json.encode(document))).document()


def refusal(call, *args, **more):
    with pytest.raises(ApiError) as caught:
        call(*args, **more)
    return caught.value.code, caught.value.message


def pod(name="p", **spec):
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


# -- what a group becomes -----------------------------------------------------------------------------------------------


def test_a_group_gets_its_priority_mode_and_finalizer():
    held = made(store_with(ALL), {**group(), "status": {"conditions": [{"type": "A"}]}})
    assert held["spec"] == {
        "schedulingPolicy": GANG, "disruptionMode": "Pod", "priority": 0, "podGroupTemplateRef": None,
    }  # fmt: skip
    assert held["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    assert held["status"] == {}
    assert "generation" not in held["metadata"]


def test_a_priority_class_sets_the_priority_of_a_group():
    store = store_with(ALL)
    classes = find_kind("priorityclasses", "scheduling.k8s.io")
    named = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    store.create(classes, "", named)
    assert made(store, group(priorityClassName="high"))["spec"]["priority"] == 1000
    code, text = refusal(made, store, group("h", priorityClassName="high", priority=5))
    assert code == 403
    assert text == (
        'podgroups.scheduling.k8s.io "h" is forbidden: priority set in the pod group (5) must match the priority computed '
        "(1000) based on the priority class set in the spec"
    )
    code, text = refusal(made, store, group("h", priorityClassName="none"))
    assert (code, text.partition(": ")[2]) == (403, "no PriorityClass with name none was found")


def test_gated_fields_are_dropped_with_disabled_gates():
    store = store_with("GenericWorkload=true")
    constraints = {"topology": [{"key": "rack"}]}
    asked = {
        "schedulingConstraints": constraints, "disruptionMode": "PodGroup", "priorityClassName": "none", "priority": 7,
        "resourceClaims": [{"name": "a", "resourceClaimName": "b"}],
    }  # fmt: skip
    assert made(store, group(**asked))["spec"] == {
        "schedulingPolicy": GANG, "disruptionMode": "Pod", "podGroupTemplateRef": None,
    }  # fmt: skip
    held = made(store, workload(template(**asked)))
    assert held["spec"]["podGroupTemplates"] == [{**template(), "schedulingConstraints": None}]


def test_a_disabled_gate_keeps_existing_fields():
    store = store_with(ALL)
    made(store, group(schedulingConstraints={"topology": [{"key": "rack"}]}, disruptionMode="PodGroup"))
    store.gates = FeatureGates.parse("GenericWorkload=true", "1.36")
    held = store.change(GROUPS, "default", "g", lambda one: one["metadata"].update(labels={"a": "b"})).document()
    assert held["spec"]["schedulingConstraints"] == {"topology": [{"key": "rack"}]}
    assert held["spec"]["priority"] == 0

    def by_pods(one):
        one["spec"]["disruptionMode"] = "Pod"

    code, text = refusal(store.change, GROUPS, "default", "g", by_pods)
    assert (code, text) == (422, 'PodGroup.scheduling.k8s.io "g" is invalid: spec.disruptionMode: Forbidden')


@pytest.mark.parametrize("gates", ["", "GenericWorkload=true"])
def test_pods_keep_their_group_with_the_gate_enabled(gates):
    store = store_with(gates)
    held = store.create(PODS, "default", pod(schedulingGroup={"podGroupName": "g"})).document()
    assert ("schedulingGroup" in held["spec"]) is bool(gates)
    sets = find_kind("replicasets", "apps")
    inner = {"metadata": {"labels": {"a": "b"}}, "spec": pod(schedulingGroup={"podGroupName": "g"})["spec"]}
    document = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": inner}}  # fmt: skip
    spec = store.create(sets, "default", document).document()["spec"]["template"]["spec"]
    assert ("schedulingGroup" in spec) is bool(gates)


# -- what is refused ----------------------------------------------------------------------------------------------------

MISSING = "must specify one of: `basic`, `gang`"
TWO_SOURCES = (
    'spec.resourceClaims[1]: Invalid value: "{resourceClaimName, resourceClaimTemplateName}": '
    "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`"
)
REFUSED = {  # what is asked → the faults
    "no policy": (group(policy={}), [f'spec.schedulingPolicy: Invalid value: "": {MISSING}']),
    "two policies, no count": (group(policy={"basic": {}, "gang": {}}), [
        'spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`',
        "spec.schedulingPolicy.gang.minCount: Required value",
    ]),
    "a count below one": (group(policy={"gang": {"minCount": -3}}), [
        "spec.schedulingPolicy.gang.minCount: Invalid value: -3: must be greater than or equal to 1"]),
    "an invalid mode": (group(disruptionMode="All"), [
        'spec.disruptionMode: Unsupported value: "All": supported values: "Pod", "PodGroup"']),
    "a system class": (group(priorityClassName="system-cluster-critical"), [
        "spec.priority: Invalid value: 2000000000: must be less than or equal to 1000000000"]),
    "no key": (group(schedulingConstraints={"topology": [{"key": ""}]}), [
        "spec.schedulingConstraints.topology[0].key: Required value"]),
    "two keys": (group(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}), [
        "spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item"]),
    "an origin that names nothing": (group(podGroupTemplateRef={}), [
        'spec.podGroupTemplateRef: Invalid value: "": must specify one of: `workload`']),
    "an origin without names": (group(podGroupTemplateRef={"workload": {}}), [
        "spec.podGroupTemplateRef.workload.workloadName: Required value",
        "spec.podGroupTemplateRef.workload.podGroupTemplateName: Required value"]),
    "no templates": (workload(), ["spec.podGroupTemplates: Required value"]),
    "nine templates": (workload(*(template(f"t{i}") for i in range(9))), [
        "spec.podGroupTemplates: Too many: 9: must have at most 8 items"]),
    "an invalid controller": (workload(template(), controllerRef={"kind": "a/b", "name": ".."}), [
        'spec.controllerRef.kind: Invalid value: "a/b": may not contain \'/\'',
        'spec.controllerRef.name: Invalid value: "..": may not be \'..\'']),
    "five claims": (group(resourceClaims=[{"name": f"a{i}", "resourceClaimName": "x"} for i in range(5)]), [
        "spec.resourceClaims: Too many: 5: must have at most 4 items"]),
    "claims of no and two sources": (
        group(resourceClaims=[{"name": "a"}, {"name": "b", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]),
        ['spec.resourceClaims[0]: Invalid value: "": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`',
         TWO_SOURCES]),
}  # fmt: skip


@pytest.mark.parametrize(("document", "faults"), REFUSED.values(), ids=REFUSED)
def test_rejected_groups_and_workloads(document, faults):
    code, text = refusal(made, store_with(DEVICES), document)
    said = text.partition(" is invalid: ")[2]
    assert (code, said) == (422, faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")


def test_names_are_validated():
    code, text = refusal(
        made, store_with(DEVICES), workload(template("A_"), template("t"), template("t", priorityClassName="A_"))
    )
    assert code == 422
    assert 'spec.podGroupTemplates[2]: Duplicate value: {"name":"t"' in text
    assert 'spec.podGroupTemplates[0].name: Invalid value: "A_": a lowercase RFC 1123 label must' in text
    assert f'spec.podGroupTemplates[2].priorityClassName: Invalid value: "A_": {SUBDOMAIN}' in text


def test_the_group_of_a_pod_is_validated():
    store = store_with(ALL)
    code, text = refusal(store.create, PODS, "default", pod(schedulingGroup={}))
    assert (code, text) == (
        422, 'Pod "p" is invalid: spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`'
    )  # fmt: skip
    code, text = refusal(store.create, PODS, "default", pod(schedulingGroup={"podGroupName": "A_"}))
    assert code == 422
    assert f'spec.schedulingGroup.podGroupName: Invalid value: "A_": {SUBDOMAIN}' in text
    store.create(PODS, "default", pod(schedulingGroup={"podGroupName": "not-there"}))


# -- what changes -------------------------------------------------------------------------------------------------------


def test_only_metadata_of_groups_and_workloads_can_change():
    store = store_with(DEVICES)
    made(store, group())
    changes = {
        "podGroupTemplateRef": {"workload": {"workloadName": "", "podGroupTemplateName": ""}}, "schedulingPolicy": {},
        "schedulingConstraints": {}, "resourceClaims": [{"name": "a"}], "disruptionMode": "PodGroup",
        "priorityClassName": "none", "priority": None,
    }  # fmt: skip
    code, text = refusal(store.change, GROUPS, "default", "g", lambda one: one["spec"].update(changes))
    faults = ", ".join(f"spec.{name}: Invalid value: null: field is immutable" for name in changes)
    assert (code, text) == (422, f'PodGroup.scheduling.k8s.io "g" is invalid: [{faults}]')
    made(store, workload(template(), controllerRef={"kind": "Job", "name": "j"}))
    code, text = refusal(store.update, WORKLOADS, "default", "w", workload(template("z")))
    assert text.endswith("[spec.controllerRef: Invalid value: null: field is immutable, "
                         "spec.podGroupTemplates: Invalid value: null: field is immutable]")  # fmt: skip
    held = store.change(GROUPS, "default", "g", lambda one: one["metadata"].update(labels={"a": "b"})).document()
    assert held["metadata"]["labels"] == {"a": "b"}


def condition(**more):
    return {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": "", **more}  # fmt: skip


def test_the_status_subresource_changes_the_status_only():
    store = store_with(ALL)
    made(store, group())

    def edit(one):
        one["metadata"] |= {"labels": {"a": "b"}, "finalizers": []}
        one["spec"]["schedulingPolicy"] = {"basic": {}}
        one["status"] = {"conditions": [condition()], "resourceClaimStatuses": [{"name": "a"}]}

    held = store.change(GROUPS, "default", "g", edit, subresource="status").document()
    assert held["status"] == {"conditions": [condition()]}
    assert "labels" not in held["metadata"]
    assert len(held["metadata"]["finalizers"]) == 1
    assert held["spec"]["schedulingPolicy"] == GANG
    kept = store.change(GROUPS, "default", "g", lambda one: one.update(status={})).document()
    assert kept["status"] == {"conditions": [condition()]}


STATUSES = {
    "no type": (
        {"conditions": [condition(type="")]}, 'status.conditions[0].type: Invalid value: "": name part must be non-empty',
    ),
    "no such status": (
        {"conditions": [condition(status="X")]},
        'status.conditions[0].status: Unsupported value: "X": supported values: "False", "True", "Unknown"',
    ),
    "no reason": ({"conditions": [condition(reason="")]}, "status.conditions[0].reason: Required value"),
    "a reason in words": (
        {"conditions": [condition(reason="a b")]},
        'status.conditions[0].reason: Invalid value: "a b": a condition reason must start with alphabetic character',
    ),
    "no time": (
        {"conditions": [condition(lastTransitionTime=None)]}, "status.conditions[0].lastTransitionTime: Required value",
    ),
    "an early generation": (
        {"conditions": [condition(observedGeneration=-1)]},
        "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
    ),
    "a long message": (
        {"conditions": [condition(message="x" * 32769)]},
        "status.conditions[0].message: Too long: may not be more than 32768 bytes",
    ),
    "twice": (
        {"conditions": [condition(), condition()]},
        'status.conditions[1].type: Duplicate value: "PodGroupScheduled"',
    ),
    "a claim that was not requested": (
        {"resourceClaimStatuses": [{"name": "b"}]},
        'status.resourceClaimStatuses[0].name: Invalid value: "b": must match the name of an entry in `spec.resourceClaims`',
    ),
    "a claim of no name": (
        {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "A_"}]},
        f'status.resourceClaimStatuses[0].resourceClaimName: Invalid value: "A_": {SUBDOMAIN}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "fault"), STATUSES.values(), ids=STATUSES)
def test_rejected_statuses(status, fault):
    store = store_with(DEVICES)
    made(store, group(resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]))
    code, text = refusal(
        store.change, GROUPS, "default", "g", lambda one: one.update(status=status), subresource="status"
    )  # fmt: skip
    assert code == 422
    assert fault in text


def test_a_group_references_an_existing_template():
    store = store_with(ALL)
    origin = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    prefix = 'podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: '
    assert refusal(made, store, group(podGroupTemplateRef=origin)) == (403, f'{prefix}Workload "w" not found')
    made(store, workload(template("other")))
    why = f'{prefix}PodGroupTemplate "t" not found in Workload "w"'
    assert refusal(made, store, group(podGroupTemplateRef=origin)) == (403, why)
    store.change(WORKLOADS, "default", "w", lambda one: one["metadata"].update(finalizers=["a.b/c"]))
    store.delete(WORKLOADS, "default", "w")
    why = f'{prefix}Workload "w" is being deleted'
    assert refusal(made, store, group(podGroupTemplateRef=origin)) == (403, why)


def a_job(**spec):
    inner = {"restartPolicy": "Never", **pod()["spec"], **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": {"spec": inner}}}  # fmt: skip


@pytest.mark.parametrize("by_name", [True, False])
def test_the_jobs_of_gangs_keep_their_parallelism(by_name):
    store = store_with(ALL)
    job = store.create(JOBS, "default", a_job(**({"schedulingGroup": {"podGroupName": "g"}} if by_name else {}))).document()
    made(store, group("another"))

    def set_parallelism(number):
        return store.change(JOBS, "default", "j", lambda one: one["spec"].update(parallelism=number))

    set_parallelism(3)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    document = group()
    if not by_name:
        document["metadata"]["ownerReferences"] = [owner]
    made(store, document)
    code, text = refusal(set_parallelism, 4)
    assert (code, text) == (
        403, 'jobs.batch "j" is forbidden: cannot change parallelism for a Job referencing gang-scheduled PodGroup "g"'
    )  # fmt: skip


# -- over the wire ------------------------------------------------------------------------------------------------------


def asked(store, *requests):
    """Return the responses to GET requests, and to others with a document."""
    import aiohttp

    async def run():
        guard = Authenticator({"t": User("admin", ("system:masters",))})
        async with serving(store, guard) as port, aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session:
            answers = []
            for path in requests:
                async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                    answers.append((response.status, await response.json(content_type=None)))
            return answers

    return asyncio.run(run())


PATHS = ("/apis/scheduling.k8s.io", "/apis/scheduling.k8s.io/v1alpha2", "/openapi/v3/apis/scheduling.k8s.io/v1alpha2",
         "/apis/scheduling.k8s.io/v1alpha2/podgroups", "/openapi/v2")  # fmt: skip


def test_the_enabled_gate_serves_groups_in_discovery():
    (_, api), (_, resources), (_, schemas), (_, listed), (_, swagger) = asked(store_with("GenericWorkload=true"), *PATHS)
    assert [one["version"] for one in api["versions"]] == ["v1", "v1alpha2"]
    assert api["preferredVersion"]["version"] == "v1"
    assert [(one["name"], one["kind"], one["verbs"][0]) for one in resources["resources"]] == [
        ("podgroups", "PodGroup", "create"), ("podgroups/status", "PodGroup", "get"), ("workloads", "Workload", "create"),
    ]  # fmt: skip
    spec = schemas["components"]["schemas"]["io.k8s.api.scheduling.v1alpha2.PodGroupSpec"]
    assert spec["required"] == ["schedulingPolicy"]
    assert spec["properties"]["disruptionMode"]["default"] == "Pod"
    assert all("description" in field for field in spec["properties"].values())
    assert (listed["kind"], listed["items"]) == ("PodGroupList", [])
    assert "io.k8s.api.scheduling.v1alpha2.Workload" in swagger["definitions"]


def test_the_disabled_gate_serves_no_groups():
    (_, api), (code, _), (hidden, _), (gone, _), (_, swagger) = asked(store_with(""), *PATHS)
    assert [one["version"] for one in api["versions"]] == ["v1"]
    assert (code, hidden, gone) == (404, 404, 404)
    assert not any("v1alpha2" in name for name in swagger["definitions"])


def test_the_scheduler_may_read_groups_and_write_their_status():
    def rules(gates):
        return {
            (resource, verb)
            for _, role in bootstrap_objects(gates)
            if role["kind"] == "ClusterRole" and role["metadata"]["name"] == "system:kube-scheduler"
            for rule in role["rules"]
            if "scheduling.k8s.io" in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    reads = {("podgroups", verb) for verb in ("get", "list", "watch")}
    assert rules(frozenset(["GenericWorkload"])) == reads | {("podgroups/status", verb) for verb in ("patch", "update")}
    assert rules(frozenset()) == set()
    trees = rules(frozenset(["GenericWorkload", "CompositePodGroup"])) - rules(frozenset(["GenericWorkload"]))
    assert trees == {("compositepodgroups", verb) for verb in ("get", "list", "watch")}


ROWS = {  # conditions, template's workload → the row
    "new": ([], None, ["g", "Gang", "<none>", "Pending", "0s"]),
    "placed": ([condition()], "w", ["g", "Gang", "w", "Scheduled", "0s"]),
    "not placed": ([condition(status="False", reason="SchedulerError")], None, ["g", "Gang", "<none>", "Unschedulable", "0s"]),
    "sent away": ([condition(), condition(type="DisruptionTarget", reason="PreemptionByScheduler")], None,
                  ["g", "Gang", "<none>", "PreemptionByScheduler", "0s"]),
}  # fmt: skip


@pytest.mark.parametrize(("conditions", "origin", "row"), ROWS.values(), ids=ROWS)
def test_a_group_in_a_table(conditions, origin, row):
    document = group()
    document["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    document["status"] = {"conditions": conditions}
    if origin:
        document["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": origin}}
    shown = table(GROUPS, [document], 0.0, "None")
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Policy", "Workload", "Status", "Age"]
    assert shown["rows"][0]["cells"] == row


def test_groups_and_workloads_in_protobuf():
    sent = group(
        schedulingConstraints={"topology": [{"key": "rack"}]},
        priority=3,
        resourceClaims=[{"name": "a", "resourceClaimName": "b"}],
    )
    sent["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    sent["status"] = {"conditions": [condition()]}
    for document in (sent, workload(template(), controllerRef={"apiGroup": "batch", "kind": "Job", "name": "j"})):
        assert read_protobuf(write_protobuf(document)) == document
