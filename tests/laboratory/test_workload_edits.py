"""Edits of workloads, and scaling of every kind."""

from __future__ import annotations

import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.edit.object_edits import is_workload_edit, parse_workload_edit

LABELS = {"app": "web"}
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"disk": "ssd"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
}  # fmt: skip
JOB = {"parallelism": 2, "completions": 2, "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
SPECS = {
    "Deployment": ("apps/v1", {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}),
    "ReplicaSet": ("apps/v1", {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}),
    "StatefulSet": ("apps/v1", {"replicas": 2, "serviceName": "w", "selector": {"matchLabels": LABELS}, "template": TEMPLATE}),
    "DaemonSet": ("apps/v1", {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}),
    "ReplicationController": ("v1", {"replicas": 2, "selector": LABELS, "template": TEMPLATE}),
    "Job": ("batch/v1", JOB),
    "CronJob": ("batch/v1", {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}),
}


def workload(kind):
    version, spec = SPECS[kind]
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def cluster(kind, *more):
    return moorage.Cluster.from_objects(NODE, workload(kind), *more)


def requests(of):
    return sorted(pod.spec.containers[0].resources.requests["cpu"] for pod in of.input().pods)


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("placed", [False, True])
def test_a_template_is_edited_and_its_pods_are_made_again(kind, placed):
    now = cluster(kind)
    pods = len(now.pods)
    if placed:
        now.run()
    now.apply(f"{kind.lower()}/web cpu=250m")
    assert requests(now) == ["250m"] * pods
    now.run()
    states = now.pods.columns()
    assert list(states["node"]) == ["n1"] * pods
    assert pods == {"DaemonSet": 1}.get(kind, 2)


@pytest.mark.parametrize("kind", [kind for kind in SPECS if kind != "DaemonSet"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_kind_is_scaled_by_an_edit(kind, count):
    now = cluster(kind)
    now.apply(f"{kind.lower()}/shop/web {'parallelism' if 'Job' in kind else 'replicas'}={count}")
    assert len(now.pods) == count


@pytest.mark.parametrize("kind", SPECS)
def test_scale_works_on_every_kind_but_one(kind, moorage_command, tmp_path):
    moorage_command(kind, tmp_path)


@pytest.fixture
def moorage_command(capsys):
    import json

    from moorage.interfaces.cli.main import main

    def run(kind, folder):
        (folder / "in.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, workload(kind)]}))
        with pytest.raises(SystemExit) as ended:
            main(["simulate", "-f", str(folder / "in.json"), "--scale", f"{kind.lower()}/web=3", "-o", "json"])
        said = capsys.readouterr()
        if kind == "DaemonSet":
            assert (ended.value.code, said.out) == (1, "")
            assert "a DaemonSet has a pod on each node; --add-nodes and --remove-nodes change that" in said.err
        else:
            assert len(json.loads(said.out)["pods"]) == 3

    return run


FIELDS = {
    "a label to select": ("nodeSelector.disk=ssd", lambda spec: spec.node_selector == {"disk": "ssd"}),
    "a toleration": ("tolerations=gpu=yes:NoSchedule", lambda spec: spec.tolerations[0].key == "gpu"),
    "memory": ("memory=1Gi", lambda spec: spec.containers[0].resources.requests["memory"] in {"1Gi", "1073741824"}),
    "a priority class": ("priorityClassName=system-cluster-critical", lambda spec: spec.priority == 2_000_000_000),
    "a scheduler": ("schedulerName=other", lambda spec: spec.scheduler_name == "other"),
}


@pytest.mark.parametrize(("field", "holds"), FIELDS.values(), ids=FIELDS)
def test_fields_of_a_template(field, holds):
    now = cluster("Deployment")
    now.apply(f"deploy/web {field}")
    assert all(holds(pod.spec) for pod in now.input().pods)
    assert len(now.pods) == 2


def test_a_short_request_of_a_pod():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": TEMPLATE["spec"]}
    now = moorage.Cluster.from_objects(NODE, pod)
    now.apply("pod/p cpu=2")
    assert requests(now) == ["2"]


def test_an_edit_is_rolled_back_with_its_transaction():
    now = cluster("Deployment")
    now.run()
    before = now.digest()
    with now.transaction():
        now.apply("deployment/web cpu=4", "deployment/web replicas=3")
        now.run()
        assert [bool(node) for node in now.pods.columns()["node"]].count(True) == 2
    assert now.digest() == before


REFUSED = {
    "no such workload": ("deployment/api cpu=1", "deployment/api cpu=1: the input has no such workload"),
    "a field of pods": ("deployment/web nodeName=n1", "nodeName is of a pod, not of a template"),
    "a priority": ("deployment/web priority=5", "priority is of a pod, not of a template; set priorityClassName"),
    "an unknown field": ("deployment/web cpus=1", "unknown field of a deployment; close: cpu=AMOUNT"),
    "no number": ("deployment/web replicas=many", "write KIND/NAME=N or KIND/NAMESPACE/NAME=N"),
    "too much in the name": ("deployment/a/b/c cpu=1", "write 'KIND/NAME FIELD=VALUE', such as 'deployment/web replicas=5'"),
    "another kind": ("service/web cpu=1", "edits change a pod, a node, a workload or config, not a service"),
}


@pytest.mark.parametrize(("edit", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(edit, said):
    with pytest.raises(InputError) as error:
        cluster("Deployment").apply(edit)
    assert said in str(error.value)


def test_what_is_an_edit_of_a_workload():
    assert is_workload_edit("deployment/web replicas=3")
    assert str(parse_workload_edit("sts/shop/db cpu=1")) == "statefulset/shop/db cpu=1"
    assert not is_workload_edit("apps/web.yaml")
    assert not is_workload_edit("pod/web cpu=1")
    assert not is_workload_edit("kind: Deployment\nname: a/b c")
