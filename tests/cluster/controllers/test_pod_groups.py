"""Pod groups: jobs get one for pods that go together, and none goes before its pods have ended.

The names are those that a kube-controller-manager v1.36.2 gave to what it made for jobs with these uids.
"""

import pytest
import yaml

from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.cluster.controllers.upkeep.pod_garbage_collector import PodGarbageCollector
from moorage.cluster.controllers.upkeep.pod_group_protection import PodGroupProtection
from moorage.rules.workloads.job import Jobs, group_name, workload_name

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  parallelism: 3
  completions: 3
  completionMode: Indexed
  template:
    metadata: {annotations: {moorage.dev/run-seconds: "10"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"""


@pytest.fixture
def cluster(lab):
    gates = "GenericWorkload=true,GangScheduling=true,WorkloadWithJob=true"
    made = lab(
        Jobs(with_groups=True), PodGarbageCollector(), GarbageCollector(), PodGroupProtection(), gates=gates, release="1.36"
    )
    yield made
    assert made.reports == []


def start(cluster, **spec):
    job = yaml.safe_load(JOB)
    job["spec"] |= spec
    cluster.apply(job)
    cluster.settle()


def groups_of_pods(cluster):
    return [(pod["spec"].get("schedulingGroup") or {}).get("podGroupName") for pod in cluster.all("pods")]


def owners(document):
    return [(owner["kind"], owner["name"], owner.get("controller", False)) for owner in document["metadata"]["ownerReferences"]]


def test_a_gang_job_gets_a_workload_and_a_pod_group(cluster):
    start(cluster)
    (workload,), (group,) = cluster.all("workloads"), cluster.all("podgroups")
    name = workload["metadata"]["name"]
    assert workload["spec"] == {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "sum"},
        "podGroupTemplates": [
            {"name": "sum-pgt-0", "schedulingPolicy": {"gang": {"minCount": 3}}, "schedulingConstraints": None}
        ],
    }
    assert owners(workload) == [("Job", "sum", True)]
    assert owners(group) == [("Job", "sum", True), ("Workload", name, False)]
    assert group["spec"]["podGroupTemplateRef"] == {"workload": {"workloadName": name, "podGroupTemplateName": "sum-pgt-0"}}
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert groups_of_pods(cluster) == [group["metadata"]["name"]] * 3
    assert all(len(pod["metadata"]["ownerReferences"]) == 1 for pod in cluster.all("pods"))
    told = [event["message"] for event in cluster.all("events") if event["reason"] == "WorkloadCreated"]
    assert told == [f"Created Workload {name} for Job sum"]


PLAIN = {  # what is different about the job
    "one pod": {"parallelism": 1, "completions": 1},
    "more pods than at once": {"completions": 5},
    "without numbers": {"completionMode": "NonIndexed"},
}


@pytest.mark.parametrize("spec", PLAIN.values(), ids=PLAIN)
def test_other_jobs_get_no_group(cluster, spec):
    start(cluster, **spec)
    assert not cluster.all("workloads")
    assert set(groups_of_pods(cluster)) == {None}


def test_a_job_with_its_own_pod_group_gets_no_other(cluster):
    template = yaml.safe_load(JOB)["spec"]["template"]
    template["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    start(cluster, template=template)
    assert not cluster.all("podgroups")
    assert set(groups_of_pods(cluster)) == {"mine"}


def test_no_group_is_created_without_the_gate(lab):
    made = lab(Jobs(), gates="GenericWorkload=true")
    start(made)
    assert not made.all("workloads")
    assert len(made.all("pods")) == 3


def test_a_running_job_gets_no_group(cluster):
    cluster.restart(Jobs())
    start(cluster)
    cluster.restart(Jobs(with_groups=True))
    cluster.delete("pods", cluster.names("pods")[0])
    cluster.advance(1)
    assert not cluster.all("workloads")


def test_a_suspended_job_has_its_group_before_it_has_pods(cluster):
    start(cluster, suspend=True)
    assert not cluster.all("pods")
    (group,) = cluster.names("podgroups")
    cluster.patch("jobs", "sum", suspend=False)
    cluster.settle()
    assert groups_of_pods(cluster) == [group] * 3


def test_a_foreign_workload_is_unchanged(cluster):
    cluster.apply({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "metadata": {"name": "mine"},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "sum"},
            "podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}],
        },
    })  # fmt: skip
    start(cluster)
    assert cluster.names("workloads") == ["mine"]
    assert groups_of_pods(cluster) == [None] * 3


def test_workload_and_group_are_deleted_with_the_job(cluster):
    start(cluster)
    cluster.delete("jobs", "sum", propagationPolicy="Background")
    cluster.advance(60)
    assert not cluster.all("workloads")
    assert not cluster.all("podgroups")
    assert not cluster.all("pods")


# -- since 1.37 ---------------------------------------------------------------------------------------------------------

GANG = {"gang": {"minCount": 3}}
BY_SPEC = {  # spec.scheduling, more of the job → the group's policy and what else its spec has
    "nothing": (None, {}, {"basic": {}}, {}),
    "a gang of all": ({"schedulingPolicy": {"gang": {}}}, {}, GANG, {}),
    "a gang of some": ({"schedulingPolicy": {"gang": {"minCount": 2}}}, {}, {"gang": {"minCount": 2}}, {}),
    "a gang of any job": ({"schedulingPolicy": {"gang": {}}}, {"completionMode": "NonIndexed", "completions": 9}, GANG, {}),
    "together or not at all": (
        {"schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}}}, {}, GANG, {"disruptionMode": "PodGroup"},
    ),
    "a class": ({"schedulingPolicy": {"gang": {}}}, {"class": "high"}, GANG, {"priorityClassName": "high", "priority": 1000}),
}  # fmt: skip


@pytest.fixture
def later(lab):
    gates = "GenericWorkload=true,WorkloadWithJob=true"
    made = lab(Jobs(True, by_spec=True), GarbageCollector(), gates=gates, release="1.37")
    yield made
    assert made.reports == []


@pytest.mark.parametrize(("scheduling", "more", "policy", "others"), BY_SPEC.values(), ids=BY_SPEC)
def test_the_spec_of_a_job_says_what_group_it_gets(later, scheduling, more, policy, others):
    template = yaml.safe_load(JOB)["spec"]["template"]
    priority_class = more.get("class", "")
    if priority_class:
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
        later.apply(high)
        template["spec"]["priorityClassName"] = priority_class
    start(later, template=template, **{name: value for name, value in more.items() if name != "class"}, scheduling=scheduling)
    (workload,), (group,) = later.all("workloads"), later.all("podgroups")
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == group["spec"]["schedulingPolicy"] == policy
    assert {name: group["spec"].get(name) for name in others} == others
    assert group["metadata"]["ownerReferences"][1]["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert groups_of_pods(later) == [group["metadata"]["name"]] * 3


def test_a_job_of_another_controller_gets_no_group(later):
    job = yaml.safe_load(JOB)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}
    job["metadata"]["ownerReferences"] = [owner]
    later.manager.close()
    later.restart(Jobs(True, by_spec=True))
    later.apply(job)
    later.settle()
    assert not later.all("workloads")
    assert groups_of_pods(later) == [None] * 3


def a_group(cluster):
    cluster.apply({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    })  # fmt: skip


def test_a_group_stays_until_its_last_pod_finishes(cluster):
    a_group(cluster)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"moorage.dev/run-seconds": "10"}},
           "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
                    "schedulingGroup": {"podGroupName": "g"}}}  # fmt: skip
    cluster.apply(pod)
    cluster.settle()
    cluster.delete("podgroups", "g")
    cluster.advance(5)
    assert cluster.get("podgroups", "g")["metadata"]["deletionTimestamp"]
    cluster.advance(10)
    assert cluster.get("pods", "p")["status"]["phase"] == "Succeeded"
    assert cluster.get("podgroups", "g") is None


def test_a_group_without_pods_is_deleted_at_once(cluster):
    a_group(cluster)
    cluster.delete("podgroups", "g")
    cluster.settle()
    assert cluster.get("podgroups", "g") is None


def test_names_are_those_of_kubernetes():
    job = {"metadata": {"name": "ga", "uid": "9da8f66c-fbb8-413f-9f16-4d308494ca46"}}
    assert workload_name(job["metadata"]["name"], job["metadata"]["uid"]) == "ga-74684798dd"
    assert group_name("ga-74684798dd", "ga-pgt-0") == "ga-74684798dd-ga-pgt-0-58966bff46"


LENGTHS = {  # of the workload's and the template's name → of their parts in the group's
    "both fit": (100, 100, 100, 100),
    "a short workload": (20, 253, 20, 221),
    "a short template": (253, 20, 221, 20),
    "both long": (253, 253, 121, 120),
}


@pytest.mark.parametrize(("workload", "template", "first", "second"), LENGTHS.values(), ids=LENGTHS)
def test_long_names_are_cut(workload, template, first, second):
    name = group_name("w" * workload, "t" * template)
    assert len(name) <= 253
    mark = name.rpartition("-")[2]
    room = 253 - len(mark) - 2
    parts = name.split("-")
    assert len(parts[0]) + len(parts[1]) == min(workload + template, room)
    assert abs(len(parts[0]) - first) <= 1
    assert abs(len(parts[1]) - second) <= 1
