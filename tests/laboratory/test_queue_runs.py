"""Runs with queues: their metrics, and parameters that set single fields of queues."""

import pytest

from moorage.errors import InputError
from moorage.laboratory.compare.queue_runs import is_queue_parameter, measure_queued, with_queue_parameters
from moorage.laboratory.compare.run_metrics import MeasureSetting
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.simulate import Options
from tests.simulator.kueue.timing import job, node, queue, read

RECLAIM = {"preemption": {"reclaimWithinCohort": "Any"}}
DOCUMENTS = [
    node(), queue("a", 4), queue("b", 4, **RECLAIM), job("big", "a", 8, 60), job("owner", "b", 4, 30, at=10),
    job("next", "b", 8, 30, at=10),
]  # fmt: skip


def metrics(parameters=()):
    cluster, documents = read(*DOCUMENTS)
    queued = queued_cluster(cluster, with_queue_parameters(documents, dict(parameters)))
    first, second = (measure_queued(queued, Options(), MeasureSetting()).metrics for _ in range(2))
    assert first == second  # a run changes nothing that the next one sees
    return first


def test_metrics():
    found = metrics()
    assert found["evictions"] == 1
    assert found["lostHours.cpu"] == pytest.approx(8 * 10 / 60, abs=0.01)
    assert found["jobWait.a.p90"] == 0
    assert found["jobWait.b.p90"] > 1800
    assert found["jobWait.b.p50"] == 0
    assert found["jobWait.p50"] == 0
    assert (found["jobsWaiting"], found["pending"]) == (0, 0)
    assert 0.5 < found["fairness"] <= 1


def test_parameters_change_quotas_and_weights():
    assert metrics({"ClusterQueue/b/nominalQuota/default/cpu": 12})["jobWait.b.p90"] < 60
    cluster, documents = read(*DOCUMENTS)
    changed = with_queue_parameters(documents, {"ClusterQueue/a/weight": 2, "ClusterQueue/a/borrowingLimit/default/cpu": 1})
    assert queued_cluster(cluster, changed).objects.queues["a"].weight == 2.0
    assert queued_cluster(cluster, documents).objects.queues["a"].weight == 1.0
    assert metrics({"ClusterQueue/a/borrowingLimit/default/cpu": 1})["jobsWaiting"] == 1


WRONG = {
    "ClusterQueue/x/weight": "there is no ClusterQueue of this name",
    "ClusterQueue/a/nominalQuota/gold/cpu": "it has no quota for cpu in flavor gold",
    "ClusterQueue/a/size": r"expected ClusterQueue/NAME/weight or",
}


@pytest.mark.parametrize(("name", "says"), WRONG.items())
def test_refuses(name, says):
    with pytest.raises(InputError, match=says):
        with_queue_parameters(read(*DOCUMENTS)[1], {name: 1})


def test_which_parameters_are_of_queues():
    assert [is_queue_parameter(name) for name in ("ClusterQueue/a/weight", "NodeResourcesFit.weight")] == [True, False]
