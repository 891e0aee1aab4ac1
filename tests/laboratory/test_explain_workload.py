"""Why a job waits in a queue, and which changes start it: each proposed change is made, and starts it."""

import pytest

from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.explain.explain_workload import explain_workload, names_work
from moorage.report.answer import AnswerRequest, Stopped
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.simulate import Options
from tests.simulator.kueue.timing import job, node, queue, read


def why(name, *documents, **limits):
    queued = queued_cluster(*read(*documents))
    number = names_work(queued, name)
    assert number is not None
    return explain_workload(queued, number, Options(), AnswerRequest(release="1.36"), **limits)


def priority_class(name, value):
    version = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def limited(name, cpu, borrowing):
    quota = {"name": "cpu", "nominalQuota": cpu, "borrowingLimit": borrowing}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    return queue(name, cpu, resourceGroups=[group])


WAITS = {
    "quota": (
        "quota",
        [node(), queue("a", 4), job("first", "a", 4, 60), job("one", "a", 2, 10)],
        {"stop": "stop team/Job/first of ClusterQueue a", "quota": "give ClusterQueue a 2 more cpu in flavor default"},
        60,
    ),
    "a smaller gang": (
        "quota",
        [node(), queue("a", 4), job("first", "a", 1), job("one", "a", 4, 10)],
        {"gang": "ask for 3 instead of 4 pods in pod set main"},
        None,
    ),
    "priority": (
        "quota",
        [
            node(),
            queue("a", 4, preemption={"withinClusterQueue": "LowerPriority"}),
            priority_class("low", 5),
            job("first", "a", 4, 60, labels={"kueue.x-k8s.io/priority-class": "low"}),
            job("one", "a", 4, 10),
        ],
        {"priority": "priority 6 instead of 0; team/Job/first then waits"},
        60,
    ),
    "quota, as an equal job": (
        "quota",
        [
            node(),
            queue("a", 4, preemption={"withinClusterQueue": "LowerPriority"}),
            *(job(name, "a", 4, 30) for name in ("first", "next", "one")),
        ],
        {"priority": "priority 1 instead of 0; team/Job/first then waits"},
        60,
    ),
    "its turn": (
        "turn",
        [
            node(),
            queue("a", 4, queueingStrategy="StrictFIFO"),
            *(job(name, "a", 4, 30) for name in ("first", "next")),
            job("one", "a", 2, 10),
        ],
        {},
        60,
    ),
    "nodes": (
        "nodes",
        [node(cpu=4), queue("a", 20), job("first", "a", 4, 30), job("one", "a", 2, 10)],
        {"stop": "stop team/Job/first of ClusterQueue a"},
        30,
    ),
    "a limit": (
        "quota",
        [node(cpu=20), queue("b", 8), limited("a", 4, 2), job("one", "a", 8, 10)],
        {"limit": "let ClusterQueue a borrow without a limit", "gang": "ask for 6 instead of 8 pods in pod set main"},
        None,
    ),
    "a queue": ("queue", [node(), queue("a", 4, stopPolicy="Hold"), job("one", "a", 2, 10)], {}, None),
}


@pytest.mark.parametrize(("waits_for", "documents", "changes", "minutes"), WAITS.values(), ids=WAITS)
def test_waits(waits_for, documents, changes, minutes):
    found = why("job/one", *documents, alternatives=9)
    assert found.waits_for == waits_for
    texts = {one.kind: one.text for one in found.changes}
    assert {kind: texts.get(kind) for kind in changes} == changes
    assert found.starts_s == (None if minutes is None else pytest.approx(minutes * 60, abs=2))


def test_who_borrows():
    found = why("workload/one", node(), queue("a", 4), queue("b", 4), job("big", "b", 8, 60), job("one", "a", 4, 10, at=1))
    [borrower] = found.borrowers
    assert (borrower.queue, borrower.borrowed, borrower.workloads) == ("b", 4000, ("team/Job/big",))
    [cpu] = found.needed
    assert (cpu.needed, cpu.quota, cpu.used, cpu.free, cpu.missing) == (4000, 4000, 0, 0, 4000)
    assert (found.position, found.waiting) == (1, 1)
    text = found.text(width=80)
    assert "b borrows 4 cpu in default; it admitted team/Job/big" in text
    assert "starts    in 58m" in text
    assert max(map(len, text.splitlines())) <= 80
    assert found.to_dict()["answer"]["waitsFor"] == "quota"


def test_a_job_that_runs_needs_no_change():
    found = why("job/one", node(), queue("a", 4), job("one", "a", 2, 10))
    assert (found.holds, found.changes, found.reason) == (True, (), "")


def test_a_job_like_one_that_was_refused_has_its_reason():
    found = why("job/one", node(), queue("a", 4), *(job(name, "a", 4, 30) for name in ("first", "next", "one")))
    assert found.reason.endswith("insufficient unused quota for cpu in flavor default, 4 more needed")


def test_a_search_that_ends_early_says_so():
    ticks = iter(range(100))
    documents = [node(), queue("a", 4), job("first", "a", 4, 60), job("one", "a", 2, 10)]
    found = why("job/one", *documents, budget=TimeBudget(2.0, lambda: float(next(ticks))))
    assert found.proof.kind == "bounded"
    assert found.stopped == Stopped("timeLimit", 2.0, ("further changes that start it now",))
    assert "No single change" not in found.text()
    assert "A longer --time-limit could find" in found.text()


def test_no_probes_no_changes():
    found = why("job/one", node(), queue("a", 4), job("first", "a", 4, 60), job("one", "a", 2, 10), probes=0)
    assert "Changes were not searched for." in found.text()
