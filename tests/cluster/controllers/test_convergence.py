"""Whatever happens, and whenever the controllers start again: in the end everything is as it was asked for."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.cluster.controllers.all_controllers import all_controllers

WORKLOADS = """
apiVersion: v1
kind: LimitRange
metadata: {name: usual}
spec: {limits: [{type: Container, defaultRequest: {cpu: 1m}}]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: quick}
provisioner: example.com/quick
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "i:0"}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "i:0"}]}}
  volumeClaimTemplates:
  - {metadata: {name: d}, spec: {storageClassName: quick, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: "i:0"}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 4
  parallelism: 2
  backoffLimit: 100
  completionMode: Indexed
  template:
    metadata: {annotations: {moorage.dev/run-seconds: "40"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, maxUnavailable: 1}
"""
NAMES = {"deployments": "web", "statefulsets": "db", "daemonsets": "agent"}
FOLLOWED = (
    "controllerrevisions", "daemonsets", "deployments", "jobs", "nodes", "persistentvolumeclaims", "pods", "replicasets",
    "statefulsets",
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.sampled_from(["deployments", "statefulsets"]), st.integers(0, 5)),
        st.tuples(st.just("image"), st.sampled_from(sorted(NAMES)), st.integers(0, 2)),
        st.tuples(st.just("delete pod"), st.integers(0, 20), st.sampled_from([None, 0])),
        st.tuples(st.just("fail pod"), st.integers(0, 20)),
        st.tuples(st.just("down"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("cordon"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("replace node"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 20, 70, 400])),
        st.tuples(st.just("restart")),
    ),
    max_size=10,
)


def controllers():
    return [one for one in all_controllers() if one.name != "kubelet"]


def mark(node, value):
    node["metadata"].setdefault("annotations", {})["moorage.dev/down"] = value


def fail(pod):
    pod["status"]["phase"] = "Failed"


def take(lab, step):
    match step:
        case "scale", resource, replicas:
            lab.patch(resource, NAMES[resource], replicas=replicas)
        case "image", resource, number:
            change = {"containers": [{"name": "c", "image": f"i:{number}"}]}
            lab.edit(resource, NAMES[resource], lambda held: held["spec"]["template"]["spec"].update(change))
        case "delete pod", number, grace if lab.names("pods"):
            name = lab.names("pods")[number % len(lab.names("pods"))]
            lab.delete("pods", name, **({} if grace is None else {"gracePeriodSeconds": grace}))
        case "fail pod", number if lab.names("pods"):
            lab.edit("pods", lab.names("pods")[number % len(lab.names("pods"))], fail, subresource="status")
        case "down", number, value:
            lab.edit("nodes", f"n{number}", lambda node: mark(node, "true" if value else "false"))
        case "cordon", number, value:
            lab.edit("nodes", f"n{number}", lambda node: node.setdefault("spec", {}).update(unschedulable=value))
        case "replace node", number:
            lab.delete("nodes", f"n{number}")
            lab.settle()
            lab.add_node(f"n{number}")
        case "wait", seconds:
            lab.advance(seconds)
        case ("restart",):
            lab.restart(*controllers())
    lab.settle()


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(STEPS)
def test_the_cluster_converges_to_its_desired_state(lab_class, steps):
    lab = lab_class(*controllers())
    for document in yaml.safe_load_all(WORKLOADS):
        lab.apply(document)
    lab.settle()
    for step in steps:
        take(lab, step)
    for number in (1, 2, 3):
        take(lab, ("down", number, False))
        take(lab, ("cordon", number, False))
    lab.advance(2000)
    for resource, name in NAMES.items():
        held = lab.get(resource, name)
        # A pod of a replica set that failed is left lying, as in Kubernetes, until there are very many.
        pods = [pod for pod in lab.all("pods", app=name) if resource != "deployments" or pod["status"]["phase"] != "Failed"]
        wanted = 3 if resource == "daemonsets" else held["spec"]["replicas"]
        image = held["spec"]["template"]["spec"]["containers"][0]["image"]
        assert [pod["spec"]["containers"][0]["image"] for pod in pods] == [image] * wanted, (resource, lab.reports[-3:])
        assert all(pod["status"]["phase"] == "Running" for pod in pods)
        ready = held["status"].get("numberReady" if resource == "daemonsets" else "readyReplicas", 0)
        assert ready == wanted
    assert sorted(pod["spec"]["nodeName"] for pod in lab.all("pods", app="agent")) == ["n1", "n2", "n3"]
    job = lab.get("jobs", "sum")["status"]
    assert (job["succeeded"], job["completedIndexes"]) == (4, "0-3")
    assert lab.condition("jobs", "sum", "Complete")[0] == "True"
    assert {claim["status"]["phase"] for claim in lab.all("persistentvolumeclaims")} == {"Bound"}
    assert not any(pod["metadata"].get("finalizers") or pod["metadata"].get("deletionTimestamp") for pod in lab.all("pods"))
    assert lab.reports == []
    knows_what_there_is(lab)


def knows_what_there_is(lab):
    """Check that every object in the controllers' caches equals the stored one: nothing mutates a cached object."""
    world = lab.manager.world
    held = {resource: {one["metadata"]["uid"]: one for one in world.all(lab.kind(resource))} for resource in FOLLOWED}
    assert held == {resource: {one["metadata"]["uid"]: one for one in lab.all(resource)} for resource in FOLLOWED}


def test_limit_range_defaults_are_not_written_into_templates(lab_class):
    lab = lab_class(*controllers())
    lab.apply("""
      apiVersion: v1
      kind: LimitRange
      metadata: {name: usual}
      spec: {limits: [{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 10m}}]}
    """)
    for document in yaml.safe_load_all(WORKLOADS):
        if document["kind"] != "LimitRange":
            lab.apply(document)
    lab.advance(20)
    knows_what_there_is(lab)
    for resource, name in NAMES.items():
        for number in (1, 0):
            take(lab, ("image", resource, number))
            lab.advance(60)
            limits = {str(pod["spec"]["containers"][0]["resources"]["limits"]) for pod in lab.all("pods", app=name)}
            assert limits == {"{'cpu': '500m'}"}
    for resource in ("statefulsets", "daemonsets"):
        assert sorted(one["revision"] for one in lab.all("controllerrevisions", app=NAMES[resource])) == [2, 3], resource
    assert len(lab.names("replicasets")) == 2
