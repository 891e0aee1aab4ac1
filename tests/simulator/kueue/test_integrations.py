"""Which pod sets each kind of object asks its queue for, and what becomes of its pods."""

import json

import pytest

from moorage.simulator.kueue.batch_jobs import queued_cluster
from tests.simulator.kueue.timing import job, meta, node, queue, read, run, template


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


def member(name, cpu=1, total="3", created=None, **labels):
    made = meta(name, "a", 10, **{"kueue.x-k8s.io/pod-group-name": "g", **labels})
    if total is not None:
        made["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = total
    if created is not None:
        made |= {"creationTimestamp": f"2026-08-01T10:00:0{created}Z", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, **template(cpu)}


def fast(pod):
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
    return pod


FEWER = "'g' group has fewer runnable pods than expected"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
GROUPS = {  # pods of a group, quota → state and reason, pods that exist in the end
    "all are there": ([member("x"), member("y"), member("z", cpu=2)], 20, "Finished", "", 3),
    "one is missing": ([member("x"), member("y")], 20, "Waiting", FEWER, 0),
    "one is missing, and the first are admitted fast": ([fast(member("x")), fast(member("y"))], 3, "Finished", "", 2),
    "fast, and no quota for the one that is missing": ([fast(member("x")), fast(member("y"))], 2, "Waiting", "maximum", 0),
    "one is too many": ([member(name, created=n) for n, name in enumerate("wxyz")], 3, "Finished", "", 3),
    "no quota for all": ([member("x"), member("y"), member("z", cpu=2)], 3, "Waiting", "current podset request", 0),
    "counts differ": ([member("x", total="2"), member("y")], 20, "Waiting", f"has different '{TOTAL}' values: 2!=3", 0),
    "a count of none": ([member("x", total="0")], 20, "Waiting", "should be greater than zero", 0),
    "one exists without a count": ([member("x", total=None, created=1)], 20, "Waiting", f"extract '{TOTAL}'", 0),
}


@pytest.mark.parametrize(("pods", "quota", "state", "why", "count"), GROUPS.values(), ids=GROUPS)
def test_a_group_of_pods_is_one_workload(pods, quota, state, why, count):
    report, whole = run(node(cpu=20), queue("a", quota), *pods)
    [group] = report.workloads
    assert (group.object, group.state, len(whole.pods)) == ("PodGroup/g", state, count)
    assert why in group.reason


def test_a_pod_of_a_group_without_a_count_is_refused():
    found = queued_cluster(*read(node(cpu=20), queue("a", 20), member("x", total=None)))
    assert (found.works, found.cluster.pods) == ([], ())
    assert any("Kueue's webhook refuses 1 pod (team/x)" in note for note in found.cluster.report.notes)


def test_the_pod_that_was_created_last_is_one_too_many():
    cluster = read(
        node(cpu=20), queue("a", 20), [member(name, created=n) for n, name in ((3, "w"), (1, "x"), (2, "y"), (4, "z"))]
    )
    [work] = queued_cluster(*cluster).works
    assert {pod.name for pods in work.pods for pod in pods} == {"w", "x", "y"}


def test_equal_pods_of_a_group_are_one_pod_set():
    pods = [member("x", created=1), member("y", created=2), member("z", cpu=2, created=3)]
    [work] = queued_cluster(*read(node(), queue("a", 20), pods)).works
    assert sorted((one.count, one.requests["cpu"]) for one in work.workload.pod_sets) == [(1, 2000), (2, 1000)]
    assert [len(pods) for pods in work.pods] == [one.count for one in work.workload.pod_sets]


RUNTIME = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata",
           "overhead": {"podFixed": {"cpu": "500m"}}}  # fmt: skip


