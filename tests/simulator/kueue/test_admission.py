"""What queues decide, in small: who waits, who borrows, who is evicted, and which input is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.report.queue_report import amount_text
from moorage.simulator.kueue import QueueAdmission, read_objects, read_workload
from moorage.simulator.kueue.quota import ClusterQueueNode, CohortNode, QueueQuota

KEY = ("default", "cpu")


def queue(name, cpu, cohort="all", **spec):
    quota = {"name": "cpu", "nominalQuota": cpu}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    settings = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group], **spec}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": settings}


def setting(*queues):
    local = [
        {"kind": "LocalQueue", "metadata": {"name": one["metadata"]["name"]}, "spec": {"clusterQueue": one["metadata"]["name"]}}
        for one in queues
    ]
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "default"}}
    return QueueAdmission(read_objects([flavor, {"kind": "Namespace", "metadata": {"name": "default"}}, *queues, *local]))


def job(name, to, cpu, pods=1, least=None, priority=0, at=0, **more):
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, **more}}}
    pod_set = {"name": "main", "count": pods, "minCount": least, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": to, "priority": priority, "podSets": [pod_set]}
    return read_workload({"metadata": {"name": name, "uid": name}, "spec": spec}, at)


def states(admission, *jobs, cycles=3):
    for one in jobs:
        assert admission.add(one, 0)
    for cycle in range(cycles):
        if admission.runnable:
            admission.cycle(float(cycle))
    return [one.conditions["QuotaReserved"][1] if one.conditions else "not tried" for one in jobs]


def test_a_strict_queue_waits_behind_its_head_and_a_lenient_one_does_not():
    jobs = [job("large", "a", "8"), job("small", "a", "1", at=1)]
    assert states(setting(queue("a", "4")), *jobs) == ["ExceedsMaxQuota", "QuotaReserved"]
    jobs = [job("large", "a", "8"), job("small", "a", "1", at=1)]
    assert states(setting(queue("a", "4", queueingStrategy="StrictFIFO")), *jobs) == ["ExceedsMaxQuota", "not tried"]


def test_a_queue_borrows_what_its_cohort_does_not_use():
    assert states(setting(queue("a", "4"), queue("b", "4")), job("one", "a", "7")) == ["QuotaReserved"]
    assert states(setting(queue("a", "4"), queue("b", "4", cohort="other")), job("one", "a", "7")) == ["ExceedsMaxQuota"]


def test_a_job_takes_as_many_pods_as_fit():
    one = job("one", "a", "1", pods=8, least=2)
    assert states(setting(queue("a", "5")), one) == ["QuotaReserved"]
    assert [held.count for held in one.admission] == [5]


def test_an_owner_takes_its_quota_back():
    rules = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}
    admission = setting(queue("a", "4"), queue("b", "4", preemption=rules))
    borrower, owner = job("borrower", "a", "8"), job("owner", "b", "4")
    assert states(admission, borrower) == ["QuotaReserved"]
    admission.add(owner, 5)
    [eviction] = admission.cycle(5).evicted
    assert (eviction.workload, eviction.preemptor, eviction.reason) == (borrower, owner, "InCohortReclamation")
    admission.requeue_evicted(borrower, 6)
    admission.wake(6)
    assert [one.key for one in admission.cycle(6).admitted] == ["default/owner"]


def test_a_job_that_would_preempt_for_one_resource_and_borrow_another_is_tried_again_at_once():
    def of_both(name, cpu, memory, **spec):
        quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]
        group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quotas}]}
        return queue(name, cpu, resourceGroups=[group], **spec)

    rules = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    prefers = {"preference": "PreemptionOverBorrowing"}
    admission = setting(of_both("a", "6", "1", preemption=rules, flavorFungibility=prefers), of_both("b", "1", "9"))
    holder, one = job("holder", "b", "0", memory="9"), job("one", "a", "3", at=1, memory="3")
    states(admission, job("cpu", "b", "4"), holder, job("own", "a", "3"), one)
    assert list(admission.waiting["a"].inadmissible) == ["default/one"]
    admission.release(holder)
    admission.wake(5)
    admission.cycle(5)
    # The flavor counts as one that fits: Kueue compares the modes of its resources as it compares flavors.
    assert one.conditions["QuotaReserved"][2] == "Workload no longer fits after processing another workload"
    assert list(admission.waiting["a"].active) == ["default/one"]


def test_queues_that_cannot_admit_say_why():
    cohorts = [{"kind": "Cohort", "metadata": {"name": a}, "spec": {"parentName": b}} for a, b in (("x", "y"), ("y", "x"))]
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "default"}}
    stopped = queue("stopped", "1", stopPolicy="Hold")
    faults = read_objects([*cohorts, flavor, queue("looped", "1", cohort="x"), stopped]).faults
    assert faults == {"looped": "is in a cycle of Cohorts", "stopped": "is stopped"}
    assert read_objects([queue("a", "1")]).faults == {"a": "references missing ResourceFlavor(s): default"}


AMOUNTS = {
    ("cpu", 1500): "1500m", ("cpu", 2000): "2", ("memory", 1536 * 1024): "1536Ki", ("memory", 1000): "1k",
    ("pods", 3): "3", ("example.com/gpu", 1000): "1k", ("memory", 0): "0",
}  # fmt: skip


@pytest.mark.parametrize(("given", "written"), AMOUNTS.items(), ids=str)
def test_writes_amounts_as_kueue_does(given, written):
    assert amount_text(*given) == written


limits = st.none() | st.integers(0, 6)


@given(
    quotas=st.lists(st.tuples(st.integers(0, 8), limits, limits), min_size=4, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=12),
)
def test_the_usage_of_cohorts_follows_from_that_of_queues(quotas, steps):
    root, middle, *leaves = (
        kind(name, {KEY: QueueQuota(*quota)}, 1.0)
        for kind, name, quota in zip((CohortNode, CohortNode, ClusterQueueNode, ClusterQueueNode), "rmab", quotas, strict=True)
    )
    middle.parent, root.cohorts, middle.queues = root, [middle], leaves
    for leaf in leaves:
        leaf.parent = middle
    root.settle()
    held = []
    for place, amount in steps:
        if amount or not held:
            leaves[place].add({KEY: amount})
            held.append((place, amount))
        else:
            first, taken = held.pop(0)
            leaves[first].add({KEY: taken}, -1)
    usage = {node.name: node.usage.get(KEY, 0) for node in (root, middle, *leaves)}
    root.settle()
    assert usage == {node.name: node.usage.get(KEY, 0) for node in (root, middle, *leaves)}
