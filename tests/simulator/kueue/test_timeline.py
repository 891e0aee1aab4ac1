"""Queues in virtual time: who starts when, who loses quota, and what that costs."""

import pytest

from moorage.errors import InputError
from tests.simulator.kueue.timing import API, FLAVOR, job, meta, node, queue, run, template


def times(report):
    """Return for each job when it got quota first, when it ended, and how often it was evicted; times in minutes."""
    return {
        one.object.partition("/")[2]: (_minutes(one.reserved), _minutes(one.finished), one.evictions)
        for one in report.workloads
    }


def _minutes(seconds):
    return None if seconds is None else round(seconds / 60, 1)


def configuration(**rules):
    version = "config.kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": "Configuration", "metadata": {"name": "c"}, "waitForPodsReady": rules}


def check(**notes):
    annotations = {f"moorage.dev/{name}": text for name, text in notes.items()}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": "check", "annotations": annotations},
        "spec": spec,
    }


HOST = "kubernetes.io/hostname"
RACKS = [
    {"apiVersion": API, "kind": "Topology", "metadata": {"name": "hosts"}, "spec": {"levels": [{"nodeLabel": HOST}]}},
    {**FLAVOR, "spec": {"topologyName": "hosts", "nodeLabels": {HOST: "n1"}}},
]
RECLAIM = {"preemption": {"reclaimWithinCohort": "Any"}}
WAITS = {
    "a job starts when another ends": (
        [*queue("a", 4), job("one", "a", 4, 60), job("two", "a", 4, 30)],
        {"one": (0, 60, 0), "two": (60, 90, 0)},
    ),
    "a job comes later": (
        [*queue("a", 4), job("one", "a", 4, 60), job("two", "a", 2, 30, at=10)],
        {"one": (0, 60, 0), "two": (60, 90, 0)},
    ),
    "a job with more completions than pods at once runs in waves": (
        [*queue("a", 4), job("one", "a", 2, 10, completions=6)],
        {"one": (0, 30, 0)},
    ),
    "pods that ended give quota back while others run": (
        [*queue("a", 4), job("one", "a", 4, 10, completions=6), job("two", "a", 2, 10)],
        {"one": (0, 20, 0), "two": (10, 20, 0)},
    ),
    "an evicted job begins again": (
        [*queue("a", 4), *queue("b", 4, **RECLAIM), job("big", "a", 8, 60), job("owner", "b", 4, 30, at=10)],
        {"big": (0, 100.5, 1), "owner": (10, 40.5, 0)},
    ),
    "a job without nodes holds its quota": (
        [node("n2", 1), *queue("a", 20), job("wide", "a", 10, 10), job("next", "a", 10, 10)],
        {"wide": (0, 20, 0), "next": (0, 30, 0)},
    ),
    "a check takes time": (
        [check(delay="5m"), *queue("a", 4, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]}),
         job("one", "a", 1, 10)],
        {"one": (0, 15, 0)},
    ),
    "a check of another flavor is not asked": (
        [check(delay="5m"), {**FLAVOR, "metadata": {"name": "other"}},
         *queue("a", 4, admissionChecksStrategy={"admissionChecks": [{"name": "check", "onFlavors": ["other"]}]},
                resourceGroups=[{"coveredResources": ["cpu"], "flavors": [
                    {"name": name, "resources": [{"name": "cpu", "nominalQuota": 4}]} for name in ("default", "other")
                ]}]),
         job("one", "a", 1, 10)],
        {"one": (0, 10, 0)},
    ),
    "a check answers later": (
        [check(delay="5m", answers="Retry,Ready"), *queue("a", 4, admissionChecks=["check"]), job("one", "a", 1, 10)],
        {"one": (0, 20, 1)},
    ),
    "places are found once a check has made nodes": (
        [*RACKS, check(delay="5m"), *queue("a", 20, admissionChecks=["check"]), *queue("b", 20),
         job("one", "a", 2, 10), job("all", "b", 8, 60)],
        {"one": (0, 70, 0), "all": (0, 60, 0)},
    ),
    "a job that takes too long is stopped": (
        [*queue("a", 4), job("one", "a", 4, 60, labels={"kueue.x-k8s.io/max-exec-time-seconds": "600"}), job("two", "a", 4, 5)],
        {"one": (0, None, 1), "two": (10, 15, 0)},
    ),
    "quota waits until pods are ready": (
        [configuration(timeout="5m", blockAdmission=True), *queue("a", 20), job("wide", "a", 9, 10), job("next", "a", 1, 10)],
        {"wide": (0, None, 12), "next": (5, 15.5, 0)},
    ),
    "what one decision causes waits for the others of its cycle": (
        [check(answers="Rejected"), *queue("c", 4, "own", admissionChecks=["check"]),
         *queue("d", 4, "own", admissionChecks=["check"]), *queue("a", 4), *queue("b", 4, **RECLAIM),
         job("no", "c", 1, 10), job("neither", "d", 1, 10), job("small", "b", 1, 60), job("big", "a", 6, 30),
         job("owner", "b", 3, 10)],
        {"no": (0, None, 1), "neither": (0, None, 1), "small": (0, 60, 0), "big": (0, 40, 1), "owner": (0, 10, 0)},
    ),
    "a search for flavors that goes round ends": (
        [{**FLAVOR, "metadata": {"name": "other"}},
         *queue("a", 4, "own", resourceGroups=[{"coveredResources": ["cpu"], "flavors": [
             {"name": name, "resources": [{"name": "cpu", "nominalQuota": 4}]} for name in ("default", "other")
         ]}]),
         {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta("ray", "a"), "spec": {"rayClusterSpec": {
             "headGroupSpec": {"template": template(3)}, "workerGroupSpecs": [{"groupName": "g", "template": template(3)}],
         }}}],
        {"ray": (None, None, 0)},
    ),
    "a job that is never ready is queued again, and at last given up": (
        [configuration(timeout="5m", requeuingStrategy={"backoffLimitCount": 2}), *queue("a", 20),
         job("wide", "a", 1, 10, cpu=9)],
        {"wide": (0, None, 3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("documents", "expected"), WAITS.values(), ids=WAITS)
def test_over_time(documents, expected):
    assert times(run(node(), *documents)[0]) == expected


def test_what_an_eviction_costs():
    documents = [*queue("a", 4), *queue("b", 4, **RECLAIM), job("big", "a", 8, 60), job("owner", "b", 4, 30, at=10)]
    report, whole = run(node(), *documents)
    a, b = report.queues
    assert a.lost_hours == {"cpu": round(8 * 1000 * 10 / 60, 3)}
    assert (a.evictions, b.evictions) == (1, 0)
    assert {pod.preempted_by for pod in whole.in_state("Preempted")} == {"team/Job/owner"}
    assert len(whole.in_state("Finished")) == 8 + 4
    [cpu] = a.amounts
    assert cpu.mean_used == pytest.approx(8000 * 70 / 100, rel=0.02)
    assert cpu.mean_borrowed == pytest.approx(4000 * 70 / 100, rel=0.02)
    assert cpu.mean_borrowed == pytest.approx(b.amounts[0].mean_lent, rel=0.02)
    assert a.waits.p50 == 0
    assert report.is_timed


def test_jobs_that_wait_for_ever_say_so():
    report, _ = run(node(), *queue("a", 4), job("huge", "a", 5, 10), job("lost", "nowhere", 1))
    huge, lost = report.workloads
    assert (huge.state, lost.state) == ("Waiting", "Waiting")
    assert "maximum capacity (4)" in huge.reason
    assert lost.reason == "LocalQueue nowhere doesn't exist in namespace team"
    assert report.queues[0].waits.p50 == float("inf")
    assert report.data()["queues"][0]["waits"]["p50"] is None


def resources(**rules):
    return {**configuration(), "waitForPodsReady": None, "resources": rules}


CREDITS = [{"input": "cpu", "strategy": "Replace", "outputs": {"credits": "2"}}]
MEMORY = queue("a", 1, resource="memory")
AT_ONCE = {"one": (0, 10, 0), "two": (0, 10, 0)}
COUNTED = {
    "a resource counts as another": (
        resources(transformations=CREDITS), queue("a", 8, resource="credits"), {"one": (0, 10, 0), "two": (10, 20, 0)}
    ),
    "a resource does not count": (resources(excludeResourcePrefixes=["cp"]), MEMORY, AT_ONCE),
    "resources without quota do not count": (resources(quotaCheckStrategy="IgnoreUndeclared"), MEMORY, AT_ONCE),
    "resources without quota block": (resources(), MEMORY, {"one": (None, None, 0), "two": (None, None, 0)}),
}  # fmt: skip


@pytest.mark.parametrize(("rules", "queues", "expected"), COUNTED.values(), ids=COUNTED)
def test_what_counts_for_quota(rules, queues, expected):
    jobs = [job(name, "a", 3, 10) for name in ("one", "two")]
    for one in jobs:
        one["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "0"
    assert times(run(node(), rules, *queues, *jobs)[0]) == expected


def test_victims_are_as_many_as_what_resources_count_as_needs():
    high = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}
    queues = queue("a", 8, resource="credits", preemption={"withinClusterQueue": "LowerPriority"})
    jobs = [job(name, "a", 1, 20, cpu=2) for name in ("low", "low2")]
    jobs.append(job("one", "a", 1, 10, at=5, cpu=4, labels={"kueue.x-k8s.io/priority-class": "high"}))
    found = times(run(node(), high, resources(transformations=CREDITS), queues, jobs)[0])
    assert found == {"low": (0, 35, 1), "low2": (0, 35, 1), "one": (5, 15, 0)}


def test_a_job_that_is_evicted_again_and_again_waits_until_another_ends():
    answers = check(answers=",".join(["Retry"] * 12 + ["Ready"]))
    queues = queue("a", 8, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    report, _ = run(node(), answers, *queues, job("one", "a", 1, 10))
    assert times(report) == {"one": (0, None, 10)}
    assert report.workloads[0].reason.startswith("evicted again and again, last because of AdmissionCheck, while no other job")
    report, _ = run(node(), answers, *queues, *queue("b", 1), job("one", "a", 1, 10), job("two", "b", 1, 10, at=5))
    assert times(report) == {"one": (0, 25, 12), "two": (5, 15, 0)}


WRONG = {
    "a duration": ([job("one", "a", 1, notes={"moorage.dev/duration": "soon"})], "moorage.dev/duration"),
    "a negative time": ([job("one", "a", 1, notes={"moorage.dev/arrival": "-1m"})], "is negative"),
    "an answer": ([check(answers="Maybe")], "'Maybe' is no answer; use Ready, Retry or Rejected"),
}


@pytest.mark.parametrize(("documents", "says"), WRONG.values(), ids=WRONG)
def test_refuses(documents, says):
    with pytest.raises(InputError, match=says):
        run(node(), *queue("a", 4), *documents)


def test_what_ends_already_is_not_evicted_again():
    notes = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    group = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**meta(f"g-{number}", "a", **{"kueue.x-k8s.io/pod-group-name": "g"}), "annotations": notes},
            **template(5),
        }
        for number in range(2)
    ]
    high = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}
    one = job("one", "a", 1, 10, at=1.2, cpu=4, labels={"kueue.x-k8s.io/priority-class": "high"})
    rules = configuration(timeout="1m", requeuingStrategy={"backoffLimitCount": 0})
    queues = queue("a", 10, preemption={"withinClusterQueue": "LowerPriority"})
    [later, ended] = run(node(), high, rules, queues, group, one)[0].workloads
    # The node takes one of the pods, which has 30 s to end after the minute; the change is heeded a second later.
    assert (ended.object, ended.held, later.reserved) == ("PodGroup/g", ((0, 60),), 91)


def test_spans_of_quota_are_told():
    pods = job("gang", "a", pods=2, minutes=10, notes={"moorage.dev/arrival": "5m"})
    report, _ = run(node(), queue("a", 2), pods)
    [one] = report.workloads
    assert one.held == ((300.0, 900.0),)


@pytest.mark.slow
def test_many_pods_may_end_at_one_moment():
    """The pods of an evicted gang leave together; each end is an event of its own."""
    rules = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    high = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}
    gang = job("gang", "a", pods=600, minutes=60)
    urgent = job("urgent", "a", pods=600, minutes=1, at=1, labels={"kueue.x-k8s.io/priority-class": "high"})
    nodes = [node(f"n{at}", 100) for at in range(6)]
    report, _ = run(*nodes, high, queue("a", 600, **rules), gang, urgent)
    assert [(one.state, one.evictions) for one in report.workloads] == [("Finished", 1), ("Finished", 0)]
