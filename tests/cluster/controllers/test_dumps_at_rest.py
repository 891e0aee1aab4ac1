"""A dump at rest stays at rest: a cluster that begins with one neither makes nor deletes anything that is not due."""

import json
import re

import pytest
import yaml

from moorage.api.documents.served_kinds import KINDS
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.interfaces.cli.live.store_loader import fill

pytestmark = pytest.mark.slow

TEMPLATE = "{metadata: {labels: {app: %s}}, spec: {containers: [{name: c, image: 'i:1', env: [{name: A, value: b}]}]}}"


def workload(kind, name, template="", version="apps/v1", **spec):
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    document["spec"]["template"] = yaml.safe_load(template or TEMPLATE % name)
    if kind != "Job":
        labels = {"app": name}
        document["spec"]["selector"] = labels if kind == "ReplicationController" else {"matchLabels": labels}
    return document


CLAIMS = [
    {
        "metadata": {"name": "d"},
        "spec": {"storageClassName": "quick", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]
SYSTEM_NAMESPACES = """{metadata: {annotations: {moorage.dev/run-seconds: '100000'}},
spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"""
QUICK = SYSTEM_NAMESPACES.replace("100000", "1")
OTHERS = """
apiVersion: v1
kind: LimitRange
metadata: {name: usual}
spec: {limits: [{type: Container, defaultRequest: {cpu: 1m}, default: {memory: 64Mi}}]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: quick}
provisioner: example.com/quick
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, maxUnavailable: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: lonely}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: over, annotations: {moorage.dev/run-seconds: "1"}}
spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
"""
WORKLOADS = [
    workload("Deployment", "web", replicas=3),
    workload("Deployment", "rolled", replicas=2),
    workload("ReplicaSet", "alone", replicas=2),
    workload("ReplicationController", "old", version="v1", replicas=2),
    workload("StatefulSet", "db", replicas=3, serviceName="db", volumeClaimTemplates=CLAIMS),
    workload("StatefulSet", "many", replicas=3, serviceName="many", podManagementPolicy="Parallel"),
    workload("StatefulSet", "rolled-set", replicas=2, serviceName="s"),
    workload(
        "StatefulSet", "parted", replicas=3, serviceName="s",
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
    ),
    workload("StatefulSet", "by-hand", replicas=2, serviceName="s", updateStrategy={"type": "OnDelete"}),
    workload("DaemonSet", "agent"),
    workload("DaemonSet", "rolled-agent"),
    workload(
        "DaemonSet", "surging", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    ),
    workload("DaemonSet", "agent-by-hand", updateStrategy={"type": "OnDelete"}),
    workload("Job", "running", SYSTEM_NAMESPACES, "batch/v1", parallelism=2, completions=3),
    workload("Job", "numbered", SYSTEM_NAMESPACES, "batch/v1", parallelism=2, completions=3, completionMode="Indexed"),
    workload("Job", "done", QUICK, "batch/v1", parallelism=2, completions=2),
]  # fmt: skip
#: Templates that change once, so that there is history; some workloads then have pods of two templates for good.
CHANGED = ["deployments/rolled", "statefulsets/rolled-set", "statefulsets/parted", "statefulsets/by-hand"]
CHANGED += ["daemonsets/rolled-agent", "daemonsets/agent-by-hand", "daemonsets/surging"]

#: What the guide "Read a cluster dump" and the README say to ask kubectl for.
DOCUMENTED = [
    "nodes", "pods", "namespaces", "services", "replicationcontrollers", "limitranges", "deployments", "replicasets",
    "statefulsets", "daemonsets", "jobs", "cronjobs", "poddisruptionbudgets", "priorityclasses", "runtimeclasses",
    "persistentvolumes", "persistentvolumeclaims", "storageclasses", "csinodes", "csidrivers", "csistoragecapacities",
    "volumeattachments",
]  # fmt: skip
README = ["nodes", "pods", "namespaces", "poddisruptionbudgets", "priorityclasses"]
NOT_THERE = {  # what a dump leaves out
    "complete": lambda resource: False,
    "as documented": lambda resource: resource not in DOCUMENTED,
    "as in the README": lambda resource: resource not in README,
    "no revisions": lambda resource: resource == "controllerrevisions",
    "no replica sets": lambda resource: resource in {"replicasets", "controllerrevisions"},
}


def controllers():
    return [one for one in all_controllers() if one.name != "kubelet"]


def change(document):
    document["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2"


@pytest.fixture(scope="module")
def at_rest(lab_class):
    """A cluster with every kind of workload in which nothing has happened for a while."""
    lab = lab_class(*controllers())
    lab.apply(OTHERS)
    for one in WORKLOADS:
        lab.apply(one)
    lab.advance(60)
    for path in CHANGED:
        lab.edit(*path.split("/"), change)
    lab.advance(600)
    assert all(pod["spec"].get("nodeName") for pod in lab.all("pods"))
    return lab


def dump_of(lab, left_out):
    """Return the objects of a cluster as kubectl prints them."""
    items = []
    for kind in KINDS:
        if "list" not in kind.verbs or kind.resource in {"events", "leases"} or left_out(kind.resource):
            continue
        for record in lab.store.all(kind):
            document = json.loads(json.dumps(record.document()))
            document["metadata"].pop("managedFields", None)
            items.append(document)
    return items


def of_another_cluster(items):
    """Let hashes of templates be as another cluster's controllers would have made them."""
    text = json.dumps(items)
    hashes = {
        value.removeprefix(f"{one['metadata']['ownerReferences'][0]['name']}-")
        for one in items
        for name, value in (one["metadata"].get("labels") or {}).items()
        if name in {"controller-revision-hash", "pod-template-hash"} and one["metadata"].get("ownerReferences")
    }
    for mark in sorted(hashes):
        text = re.sub(rf"\b{mark}\b", mark[::-1], text)
    return json.loads(text)


def begin_with(lab_class, items, path, now):
    lab = lab_class(nodes=0)
    lab.now = now
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    fill(lab.store, [str(path)])
    return lab


def events_of(lab, seconds):
    """Return what is made and deleted in so many seconds after controllers begin."""
    seen = []

    def note(kind, change):
        if kind.resource in {"events", "leases", "endpoints", "endpointslices"}:
            return
        if change.before is None:
            seen.append(f"made {kind.resource} {change.after.name}")
        elif change.gone or change.after.document()["metadata"].get("deletionTimestamp"):
            seen.append(f"deleted {kind.resource} {change.before.name}")

    lab.store.follow(note)
    lab.restart(*controllers())
    lab.advance(seconds)
    return seen


def without_hints(items):
    """Take away what sets say of which pods are of their present template: then only the pods' specs tell."""
    for one in items:
        if one["kind"] in {"StatefulSet", "DaemonSet"}:
            one.pop("status")
            one["metadata"].get("annotations", {}).pop("deprecated.daemonset.template.generation", None)
    return items


FROM = {  # which cluster the dump is of
    "of up": lambda items: items,
    "of another cluster": of_another_cluster,
    "without hints": lambda items: without_hints(of_another_cluster(items)),
}


DUMPS = [
    ("complete", "of up"), ("complete", "of another cluster"), ("as in the README", "of up"),
    *((left_out, changed) for left_out in ("as documented", "no revisions", "no replica sets") for changed in FROM),
]  # fmt: skip


@pytest.mark.parametrize(("left_out", "changed"), DUMPS, ids=map(", ".join, DUMPS))
def test_nothing_is_created_or_deleted_for_two_minutes(lab_class, at_rest, tmp_path, left_out, changed):
    items = FROM[changed](dump_of(at_rest, NOT_THERE[left_out]))
    lab = begin_with(lab_class, items, tmp_path / "dump.json", at_rest.now)
    seen = events_of(lab, 120)
    assert [one for one in seen if not one.startswith("made controllerrevisions")] == []


def marks(lab, resource, name):
    """Return the revisions that pods of a set are of."""
    pods = lab.all("pods", app=name)
    return {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods}


SETS = ["statefulsets/db", "daemonsets/agent", "daemonsets/surging"]


@pytest.mark.parametrize("path", SETS)
def test_a_change_after_the_start_is_rolled_out(lab_class, at_rest, tmp_path, path):
    resource, name = path.split("/")
    items = of_another_cluster(dump_of(at_rest, NOT_THERE["no revisions"]))
    lab = begin_with(lab_class, items, tmp_path / "dump.json", at_rest.now)
    lab.restart(*controllers())
    lab.advance(30)
    (before,) = marks(lab, resource, name)
    lab.edit(resource, name, lambda held: held["spec"]["template"]["spec"]["containers"][0].update(image="i:9"))
    lab.advance(300)
    (after,) = marks(lab, resource, name)
    assert before != after
    assert {pod["spec"]["containers"][0]["image"] for pod in lab.all("pods", app=name)} == {"i:9"}


@pytest.mark.parametrize("path", SETS)
def test_deleted_revisions_are_recreated_under_their_names(lab_class, at_rest, tmp_path, path):
    resource, name = path.split("/")
    items = of_another_cluster(dump_of(at_rest, NOT_THERE["complete"]))
    lab = begin_with(lab_class, items, tmp_path / "dump.json", at_rest.now)
    lab.restart(*controllers())
    lab.advance(30)
    own = [one for one in lab.names("controllerrevisions") if one.startswith(f"{name}-")]
    pods = sorted(lab.names("pods", app=name))
    for one in own:
        lab.delete("controllerrevisions", one)
    lab.edit(resource, name, lambda held: held["metadata"].setdefault("labels", {}).update(touched="yes"))
    lab.advance(60)
    assert sorted(lab.names("pods", app=name)) == pods
    (mark,) = marks(lab, resource, name)
    assert any(one.endswith(mark) for one in lab.names("controllerrevisions"))


def test_a_template_that_was_edited_in_the_dump_is_rolled_out(lab_class, at_rest, tmp_path):
    items = without_hints(of_another_cluster(dump_of(at_rest, NOT_THERE["no revisions"])))
    for one in items:
        if one["kind"] in {"StatefulSet", "DaemonSet"}:
            one["spec"]["template"]["spec"]["containers"][0]["image"] = "i:9"
    lab = begin_with(lab_class, items, tmp_path / "dump.json", at_rest.now)
    lab.restart(*controllers())
    lab.advance(300)
    for path in SETS:
        assert {pod["spec"]["containers"][0]["image"] for pod in lab.all("pods", app=path.split("/")[1])} == {"i:9"}
