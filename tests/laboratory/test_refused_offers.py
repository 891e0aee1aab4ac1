"""What the admission policies of an input refuse or undo is offered by no question: explain, pending, gangs, survive, plan."""

from __future__ import annotations

import pytest

import moorage
from moorage.framework.changes import Change
from moorage.laboratory.change.change_requests import ChangeRequests
from tests.laboratory.up_in_process import LocalUp, carried_out

GROUP = "admissionregistration.k8s.io"
LONG_AGO = "2025-01-01T00:00:00Z"


def policy(expression, resources, operations=("CREATE", "UPDATE"), name="rule", **match):
    groups = ["apps", "batch", "", "scheduling.k8s.io", "policy"]
    rule = {"apiGroups": groups, "apiVersions": ["*"], "operations": [*operations], "resources": [*resources]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}], **match}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": f"{GROUP}/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": f"{GROUP}/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound},
    ]


def mutation(expression, resources, name="rule"):
    rule = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [*resources]}
    change = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "mutations": [change], "reinvocationPolicy": "Never"}
    return [
        {"apiVersion": f"{GROUP}/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": f"{GROUP}/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
         "spec": {"policyName": name}},
    ]  # fmt: skip


def node(name, cpu="4", labels=None, **spec):
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    labels = {"kubernetes.io/hostname": name, **(labels or {})}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels, "creationTimestamp": LONG_AGO},
        "spec": spec, "status": {"capacity": amounts, "allocatable": amounts},
    }  # fmt: skip


def container(cpu, **more):
    return {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": cpu}}, **more}


def workload(kind, name, cpu, replicas=1, **spec):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container(cpu)], **spec}}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        body = {"parallelism": replicas, "completions": replicas, "template": template}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": body}


NO_SMALL = "object.spec.template.spec.containers.all(c, quantity(c.resources.requests.cpu).compareTo(quantity('3')) >= 0)"
NO_SMALL_POD = "object.spec.containers.all(c, quantity(c.resources.requests.cpu).compareTo(quantity('3')) >= 0)"
FULL = [node("n1"), workload("Deployment", "held", "3", 1), workload("Deployment", "web", "3", 1)]
SELECTED = {"nodeSelector": {"disk": "ssd"}}
#: A cluster, the verb that is offered in it for the last workload, and a policy against it.
CASES = {
    "a template that is refused": (
        [node("n1", "2"), workload("Deployment", "web", "3")], "request", policy(NO_SMALL, ["deployments"]),
    ),
    "a pod that is refused": (
        [node("n1", "2"), workload("StatefulSet", "web", "3")], "request", policy(NO_SMALL_POD, ["pods"]),
    ),
    "a Job that is created again": ([node("n1", "2"), workload("Job", "web", "3")], "request", policy(NO_SMALL, ["jobs"])),
    "a change that is undone": (
        [node("n1", "4"), workload("Deployment", "web", "3", **SELECTED)], "drop-selector",
        mutation("[JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'disk': 'ssd'}}]", ["pods"]),
    ),
    "a label of a node": (
        [node("n1"), workload("Deployment", "web", "3", **SELECTED)], "label",
        policy("!has(object.metadata.labels.disk)", ["nodes"]),
    ),
    "a cordoned node": (
        [node("n1", unschedulable=True), workload("Deployment", "web", "3")], "uncordon",
        policy("has(object.spec.unschedulable) && object.spec.unschedulable", ["nodes"], ["UPDATE"]),
    ),
    "a scale": (
        [node("n1", "4"), workload("Deployment", "held", "1800m", 2), workload("Deployment", "web", "2")], "scale",
        policy("object.spec.replicas >= oldObject.spec.replicas", ["deployments/scale"], ["UPDATE"]),
    ),
    "a new class": (
        [node("n1", "4"), workload("Deployment", "held", "3"), workload("Deployment", "web", "3")], "create-class",
        policy("false", ["priorityclasses"]),
    ),
    "another node": (
        [node("n1", "2"), node("n2", "4"), workload("Deployment", "held", "3"), workload("Deployment", "web", "3")], "add-node",
        policy("false", ["nodes"], ["CREATE"]),
    ),
    "a node that becomes another one": (
        [node("n1", "2"), node("n2", "4"), workload("Deployment", "held", "3"), workload("Deployment", "web", "3")], "add-node",
        mutation("[JSONPatch{op: 'add', path: '/metadata/labels/pool', value: 'other'}]", ["nodes"]),
    ),
}  # fmt: skip


