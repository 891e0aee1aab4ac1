"""Admission policies of an input: what they change, refuse and warn about; the embedded server is the oracle."""

from __future__ import annotations

import copy
import json
import random

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.basis.inputs.objects import FoundObject
from moorage.errors import InputError
from moorage.interfaces.cli.main import main
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.edit.object_edits import replaced
from moorage.rules.store.store import Store
from moorage.simulator.cluster_reader import ReadRules, read_objects
from moorage.simulator.pod_creation import create_pods

LONG_AGO = "2025-01-01T00:00:00Z"
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"}},
}  # fmt: skip
ROOTLESS = "object.spec.containers.all(c, has(c.securityContext) && c.securityContext.runAsNonRoot == true)"


def policy(expression, resources=("pods",), groups=("",), name="p", operations=("CREATE", "UPDATE"), form="Validating", **spec):
    rule = {"apiGroups": [*groups], "apiVersions": ["*"], "operations": [*operations], "resources": [*resources]}
    does = {"validations": [{"expression": expression}]} if form == "Validating" else {
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        "reinvocationPolicy": "Never",
    }  # fmt: skip
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{form}AdmissionPolicy", "metadata": {"name": name},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, **does, **spec},
    }  # fmt: skip


def binding(name="p", form="Validating", actions=("Deny",), **spec):
    acts = {"validationActions": [*actions]} if form == "Validating" else {}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{form}AdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, **acts, **spec},
    }  # fmt: skip


def validating(expression, *, actions=("Deny",), **more):
    return [policy(expression, **more), binding(more.get("name", "p"), actions=actions)]


def pod(name="a", created=None, **container):
    metadata = {"name": name, "namespace": "default", **({"creationTimestamp": created} if created else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }


def workload(kind="Deployment", replicas=2, created=None, name="web", **container):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod(**container)["spec"]}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template, "replicas": replicas}
    group = "apps/v1"
    if kind in {"Job", "CronJob"}:
        group, template["spec"]["restartPolicy"] = "batch/v1", "Never"
        spec = {"template": template, "parallelism": replicas, "completions": replicas}
    if kind == "DaemonSet":
        del spec["replicas"]
    if kind == "StatefulSet":
        spec["serviceName"] = "web"
    metadata = {"name": name, "namespace": "default", **({"creationTimestamp": created} if created else {})}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


def created(*documents):
    return create_pods(read_given(copy.deepcopy(list(documents))))


def messages(made):
    return [one.refused.message for one in made.refused]


def service(name="s"):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"a": "b"}},
    }


SAFE = {"securityContext": {"runAsNonRoot": True}}
PODS = {
    "fields that scheduling does not read count": (ROOTLESS, [pod(**SAFE)], 1, 0),
    "a pod without them": (ROOTLESS, [pod()], 0, 1),
    "a pod of the dump stays": (ROOTLESS, [pod(created=LONG_AGO)], 1, 0),
    "pods of a deployment": (ROOTLESS, [workload()], 0, 2),
    "as its template has them": (ROOTLESS, [workload(**SAFE)], 2, 0),
    "of a deployment of the dump": (ROOTLESS, [workload(created=LONG_AGO)], 0, 2),
    "of a stateful set": (ROOTLESS, [workload("StatefulSet")], 0, 2),
    "of a daemon set": (ROOTLESS, [workload("DaemonSet")], 0, 1),
    "of a job": (ROOTLESS, [workload("Job", **SAFE)], 2, 0),
    "defaults are set": ("object.spec.restartPolicy == 'Always' && object.spec.priority == 0", [workload()], 2, 0),
    "one pod by its name": ("!object.metadata.name.endsWith('-0')", [workload("StatefulSet")], 1, 1),
    "controllers create pods": ("request.userInfo.username.endsWith(':replicaset-controller')", [pod(), workload()], 2, 1),
    "an error in the expression refuses": ("object.spec.nothing == 1", [pod()], 0, 1),
}  # fmt: skip


@pytest.mark.parametrize(("expression", "objects", "there", "refused"), PODS.values(), ids=PODS)
def test_policies_refuse_new_pods(expression, objects, there, refused):
    made = created(NODE, *validating(expression), *objects)
    assert (len(made.cluster.pods), len(made.refused)) == (there, refused)
    assert all(one.refused.by == "ValidatingAdmissionPolicy" for one in made.refused)


WRITTEN = {
    "a limit": ("object.spec.containers.all(c, has(c.resources.limits))", pod()),
    "the image": ("object.spec.containers.all(c, c.image != 'i')", pod()),
    "an error": ("object.spec.nothing == 1", pod()),
    "a label": ("has(object.metadata.labels)", pod()),
}


@pytest.mark.parametrize(("expression", "document"), WRITTEN.values(), ids=WRITTEN)
def test_refusals_read_as_those_of_the_embedded_server(expression, document):
    store = Store(lambda: 0.0, random.Random(0), b"")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    store.create(served("serviceaccounts"), "default", account)
    for one in validating(expression):
        kind = store.kinds.find_type(one["apiVersion"], one["kind"])
        store.create(kind, "", copy.deepcopy(one))
    with pytest.raises(ApiError) as error:
        store.create(served("pods"), "default", copy.deepcopy(document))
    assert messages(created(NODE, *validating(expression), document)) == [str(error.value)]


