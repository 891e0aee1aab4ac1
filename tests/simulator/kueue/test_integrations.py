"""Which pod sets each kind of object asks its queue for, and what becomes of its pods."""

import pytest

from moorage.simulator.kueue.batch_jobs import queued_cluster
from tests.simulator.kueue.timing import meta, node, queue, read, run, template


def of_kind(version, kind, spec):
    return {"apiVersion": version, "kind": kind, "metadata": meta("one", "a", 10), "spec": spec}


def replicas(field, **counts):
    sets = {name: {"template": template(), **({} if n is None else {"replicas": n})} for name, n in counts.items()}
    return {field: sets}


def replicated(name, replicas, parallelism, completions=None):
    inner = {"parallelism": parallelism, "template": template()}
    if completions is not None:
        inner["completions"] = completions
    return {"name": name, "replicas": replicas, "template": {"spec": inner}}


GROUP = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
    {"groupName": "small", "replicas": 2, "numOfHosts": 2, "template": template()}
]}  # fmt: skip
SERVICE = {"selector": {"matchLabels": {"app": "x"}}}
LABELLED = {"metadata": {"labels": {"app": "x", "kueue.x-k8s.io/queue-name": "a"}}, **template()}
JOB_SET = "jobset.x-k8s.io/v1alpha2"
KUBEFLOW = "kubeflow.org/v1"
KINDS = {
    "JobSet": (
        of_kind(JOB_SET, "JobSet", {"replicatedJobs": [replicated("Driver", 1, 1), replicated("w", 2, 3, 2)]}),
        [[("driver", 1), ("w", 4)]],
    ),
    "RayJob": (
        of_kind("ray.io/v1", "RayJob", {"rayClusterSpec": GROUP, "submitterPodTemplate": template()}),
        [[("head", 1), ("small", 4), ("submitter", 1)]],
    ),
    "RayCluster": (of_kind("ray.io/v1", "RayCluster", GROUP), [[("head", 1), ("small", 4)]]),
    "PyTorchJob": (
        of_kind(KUBEFLOW, "PyTorchJob", replicas("pytorchReplicaSpecs", Worker=3, Master=1)), [[("master", 1), ("worker", 3)]]
    ),
    "TFJob": (of_kind(KUBEFLOW, "TFJob", replicas("tfReplicaSpecs", PS=2, Worker=3)), [[("ps", 2), ("worker", 3)]]),
    "XGBoostJob": (of_kind(KUBEFLOW, "XGBoostJob", replicas("xgbReplicaSpecs", Master=None)), [[("master", 1)]]),
    "PaddleJob": (of_kind(KUBEFLOW, "PaddleJob", replicas("paddleReplicaSpecs", Worker=2)), [[("worker", 2)]]),
    "JAXJob": (of_kind(KUBEFLOW, "JAXJob", replicas("jaxReplicaSpecs", Worker=2)), [[("worker", 2)]]),
    "MPIJob": (
        of_kind("kubeflow.org/v2beta1", "MPIJob", replicas("mpiReplicaSpecs", Worker=2, Launcher=1)),
        [[("launcher", 1), ("worker", 2)]],
    ),
    "LeaderWorkerSet": (
        of_kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 3, "leaderTemplate": template(), "workerTemplate": template()},
        }),
        [[("leader", 1), ("worker", 2)]] * 2,
    ),
    "Deployment": (of_kind("apps/v1", "Deployment", {"replicas": 2, **SERVICE, "template": LABELLED}), [[("main", 1)]] * 2),
    "StatefulSet": (of_kind("apps/v1", "StatefulSet", {"replicas": 3, **SERVICE, "template": LABELLED}), [[("main", 3)]]),
    "Pod": ({"apiVersion": "v1", "kind": "Pod", "metadata": meta("one", "a", 10), **template()}, [[("main", 1)]]),
}  # fmt: skip


@pytest.mark.parametrize(("document", "expected"), KINDS.values(), ids=KINDS)
def test_pod_sets(document, expected):
    works = queued_cluster(*read(node(), queue("a", 20), document)).works
    assert [[(one.name, one.count) for one in work.workload.pod_sets] for work in works] == expected
    assert [[len(pods) for pods in work.pods] for work in works] == [[count for _, count in sets] for sets in expected]