def offered(documents):
    cluster = moorage.Cluster.from_objects(documents)
    cluster.schedule()
    (pod,) = cluster.simulation.pending_pods()
    return {change.verb for remedy in cluster.least_change(pod.key, alternatives=20) for change in remedy.changes}


@pytest.mark.parametrize(("documents", "verb", "rules"), CASES.values(), ids=CASES)
def test_what_a_policy_refuses_is_not_offered(documents, verb, rules):
    assert verb in offered(documents)
    assert verb not in offered([*documents, *rules])


def test_a_policy_reads_what_scheduling_does_not():
    """The image is in the input alone; the policy for it refuses nothing."""
    ours = policy("object.spec.containers.all(c, c.image.startsWith('registry.example/'))", ["pods"])
    assert "request" in offered([node("n1", "2"), workload("Deployment", "web", "3"), *ours])


def test_a_pod_that_a_policy_refuses_now_is_not_created_again():
    documents = [
        node("n1", "2"),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "creationTimestamp": LONG_AGO},
         "spec": {"containers": [container("3")]}, "status": {"phase": "Pending"}},
    ]  # fmt: skip
    rules = policy("object.spec.containers.all(c, has(c.securityContext))", ["pods"])
    assert "request" in offered(documents)
    assert "request" not in offered([*documents, *rules])


def test_a_policy_may_forbid_to_delete_pods():
    documents = [
        node("n1"), node("n2", "3"),
        workload("ReplicaSet", "held", "2", 1, nodeSelector={}), workload("Deployment", "web", "3", 1),
    ]  # fmt: skip
    cluster = moorage.Cluster.from_objects(documents, *policy("false", ["pods"], ["DELETE"]))
    cluster.schedule()
    change = Change("cluster", "evict", f"pod/{next(one.key for one in cluster.simulation.pods.values())}")
    assert "denied request" in ChangeRequests(cluster.present()).refusal([change])
    free = moorage.Cluster.from_objects(documents)
    free.schedule()
    assert ChangeRequests(free.present()).refusal([change]) == ""


def test_a_mended_policy_lets_up_carry_it_out():
    """The embedded API server is the oracle: what is offered beside a policy succeeds there."""
    up = LocalUp([node("n1", "2"), workload("Deployment", "web", "3"), *policy(NO_SMALL, ["deployments"])])
    up.settle(10)
    (key,) = up.pods()
    for one in moorage.Cluster.from_objects(up.documents()).least_change(key, alternatives=9):
        assert one.kind != "shrink"
        if one.commands:
            assert carried_out(up, key, one) == ""


def test_survive_offers_no_change_that_a_policy_refuses():
    documents = [node("n1"), node("n2", unschedulable=True), workload("Deployment", "web", "3")]
    refused = policy("has(object.spec.unschedulable) && object.spec.unschedulable", ["nodes"], ["UPDATE"])
    found = [moorage.Cluster.from_objects(some).survive().fix for some in (documents, [*documents, *refused])]
    assert found[0] is not None
    assert "kubectl uncordon n2" in found[0].commands
    assert found[1] is None or "kubectl uncordon n2" not in found[1].commands


def test_no_node_is_removed_whose_pods_a_policy_keeps():
    documents = [node("n1"), node("n2"), workload("Deployment", "a", "1"), workload("Deployment", "b", "1")]
    rules = policy("false", ["pods/eviction"], ["CREATE"])
    found = []
    for some in (documents, [*documents, *rules]):
        cluster = moorage.Cluster.from_objects(some)
        cluster.schedule()
        found.append(cluster.consolidate())
    assert found[0].remove
    assert not found[1].remove
    assert all(any(one.rule == "policy" for one in why) for why in found[1].blocked.values() if why)


def test_no_type_is_bought_whose_nodes_a_policy_changes():
    documents = [node("n1", "2"), workload("Deployment", "web", "3")]
    types = [{"name": "large", "node": node("large"), "price": 1}]
    rules = mutation("[JSONPatch{op: 'add', path: '/metadata/labels/pool', value: 'other'}]", ["nodes"])
    plans = [moorage.Cluster.from_objects(some).plan(types) for some in (documents, [*documents, *rules])]
    assert [dict(plan.nodes) for plan in plans] == [{"large": 1}, {}]
    assert "admission makes another node of it" in plans[1].text()
