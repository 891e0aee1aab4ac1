"""Admission fair sharing: LocalQueues that used less of late go first."""

import math

import pytest

from moorage.errors import InputError
from moorage.simulator.kueue.settings import UsageRules, read_settings
from moorage.simulator.kueue.usage_ledger import UsageLedger
from moorage.simulator.kueue.workloads import read_workload
from tests.simulator.kueue.timing import job, node, queue, run

CONFIG = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "metadata": {"name": "kueue"},
    "admissionFairSharing": {"usageHalfLifeTime": "10m", "usageSamplingInterval": "1m"},
}


def held(name="w", queue="a", cpu="4"):
    assigned = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}, "count": 1}
    status = {
        "admission": {"clusterQueue": "q", "podSetAssignments": [assigned]},
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
    }
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]
    return read_workload(
        {"metadata": {"name": name, "namespace": "n"}, "spec": {"queueName": queue, "podSets": pod_sets}, "status": status}
    )


def ledger(half_life_s=600.0, **weights):
    found = UsageLedger(UsageRules(half_life_s, 60.0), {f"n/{name}": weight for name, weight in weights.items()})
    found.advance(0.0)
    return found


def test_use_moves_halfway_in_a_half_life_and_decays_again():
    one, books = held(), ledger()
    books.reserve(one)
    penalty = 4 * (1 - 0.5**0.1)
    assert books.usage(one) == pytest.approx(penalty)
    books.start(one)
    assert books.usage(one) == pytest.approx(penalty)
    books.advance(600.0)
    assert books.usage(one) == pytest.approx(2 + penalty / 2)
    books.stop(one, comes_back=False)
    books.advance(1200.0)
    assert books.usage(one) == pytest.approx((2 + penalty / 2) / 2)


def test_use_changes_at_samples_alone():
    one, books = held(), ledger()
    books.start(one)
    books.advance(59.0)
    assert books.usage(one) == 0
    books.advance(60.0)
    assert books.usage(one) > 0


def test_use_is_divided_by_the_weight():
    books = ledger(a=2.0, b=0.0)
    books.seed("n/a", {"cpu": 3.0})
    assert books.usage(held()) == 1.5
    assert books.usage(held(queue="b")) == math.inf


def test_without_a_half_life_nothing_is_remembered():
    one, books = held(), ledger(0.0)
    books.reserve(one)
    books.start(one)
    books.advance(60.0)
    assert books.usage(one) == 0


def local(name, weight=None):
    spec = {"clusterQueue": "q", **({} if weight is None else {"fairSharing": {"weight": weight}})}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "team"},
        "spec": spec,
    }


def starts(*documents):
    report, _ = run(node(cpu=2), *documents)
    return {one.name: one.started for one in report.workloads}


@pytest.mark.parametrize("shares", [True, False])
def test_the_queue_that_used_less_goes_first(shares):
    mode = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if shares else {}
    jobs = [
        job("busy", "a", minutes=30, cpu=2),
        job("again", "a", minutes=30, cpu=2, at=1),
        job("quiet", "b", minutes=30, cpu=2, at=2),
    ]
    found = starts(CONFIG, queue("q", 2, **mode), local("a"), local("b"), *jobs)
    assert (found["job-quiet"] < found["job-again"]) is shares


def test_a_stopped_local_queue_admits_nothing():
    stopped = local("a")
    stopped["spec"]["stopPolicy"] = "Hold"
    report, _ = run(node(), queue("q", 2), stopped, job("waits", "a", minutes=1))
    assert [(one.state, one.reason) for one in report.workloads] == [("Waiting", "LocalQueue a is inactive")]


FAULTS = {
    "negative half-life": ({"usageHalfLifeTime": "-1s"}, 'usageHalfLifeTime: Invalid value: "-1s"'),
    "negative interval": (
        {"usageSamplingInterval": "-1s"},
        'usageSamplingInterval: Invalid value: "-1s": must be greater than 0',
    ),
    "negative weight": ({"resourceWeights": {"cpu": -1}}, "resourceWeights\\[cpu\\]: Invalid value: -1"),
    "no duration": ({"usageHalfLifeTime": "soon"}, "usageHalfLifeTime: "),
}


@pytest.mark.parametrize(("rules", "text"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named(rules, text):
    with pytest.raises(InputError, match=text):
        read_settings([{"kind": "Configuration", "admissionFairSharing": rules}])
