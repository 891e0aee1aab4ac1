"""Gangs leave failed nodes; recordings hold the choice of the new ones, these tests what follows from it."""

from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.simulate import Options
from tests.simulator.kueue.test_topology import HOST, RACKS, labelled, topology
from tests.simulator.kueue.timing import queue, read, run, template

NODES = [labelled("n1", "r1"), labelled("n2", "r1"), labelled("n3", "r2")]


def held(level="rack", failed="n1"):
    domains = [{"values": [name], "count": 1} for name in ("n1", "n2")]
    assigned = {
        "name": "main",
        "flavors": {"cpu": "default"},
        "resourceUsage": {"cpu": "6"},
        "count": 2,
        "topologyAssignment": {"levels": [HOST], "domains": domains},
    }
    stamp = {"status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "uid": "w"},
        "spec": {
            "queueName": "a",
            "podSets": [{"name": "main", "count": 2, "template": template(3), "topologyRequest": {"required": level}}],
        },
        "status": {
            "admission": {"clusterQueue": "a", "podSetAssignments": [assigned]},
            "conditions": [{"type": "QuotaReserved", **stamp}, {"type": "Admitted", **stamp}],
            "unhealthyNodes": [{"name": failed}],
        },
    }


def test_a_gang_that_may_stand_in_another_rack_goes_on_there():
    block = [{**one, "metadata": {**one["metadata"], "labels": {**one["metadata"]["labels"], "block": "b"}}} for one in NODES]
    found = queued_cluster(*read(topology("block", "rack", HOST), RACKS, *block, queue("a", 16), held("block")))
    report = found.report(found.run(Options())[1].ended_s)
    assert [(one.state, one.evictions) for one in report.workloads] == [("Admitted", 0)]
    [assigned] = found.works[0].workload.admission
    assert assigned.placed.domains == ((("n2",), 1), (("n3",), 1))


def test_a_gang_without_another_node_in_its_rack_is_evicted():
    report, _ = run(topology("rack", HOST), RACKS, *NODES[1:], queue("a", 16), held())
    [one] = report.workloads
    assert one.evictions == 1
    assert one.state == "Waiting"
