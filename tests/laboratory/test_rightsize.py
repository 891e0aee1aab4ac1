"""Requests that follow usage: what changes, in which step, and which nodes the scheduler can then do without."""

from moorage import Cluster
from moorage.basis.inputs.usage import MeasuredUsage
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.rightsize.rightsize_question import RightsizeOptions, rightsize_report
from moorage.report.answer import AnswerRequest
from tests.laboratory.test_deschedule import node, pod

MI = 1 << 20


def sized(name, on, cpu, memory, app="web", **spec):
    made = pod(name, on, cpu, app, **spec)
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return made


def used(**pods):
    return MeasuredUsage(
        {
            (f"default/{name.replace('_', '-')}", "c"): {"cpu": cpu, "memory": memory * MI}
            for name, (cpu, memory) in pods.items()
        }
    )


def ask(usage, *objects, **options):
    return rightsize_report(Cluster.from_objects(*objects), AnswerRequest(release="1.36"), RightsizeOptions(usage, **options))


def test_the_largest_use_of_a_workload_and_headroom_make_the_request():
    usage = used(web_1=(100, 500), web_2=(200, 400))
    found = ask(usage, node("a"), node("b"), sized("web-1", "a", "1", "1Gi"), sized("web-2", "b", "1", "1Gi"), headroom=0.5)
    changes = [(one.resource, one.before, one.after, one.pods, one.measured, one.step) for one in found.changes]
    assert changes == [("cpu", 1000, 300, 2, 2, 1), ("memory", 1024 * MI, 750 * MI, 2, 2, 2)]


def test_nodes_go_when_the_scheduler_places_their_pods_elsewhere():
    pods = [sized(f"web-{n}", f"n{n}", "3", "1Gi") for n in range(3)]
    found = ask(used(web_0=(500, 900), web_1=(500, 900), web_2=(500, 900)), node("n0"), node("n1"), node("n2"), *pods)
    assert [(one.number, len(one.removed)) for one in found.steps] == [(0, 0), (1, 2)]
    assert found.holds is True
    assert found.summary.startswith("2 nodes more can go: 3 pods with other requests, 7275m cpu less")
    [cpu, _] = found.steps[-1].pressure
    assert (cpu.resource, cpu.share, cpu.above) == ("cpu", 0.375, 0)


def test_what_is_too_low_is_raised_first_and_can_keep_nodes():
    found = ask(
        used(web_1=(3000, 100)), node("a"), node("b"), sized("web-1", "a", "1", "200Mi"), sized("db-1", "b", "2", "1Gi", "db")
    )
    first = found.steps[0]
    assert (first.changes, first.removed) == ({"raised": 1, "lowered": 0}, ())
    assert found.unmeasured == ("default/ReplicaSet/db",)


def test_memory_of_a_pod_alone_is_lowered_last():
    found = ask(used(web_1=(950, 100)), node("a"), sized("web-1", "a", "1100m", "2Gi"))
    assert [(one.resource, one.step) for one in found.changes] == [("memory", 3)]
    assert [one.number for one in found.steps] == [0, 3]


def test_a_request_stays_within_the_limit_and_above_the_least():
    limited = sized("web-1", "a", "1", "1Gi")
    limited["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2"}
    found = ask(used(web_1=(5000, 1)), node("a"), limited)
    assert [(one.resource, one.after) for one in found.changes] == [("cpu", 2000), ("memory", 32 * MI)]


def test_advice_for_the_deployment_counts_for_its_pods_as_it_is():
    made = sized("web-5f7c9-x", "a", "1", "1Gi", app="web-5f7c9")
    made["metadata"]["labels"]["pod-template-hash"] = "5f7c9"
    found = ask(MeasuredUsage(advised={("default/Deployment/web", "c"): {"cpu": 163}}), node("a"), made)
    assert [(one.resource, one.after) for one in found.changes] == [("cpu", 163)]


def test_a_pod_that_kubectl_refuses_to_evict_keeps_its_node():
    alone = sized("web-1", "a", "3", "1Gi")
    del alone["metadata"]["ownerReferences"]
    local = sized("web-2", "b", "3", "1Gi", volumes=[{"name": "v", "emptyDir": {}}])
    found = ask(used(web_1=(100, 900), web_2=(100, 900)), node("a"), node("b"), alone, local)
    assert found.steps[-1].removed == ()
    assert found.holds is False


def test_without_changes_the_answer_says_so():
    found = ask(used(web_1=(870, 890)), node("a"), sized("web-1", "a", "1", "1Gi"))
    assert found.summary == "No request changes: usage gives no reason to."


def test_the_cluster_is_unchanged_and_a_spent_budget_says_what_is_left():
    cluster = Cluster.from_objects(node("a"), node("b"), sized("web-1", "a", "3", "1Gi"), sized("web-2", "b", "3", "1Gi"))
    before, ticks = cluster.digest(), iter(range(1000))
    budget = TimeBudget(1.0, lambda: float(next(ticks)))
    options = RightsizeOptions(used(web_1=(100, 100), web_2=(100, 100)))
    found = rightsize_report(cluster, AnswerRequest(release="1.36"), options, budget)
    assert cluster.digest() == before
    assert found.stopped is not None
    assert found.holds is None


def test_a_replica_set_of_a_deployment_has_the_name_that_people_change():
    owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "d", "controller": True}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
    made = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web", "namespace": "default", "uid": "web", "ownerReferences": owner}
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": made}
    found = ask(used(web_1=(100, 500)), node("a"), replica_set, sized("web-1", "a", "1", "1Gi"))
    assert {one.workload for one in found.changes} == {"default/Deployment/shop"}
    assert ask(used(), node("a"), replica_set, sized("web-1", "a", "1", "1Gi")).unmeasured == ("default/Deployment/shop",)