def limits(**item):
    made = {"name": "l", "namespace": "team"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": made, "spec": {"limits": [{"type": "Container", **item}]}}


ASKED = {  # what stands beside a job, its container's resources, fields of its pods → cpu that counts, or why it gets none
    "requests": ([], {"requests": {"cpu": 2}}, {}, 2000),
    "limits stand for requests": ([], {"limits": {"cpu": 3}}, {}, 3000),
    "requests count before limits": ([], {"requests": {"cpu": 1}, "limits": {"cpu": 3}}, {}, 1000),
    "overhead": ([RUNTIME], {"requests": {"cpu": 2}}, {"runtimeClassName": "kata"}, 2500),
    "overhead of its own": ([RUNTIME], {"requests": {"cpu": 2}}, {"runtimeClassName": "kata", "overhead": {"cpu": 1}}, 3000),
    "an unknown runtime class": ([], {"requests": {"cpu": 2}}, {"runtimeClassName": "kata"}, 2000),
    "a default request": ([limits(defaultRequest={"cpu": "250m"})], {}, {}, 250),
    "a default limit": ([limits(default={"cpu": 4})], {}, {}, 4000),
    "a default request comes before a limit": ([limits(defaultRequest={"cpu": 1})], {"limits": {"cpu": 3}}, {}, 1000),
    "a default limit below a request": ([limits(default={"cpu": 1})], {"requests": {"cpu": 2}}, {}, "exceed its limits"),
    "too much": ([limits(max={"cpu": 1})], {"requests": {"cpu": 2}, "limits": {"cpu": 3}}, {}, "above the limitRange max"),
    "too little": ([limits(min={"cpu": 3})], {"requests": {"cpu": 2}, "limits": {"cpu": 3}}, {}, "below the limitRange min"),
}  # fmt: skip


@pytest.mark.parametrize(("beside", "resources", "fields", "expected"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("is_workload", [False, True])
def test_what_a_template_asks_for(beside, resources, fields, expected, is_workload):
    one = job("j", "a", minutes=1)
    one["spec"]["template"]["spec"] |= {"containers": [{"name": "c", "image": "i", "resources": resources}], **fields}
    documents = [one]
    if is_workload:
        pod_set = {"name": "main", "count": 1, "template": one["spec"]["template"]}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        documents.append({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-j", "namespace": "team", "ownerReferences": [owner]},
            "spec": {"queueName": "a", "podSets": [pod_set]},
        })  # fmt: skip
    [work] = queued_cluster(*read(node(), queue("a", 20), *beside, *documents)).works
    if isinstance(expected, str):
        assert expected in work.workload.invalid
    else:
        assert (work.workload.pod_sets[0].counted["cpu"], work.workload.invalid) == (expected, "")


def configuration(**fields):
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **fields}


def config_map(**fields):
    text = json.dumps(configuration(**fields))
    made = {"name": "kueue-manager-config", "namespace": "kueue-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": made, "data": {"controller_manager_config.yaml": text}}


PLAIN = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "plain", "namespace": "team"},
         "spec": {"template": template(restartPolicy="Never")}}  # fmt: skip
LABELLED_JOB, LABELLED_POD = job("j", "a"), {"apiVersion": "v1", "kind": "Pod", "metadata": meta("p", "a"), **template()}
ELSEWHERE = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
MANAGED = {  # settings, an object → whether it waits in a queue
    "no queue": ({}, PLAIN, False),
    "all jobs": ({"manageJobsWithoutQueueName": True}, PLAIN, True),
    "all jobs elsewhere": ({"manageJobsWithoutQueueName": True, "managedJobsNamespaceSelector": ELSEWHERE}, PLAIN, False),
    "a queue in a namespace of others": ({"managedJobsNamespaceSelector": ELSEWHERE}, LABELLED_JOB, False),
    "a kind that is listed": ({"integrations": {"frameworks": ["batch/job"]}}, LABELLED_JOB, True),
    "a kind that is not": ({"integrations": {"frameworks": ["ray.io/rayjob"]}}, LABELLED_JOB, False),
    "a pod, and pods are not listed": ({"integrations": {"frameworks": ["batch/job"]}}, LABELLED_POD, False),
    "a pod, and pods are listed": ({"integrations": {"frameworks": ["pod"]}}, LABELLED_POD, True),
}


@pytest.mark.parametrize(("fields", "document", "waits"), MANAGED.values(), ids=MANAGED)
@pytest.mark.parametrize("form", [configuration, config_map])
def test_which_objects_kueue_manages(fields, document, waits, form):
    found = queued_cluster(*read(node(), queue("a", 20), form(**fields), document))
    assert [bool(found.works), bool(found.cluster.jobs or found.cluster.pods)] == [waits, not waits]


def test_a_job_that_names_no_queue_waits_and_says_so():
    report, whole = run(node(), queue("a", 20), configuration(manageJobsWithoutQueueName=True), PLAIN)
    [one] = report.workloads
    assert (one.state, len(whole.pods)) == ("Waiting", 0)
    assert "names no LocalQueue" in one.reason


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