def test_a_refused_workload_has_no_pods():
    few = validating("object.spec.replicas <= 5", resources=["deployments"], groups=["apps"])
    made = created(NODE, *few, workload(replicas=6))
    why = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: object.spec.replicas <= 5"
    assert {*messages(made)} == {f'deployments.apps "web" is forbidden: {why}'}
    assert len(made.refused) == 6
    assert not made.cluster.pods


def test_other_refused_objects_are_left_out():
    made = created(NODE, *validating("false", resources=["services"]), service(), service("t") | {
        "metadata": {"name": "t", "namespace": "default", "creationTimestamp": LONG_AGO}})  # fmt: skip
    assert [one.metadata.name for one in made.cluster.services] == ["t"]
    assert any(
        'rejects Service default/s, so it is left out: services "s" is forbidden' in note for note in made.cluster.report.notes
    )


def test_mutations_change_pods_before_they_are_placed():
    adds = policy("", form="Mutating")
    adds["spec"]["mutations"] = [{
        "patchType": "JSONPatch",
        "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'disk': 'ssd'}}]"},
    }]  # fmt: skip
    seen = validating("object.spec.nodeSelector.disk == 'ssd'", name="q")
    made = created(NODE, adds, binding(form="Mutating"), *seen, workload(replicas=3), pod("old", created=LONG_AGO))
    new = [one for one in made.cluster.pods if one.metadata.name != "old"]
    assert [dict(one.spec.node_selector) for one in new] == [{"disk": "ssd"}] * 3
    assert len({id(one.spec) for one in new}) == 1
    assert not made.refused


def test_mutations_change_workloads_before_their_pods_are_made():
    grows = policy("Object{spec: Object.spec{replicas: 4}}", ["deployments"], ["apps"], form="Mutating")
    made = created(NODE, grows, binding(form="Mutating"), workload(replicas=1))
    assert len(made.cluster.pods) == 4


def test_parameters_and_namespaces_are_looked_up_in_the_input():
    limit = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "limit", "namespace": "default"},
        "data": {"most": "3"},
    }
    spec = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    with_params = policy("object.spec.replicas <= int(params.data.most)", ["deployments"], ["apps"], **spec)
    bound = binding(paramRef={"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"})
    assert not created(NODE, with_params, bound, limit, workload(replicas=3)).refused
    assert len(created(NODE, with_params, bound, limit, workload(replicas=4)).refused) == 4
    assert "no params found" in messages(created(NODE, with_params, bound, workload(replicas=1)))[0]


def test_warnings_are_notes():
    made = created(NODE, *validating("false", actions=["Warn"]), workload())
    assert not made.refused
    assert [one for one in made.cluster.report.notes if one.startswith("admission policies warn about 2 objects")]


def test_an_invalid_policy_is_an_error():
    bad = policy("true")
    bad["spec"]["failurePolicy"] = "Perhaps"
    with pytest.raises(InputError, match=r"ValidatingAdmissionPolicy p: .*failurePolicy"):
        created(NODE, bad, binding())


def test_a_change_is_an_update():
    grows_slowly = "oldObject.spec.replicas >= object.spec.replicas - 1"
    policies = validating(grows_slowly, resources=["deployments"], groups=["apps"], operations=["UPDATE"])
    given = read_given([NODE, *policies, workload(created=LONG_AGO)])

    def after(replicas):
        later = workload(replicas=replicas)
        found = FoundObject(later["apiVersion"], later["kind"], later, "change")
        return create_pods(replaced(given, read_objects([found], rules=ReadRules(for_policies=True))))

    assert not after(3).refused
    assert {one.refused.resource for one in after(4).refused} == {"deployments"}


def said(capsys, *args):
    with pytest.raises(SystemExit):
        main([*args])
    return capsys.readouterr().out


def test_the_report_names_policy_and_reason(tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, *validating(ROOTLESS), workload()]}))
    run = json.loads(said(capsys, "simulate", "-f", str(path), "-o", "json"))
    assert [(one["by"], one["workload"], len(one["names"])) for one in run["notCreated"]] == [
        ("ValidatingAdmissionPolicy", "Deployment/web", 2)
    ]
    text = said(capsys, "explain", "deployment/web", "-f", str(path))
    assert "Admission policies in the input apply" in text
    assert "scheduling does not read it" not in text


def test_a_check_fails_for_refused_pods(tmp_path, capsys):
    rules, cluster, change = tmp_path / "rules.yaml", tmp_path / "cluster.json", tmp_path / "change.json"
    rules.write_text(
        "apiVersion: moorage.dev/v1\nkind: CheckPolicy\nrules: [{noPending: {newOnly: true, selector: app=web}}]\n"
    )
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, *validating(ROOTLESS)]}))
    change.write_text(json.dumps(workload()))
    text = said(capsys, "check", "--policy", str(rules), "-f", str(cluster), "-f", str(change))
    assert "2 new pending pods" in text
    assert "is forbidden: ValidatingAdmissionPolicy 'p'" in " ".join(text.split())


def test_policies_of_a_dump_have_versions():
    rules = validating(ROOTLESS)
    for one in rules:
        one["metadata"] |= {"resourceVersion": "7", "uid": "u", "creationTimestamp": LONG_AGO, "generation": 1}
    assert [one.pod.name for one in created(NODE, pod(), *rules).refused] == ["a"]