SUBMITTED = {
    "by a pod of its own": ({}, [("head", 1000, 0), ("small", 1000, 0), ("submitter", 500, 200 << 20)]),
    "by the head": ({"submissionMode": "SidecarMode"}, [("head", 1500, 200 << 20), ("small", 1000, 0)]),
    "by its user": ({"submissionMode": "HTTPMode"}, [("head", 1000, 0), ("small", 1000, 0)]),
}


@pytest.mark.parametrize(("spec", "expected"), SUBMITTED.values(), ids=SUBMITTED)
def test_the_submitter_of_a_ray_job_asks_for_quota(spec, expected):
    document = of_kind("ray.io/v1", "RayJob", {"rayClusterSpec": GROUP, **spec})
    [work] = queued_cluster(*read(node(), queue("a", 20), document)).works
    found = [(one.name, one.requests["cpu"], one.requests.get("memory", 0)) for one in work.workload.pod_sets]
    assert found == expected


@pytest.mark.parametrize(("document", "expected"), KINDS.values(), ids=KINDS)
def test_pods_run_only_with_quota(document, expected):
    pods = sum(count for sets in expected for _, count in sets)
    report, whole = run(node(cpu=20), queue("a", 20), document)
    assert {one.state for one in report.workloads} == {"Finished"}
    assert len(whole.pods) == pods
    report, whole = run(node(cpu=20), queue("a", 0), document)
    assert ({one.state for one in report.workloads}, len(whole.pods)) == ({"Waiting"}, 0)


def test_a_group_of_pods_waits_for_all_of_them():
    def member(name, group="g", cpu=1):
        made = meta(name, "a", 10)
        made["labels"]["kueue.x-k8s.io/pod-group-name"] = group
        made["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "3"
        return {"apiVersion": "v1", "kind": "Pod", "metadata": made, **template(cpu)}

    assert run(node(), queue("a", 20), member("x"), member("y"))[0].workloads == ()
    [group] = run(node(), queue("a", 20), member("x"), member("y"), member("z", cpu=2))[0].workloads
    assert (group.object, group.pods, group.state) == ("PodGroup/g", 3, "Finished")
    [group] = run(node(), queue("a", 3), member("x"), member("y"), member("z", cpu=2))[0].workloads
    assert group.state == "Waiting"


def test_jobs_of_a_namespace_with_a_default_queue_need_no_label():
    documents = queue("default", 4)
    [one] = run(node(), documents, {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "plain", "namespace": "team"},
        "spec": {"template": template(restartPolicy="Never")},
    })[0].workloads  # fmt: skip
    assert (one.object, one.cluster_queue) == ("Job/plain", "default")


def test_a_running_job_set_keeps_its_pods():
    """The pods of a dump are those of the object; their Job is not started a second time."""
    owner = {"apiVersion": JOB_SET, "kind": "JobSet", "name": "one", "uid": "1", "controller": True}
    child = {"apiVersion": "batch/v1", "kind": "Job", "name": "one-w-0", "uid": "2", "controller": True}
    held = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team", "ownerReferences": [child]},
        "spec": {"nodeName": "n1", **template()["spec"]}, "status": {"phase": "Running"},
    }  # fmt: skip
    inner = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "one-w-0", "namespace": "team", "uid": "2", "ownerReferences": [owner]},
        "spec": {"template": template(restartPolicy="Never")},
    }  # fmt: skip
    outer = of_kind(JOB_SET, "JobSet", {"replicatedJobs": [replicated("w", 1, 1)]})
    flavors = {"cpu": "default"}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "jobset-one", "namespace": "team", "ownerReferences": [owner]},
        "spec": {"queueName": "a", "podSets": [{"name": "w", "count": 1, "template": template()}]},
        "status": {
            "admission": {"clusterQueue": "a", "podSetAssignments": [
                {"name": "w", "count": 1, "flavors": flavors, "resourceUsage": {"cpu": "1"}}
            ]},
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}],
        },
    }  # fmt: skip
    report, whole = run(node(), queue("a", 4), held, inner, outer, workload)
    [one] = report.workloads
    assert (one.object, one.state, one.finished) == ("JobSet/one", "Finished", 600.0)
    assert [(pod.name, pod.state) for pod in whole.pods] == [("p", "Finished")]
