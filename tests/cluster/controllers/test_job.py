"""Jobs: how many pods at once, how many in all, and how it ends."""

from itertools import islice

import pytest
import yaml

from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.cluster.controllers.upkeep.pod_garbage_collector import PodGarbageCollector
from moorage.rules.workloads.job import Jobs
from moorage.rules.workloads.missing_pods import parse_indexes

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  template:
    metadata: {annotations: {moorage.dev/run-seconds: "10", %s}}
    spec: {restartPolicy: %s, containers: [{name: c, image: i}]}
"""


@pytest.fixture
def cluster(lab):
    made = lab(Jobs(), PodGarbageCollector(), GarbageCollector())
    yield made
    assert made.reports == []


def start(cluster, spec="parallelism: 1", said="", policy="Never"):
    job = yaml.safe_load(JOB % (said, policy))
    job["spec"] |= yaml.safe_load(f"{{{spec}}}")
    cluster.apply(job)
    cluster.settle()


def numbers(cluster, *names):
    status = cluster.get("jobs", "sum")["status"]
    return [status.get(name, 0) for name in names or ("active", "succeeded", "failed")]


def over(cluster):
    conditions = cluster.get("jobs", "sum")["status"].get("conditions", ())
    return [
        (one["type"], one["reason"]) for one in conditions if one["status"] == "True" and one["type"] in ("Complete", "Failed")
    ]


def phases(cluster):
    return sorted(pod["status"]["phase"] for pod in cluster.all("pods"))


def test_pods_run_until_enough_have_succeeded(cluster):
    start(cluster, "completions: 5, parallelism: 2")
    assert numbers(cluster) == [2, 0, 0]
    cluster.advance(11)
    assert numbers(cluster) == [2, 2, 0]
    cluster.advance(10)
    assert numbers(cluster) == [1, 4, 0]
    cluster.advance(10)
    assert numbers(cluster) == [0, 5, 0]
    assert over(cluster) == [("Complete", "CompletionsReached")]
    status = cluster.get("jobs", "sum")["status"]
    assert status["completionTime"] > status["startTime"]
    assert status["uncountedTerminatedPods"] == {}
    assert phases(cluster) == ["Succeeded"] * 5
    assert not any(pod["metadata"].get("finalizers") for pod in cluster.all("pods"))


def test_without_completions_the_first_success_completes_the_job(cluster):
    start(cluster, "parallelism: 3")
    assert numbers(cluster) == [3, 0, 0]
    cluster.advance(11)
    assert numbers(cluster) == [0, 3, 0]
    assert over(cluster) == [("Complete", "CompletionsReached")]


def test_pods_know_their_job(cluster):
    start(cluster)
    job, (pod,) = cluster.get("jobs", "sum"), cluster.all("pods")
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}}
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "sum"
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]


def test_failures_are_retried_with_backoff_up_to_the_limit(cluster):
    start(cluster, "backoffLimit: 3", 'moorage.dev/exit-code: "1"')
    began = cluster.now
    times = []
    while not over(cluster):
        count = len(cluster.all("pods"))
        cluster.advance(1)
        if len(cluster.all("pods")) > count:
            times.append(round(cluster.now - began))
    assert times == [20, 50, 100]
    assert over(cluster) == [("Failed", "BackoffLimitExceeded")]
    assert numbers(cluster) == [0, 0, 4]


def test_failing_containers_restart_in_place_with_on_failure(cluster):
    start(cluster, "backoffLimit: 2", 'moorage.dev/exit-code: "1"', "OnFailure")
    cluster.advance(15)
    (pod,) = cluster.all("pods")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    cluster.advance(120)
    assert over(cluster) == [("Failed", "BackoffLimitExceeded")]
    assert cluster.all("pods") == [] or phases(cluster) == ["Failed"]


def test_an_active_deadline_ends_the_job(cluster):
    start(cluster, "activeDeadlineSeconds: 5, parallelism: 2")
    cluster.advance(6)
    assert over(cluster) == [("Failed", "DeadlineExceeded")]
    assert numbers(cluster) == [0, 0, 2]


def test_each_index_succeeds_once(cluster):
    start(cluster, "completions: 4, parallelism: 3, completionMode: Indexed")
    pods = cluster.all("pods")
    mark = "batch.kubernetes.io/job-completion-index"
    assert sorted(pod["metadata"]["labels"][mark] for pod in pods) == ["0", "1", "2"]
    assert {pod["spec"]["hostname"] for pod in pods} == {"sum-0", "sum-1", "sum-2"}
    assert pods[0]["metadata"]["name"].startswith("sum-0-")
    assert pods[0]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    cluster.delete("pods", pods[1]["metadata"]["name"])
    cluster.advance(60)
    assert cluster.get("jobs", "sum")["status"]["completedIndexes"] == "0-3"
    assert numbers(cluster) == [0, 4, 1]
    assert over(cluster) == [("Complete", "CompletionsReached")]


def said_to_fail(pod):
    pod["metadata"]["annotations"]["moorage.dev/exit-code"] = "1"


def of_number(cluster, index):
    return [pod for pod in cluster.all("pods") if f"-{index}-" in pod["metadata"]["name"]]


def fail(cluster, index):
    """Let the pods of a number fail that run."""
    for pod in of_number(cluster, index):
        if pod["status"]["phase"] == "Running":
            cluster.edit("pods", pod["metadata"]["name"], said_to_fail)


def test_each_index_may_have_its_own_backoff_limit(cluster):
    start(cluster, "completions: 3, parallelism: 3, completionMode: Indexed, backoffLimitPerIndex: 1")
    assert cluster.get("jobs", "sum")["spec"]["backoffLimit"] == 2**31 - 1
    for _ in range(30):
        fail(cluster, 1)
        cluster.advance(2)
    status = cluster.get("jobs", "sum")["status"]
    assert (status["completedIndexes"], status["failedIndexes"]) == ("0,2", "1")
    assert numbers(cluster) == [0, 2, 2]
    assert over(cluster) == [("Failed", "FailedIndexes")]
    mark = "batch.kubernetes.io/job-index-failure-count"
    assert sorted(pod["metadata"]["annotations"][mark] for pod in cluster.all("pods") if "-1-" in pod["metadata"]["name"]) == [
        "0",
        "1",
    ]


def test_max_failed_indexes_ends_the_job(cluster):
    start(cluster, "completions: 9, parallelism: 3, completionMode: Indexed, backoffLimitPerIndex: 0, maxFailedIndexes: 1",
          'moorage.dev/exit-code: "1"')  # fmt: skip
    cluster.advance(12)
    assert over(cluster) == [("Failed", "MaxFailedIndexesExceeded")]


def test_a_success_policy_completes_the_job_early(cluster):
    rules = "successPolicy: {rules: [{succeededIndexes: '1-2', succeededCount: 1}]}"
    start(cluster, f"completions: 3, parallelism: 3, completionMode: Indexed, {rules}")

    def shorter(pod):
        pod["metadata"]["annotations"]["moorage.dev/run-seconds"] = "2"

    name = next(pod["metadata"]["name"] for pod in cluster.all("pods") if "-2-" in pod["metadata"]["name"])
    cluster.edit("pods", name, shorter)
    cluster.advance(3)
    assert over(cluster) == [("Complete", "SuccessPolicy")]
    assert numbers(cluster) == [0, 1, 2]


def test_suspending_and_resuming_write_one_event_each(cluster):
    start(cluster, "completions: 2, parallelism: 2")
    for suspend in (True, False):
        cluster.patch("jobs", "sum", suspend=suspend)
        cluster.settle()
    told = {one["reason"]: one["count"] for one in cluster.all("events") if one["involvedObject"]["kind"] == "Job"}
    assert (told["Suspended"], told["Resumed"]) == (1, 1)


def test_suspending_deletes_pods_and_resuming_creates_new_ones(cluster):
    start(cluster, "completions: 2, parallelism: 2")
    cluster.patch("jobs", "sum", suspend=True)
    cluster.settle()
    assert cluster.all("pods") == []
    assert cluster.condition("jobs", "sum", "Suspended") == ("True", "JobSuspended")
    assert "startTime" not in cluster.get("jobs", "sum")["status"]
    cluster.patch("jobs", "sum", suspend=False)
    cluster.advance(60)
    assert cluster.condition("jobs", "sum", "Suspended") == ("False", "JobResumed")
    assert over(cluster) == [("Complete", "CompletionsReached")]


def test_a_finished_job_is_deleted_after_its_ttl(cluster):
    start(cluster, "ttlSecondsAfterFinished: 30")
    cluster.advance(35)
    assert cluster.get("jobs", "sum") is not None
    cluster.advance(10)
    assert cluster.get("jobs", "sum") is None
    assert cluster.all("pods") == []


def test_lower_parallelism_deletes_pods(cluster):
    start(cluster, "completions: 6, parallelism: 4")
    cluster.patch("jobs", "sum", parallelism=1)
    cluster.settle()
    assert numbers(cluster, "active") == [1]


POLICIES = {
    "fails the job": ("{action: FailJob, onExitCodes: {operator: In, values: [42]}}", [("Failed", "PodFailurePolicy")], 1),
    "is passed over": ("{action: Ignore, onExitCodes: {operator: In, values: [42]}}", [], 0),
    "counts": ("{action: Count, onExitCodes: {operator: NotIn, values: [3]}}", [("Failed", "BackoffLimitExceeded")], 1),
    "of a number ends that number": (
        "{action: FailIndex, onExitCodes: {operator: In, values: [42]}}",
        [("Failed", "FailedIndexes")],
        1,
    ),
    "does not match": ("{action: FailJob, onExitCodes: {operator: In, values: [3]}}", [("Failed", "BackoffLimitExceeded")], 1),
}


@pytest.mark.parametrize(("rule", "ends", "failed"), POLICIES.values(), ids=POLICIES)
def test_the_pod_failure_policy_applies(cluster, rule, ends, failed):
    by_index = "backoffLimitPerIndex: 5, completions: 1, completionMode: Indexed, " if "FailIndex" in rule else ""
    start(cluster, f"{by_index}backoffLimit: 0, podFailurePolicy: {{rules: [{rule}]}}", 'moorage.dev/exit-code: "42"')
    cluster.advance(12)
    assert over(cluster) == ends
    assert numbers(cluster, "failed") == [failed]


class Interrupted(Jobs):
    """Is interrupted in each reconcile after some steps, at first after few."""

    steps = 1

    def reconcile(self, key, world, now):
        self.steps += 1
        yield from islice(super().reconcile(key, world, now), self.steps // 3)


MODES = {
    "any pod": "",
    "indexes": ", completionMode: Indexed",
    "tries by index": ", completionMode: Indexed, backoffLimitPerIndex: 1",
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("already", range(0, 30, 3))
def test_a_job_that_is_interrupted_counts_each_pod_once(lab, mode, already):
    jobs = Interrupted()
    cluster = lab(jobs)
    start(cluster, f"completions: 4, parallelism: 4{mode}")
    while len(cluster.names("pods")) < 4:
        cluster.advance(0.1)
        cluster.edit("jobs", "sum", lambda one: one["metadata"].setdefault("labels", {}).update(at=str(cluster.now)))
        cluster.settle()
    jobs.steps = already
    for _ in range(40):
        cluster.advance(1)
        cluster.edit("jobs", "sum", lambda one: one["metadata"].setdefault("labels", {}).update(at=str(cluster.now)))
        cluster.settle()
    assert numbers(cluster) == [0, 4, 0]
    assert over(cluster) == [("Complete", "CompletionsReached")]
    assert phases(cluster) == ["Succeeded"] * 4
    assert cluster.get("jobs", "sum")["status"].get("completedIndexes") == ("0-3" if mode else None)


def test_an_unscheduled_pod_is_counted_when_deleted(cluster):
    cluster.schedules = False
    start(cluster, "backoffLimit: 1")
    cluster.delete("pods", cluster.names("pods")[0])
    cluster.settle()
    assert numbers(cluster, "failed") == [1]


def test_pods_of_a_deleted_job_are_deleted(cluster):
    start(cluster, "parallelism: 2")
    cluster.delete("jobs", "sum")
    cluster.settle()
    assert cluster.all("pods") == []


def test_indexes_are_compressed_into_ranges():
    assert str(parse_indexes("", 9).with_numbers([5, 1, 2, 7, 8, 6, 0])) == "0-2,5-8"
    assert str(parse_indexes("", 9).with_numbers([3, 4, 6])) == "3,4,6"


def test_pods_that_a_job_deletes_are_not_failures(cluster):
    document = yaml.safe_load(LONG)
    cluster.apply(document)
    cluster.settle()
    cluster.patch("jobs", "long", suspend=True)
    cluster.advance(60)
    assert cluster.names("pods") == []
    status = cluster.get("jobs", "long")["status"]
    assert "failed" not in status
    assert status["uncountedTerminatedPods"] == {}
    cluster.patch("jobs", "long", suspend=False)
    cluster.settle()
    cluster.patch("jobs", "long", parallelism=1)
    cluster.advance(60)
    assert len(cluster.names("pods")) == 1
    assert "failed" not in cluster.get("jobs", "long")["status"]
    told = [one["reason"] for one in cluster.all("events")]
    assert "Suspended" in told
    assert "Resumed" in told


def test_empty_status_fields_are_omitted(cluster):
    document = yaml.safe_load(LONG)
    document["spec"]["template"]["metadata"] = {"annotations": {"moorage.dev/run-seconds": "5"}}
    document["spec"] |= {"completions": 2}
    cluster.apply(document)
    cluster.advance(4)
    assert "conditions" not in cluster.get("jobs", "long")["status"]
    cluster.advance(30)
    assert all("finalizers" not in pod["metadata"] for pod in cluster.all("pods"))


LONG = """
apiVersion: batch/v1
kind: Job
metadata: {name: long}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {moorage.dev/run-seconds: "1000"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"""
