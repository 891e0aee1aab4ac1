"""Drains in virtual time: who leaves when, who waits for a budget, and where replacements go."""

import itertools

import pytest
from msgspec.structs import replace

import moorage
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.drain import drain_question as drain_order
from moorage.laboratory.drain.drain_question import drain_report
from moorage.laboratory.drain.drain_run import DrainPlan, DrainRun
from moorage.report.answer import AnswerRequest

HOST = "kubernetes.io/hostname"


def node(name, cpu="4", **more):
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name, **more}},
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }  # fmt: skip


def pod(name, on, owner="ReplicaSet/web", cpu="1", ready=None, grace=30, app="web", **spec):
    kind, _, controller = owner.partition("/")
    owners = [{"apiVersion": "apps/v1", "kind": kind, "name": controller, "uid": f"uid-{controller}", "controller": True}]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": owners if owner else []},
        "spec": {
            "nodeName": on, "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}], **spec,
        },
        "status": {"phase": "Running", "conditions": [] if ready is None else [{"type": "Ready", "status": ready}]},
    }  # fmt: skip


def budget(name="web", app="web", status=None, **spec):
    spec = {"selector": {"matchLabels": {"app": app}}, **(spec or {"minAvailable": 1})}
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec,
        "status": status or {},
    }  # fmt: skip


def drained(*objects, nodes=("n1",), **options):
    cluster = moorage.Cluster.from_objects(*objects)
    before = cluster.digest()
    report = cluster.drain(*nodes, **options)
    assert cluster.digest() == before
    return report


def outcomes(report):
    return {one.pod.removeprefix("default/"): one.outcome for one in report.pods}


def one(report, name):
    return next(one for one in report.pods if one.pod == f"default/{name}")


def test_pods_of_a_replica_set_are_replaced_at_once_and_those_of_a_stateful_set_once_they_are_gone():
    report = drained(node("n1"), node("n2"), pod("web-a", "n1"), pod("db-0", "n1", "StatefulSet/db", grace=7))
    assert (one(report, "web-a").placed_seconds, one(report, "web-a").gone_seconds) == (0, 30)
    assert (one(report, "db-0").placed_seconds, one(report, "db-0").gone_seconds) == (7, 7)
    assert one(report, "db-0").replacement == "default/db-0"
    assert {one.node for one in report.pods} == {"n2"}
    assert report.possible
    assert report.holds
    assert report.nodes[0].done_seconds == 30
    assert report.evicted == ("default/db-0", "default/web-a")


def test_refusals_stop_the_drain_and_name_kubectls_words():
    report = drained(
        node("n1"),
        node("n2"),
        pod("web-a", "n1"),
        pod("bare", "n1", ""),
        pod("tmp", "n1", volumes=[{"name": "v", "emptyDir": {}}]),
    )
    assert not report.possible
    assert outcomes(report) == {"web-a": "stays", "bare": "refused", "tmp": "refused"}
    assert {(one.pod, one.rule) for one in report.refused} == {("default/bare", "noController"), ("default/tmp", "emptyDir")}
    assert report.evicted == ()
    assert report.nodes[0].errors == (
        "cannot delete Pods that declare no controller (use --force to override): default/bare",
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): default/tmp",
    )


def test_a_bare_pod_is_lost_and_a_finished_one_leaves_at_once():
    done = pod("done", "n1", "Job/j")
    done["status"]["phase"] = "Succeeded"
    report = drained(node("n1"), node("n2"), pod("bare", "n1", ""), done, force=True)
    assert outcomes(report) == {"bare": "lost", "done": "finished"}
    assert one(report, "done").gone_seconds == 0
    assert report.possible


def test_the_second_eviction_waits_until_the_first_replacement_is_ready():
    pods = [pod("web-a", "n1"), pod("web-b", "n1"), pod("web-c", "n2")]
    report = drained(node("n1"), node("n2"), *pods, budget(minAvailable=2), ready_after_s=12)
    assert outcomes(report) == {"web-a": "moves", "web-b": "waits"}
    waits = one(report, "web-b")
    assert (waits.at, waits.budget, waits.node) == (15, "default/web", "n2")  # ready at 12 s, retried every 5 s
    assert report.nodes[0].done_seconds == 45


@pytest.mark.parametrize(("grace", "until"), [(30, 40), (31, 45), (4, 15)])
def test_a_stateful_set_restores_its_budget_after_the_old_pod_is_gone(grace, until):
    pods = [pod(f"db-{i}", "n1", "StatefulSet/db", grace=grace) for i in (0, 1)]
    report = drained(node("n1"), node("n2"), *pods, budget(minAvailable=1))
    assert outcomes(report) == {"db-0": "moves", "db-1": "waits"}
    assert one(report, "db-1").at == until
    assert report.nodes[0].done_seconds == until + grace


def test_a_budget_that_only_a_pending_pod_could_restore_is_a_deadlock():
    pods = [pod("api-1", "n1", cpu="2"), pod("api-2", "n1", cpu="2")]
    report = drained(node("n1"), node("n2", cpu="1"), *pods, budget(minAvailable=1))
    assert outcomes(report) == {"api-1": "pending", "api-2": "never"}
    assert report.deadlock
    assert not report.possible
    assert len(report.pending) == 1
    assert report.pending[0] in one(report, "api-2").why
    assert "cannot be drained" in report.summary


def test_a_budget_that_allows_nothing_at_all_is_no_deadlock():
    report = drained(node("n1"), node("n2"), pod("web-a", "n1"), budget(maxUnavailable=0))
    assert outcomes(report) == {"web-a": "never"}
    assert not report.deadlock
    assert not report.possible
    assert one(report, "web-a").why == "The disruption budget web needs 1 healthy pods and has 1 currently"


def test_figures_of_the_dump_stand_for_what_was_read():
    status = {"observedGeneration": 1, "currentHealthy": 5, "desiredHealthy": 4, "expectedPods": 5, "disruptionsAllowed": 1}
    pods = [pod("web-a", "n1"), pod("web-b", "n1")]
    report = drained(node("n1"), node("n2"), *pods, budget(minAvailable=4, status=status))
    assert sorted(outcomes(report).values()) == ["moves", "waits"]
    status |= {"currentHealthy": 4, "disruptionsAllowed": 0}
    report = drained(node("n1"), node("n2"), *pods, budget(minAvailable=4, status=status))
    assert outcomes(report) == {"web-a": "never", "web-b": "never"}


def test_a_pod_that_two_budgets_cover_fails_at_once():
    report = drained(node("n1"), node("n2"), pod("web-a", "n1"), pod("x", "n1", app="x"), budget("a"), budget("b"))
    assert outcomes(report) == {"web-a": "never", "x": "moves"}
    assert one(report, "web-a").budget == "default/a, default/b"
    assert "more than one PodDisruptionBudget" in report.nodes[0].errors[0]


def test_deleting_asks_no_budget():
    report = drained(node("n1"), node("n2"), pod("web-a", "n1"), budget(maxUnavailable=0), disable_eviction=True)
    assert outcomes(report) == {"web-a": "moves"}


UNREADY = {  # ready pods elsewhere, the policy, what happens to the unready pod
    "enough are healthy": (1, None, "moves"),
    "too few are healthy": (0, None, "never"),
    "too few are healthy, but always allowed": (0, "AlwaysAllow", "moves"),
}


@pytest.mark.parametrize(("others", "policy", "outcome"), UNREADY.values(), ids=UNREADY)
def test_an_unready_pod_may_leave_by_its_policy(others, policy, outcome):
    pods = [pod("sick", "n1", ready="False"), *(pod(f"fine-{i}", "n2", ready="True") for i in range(others))]
    spec = {"minAvailable": 1, **({"unhealthyPodEvictionPolicy": policy} if policy else {})}
    assert outcomes(drained(node("n1"), node("n2"), *pods, budget(**spec))) == {"sick": outcome}


def test_evictions_at_the_same_time_share_what_a_budget_allows():
    """An unready pod that its budget does not let go anyway takes one of its disruptions, until the controller counts again."""
    pods = [pod("a-sick", "n1", ready="False"), pod("b-fine", "n1", ready="True")]
    report = drained(node("n1"), node("n2"), *pods, budget(minAvailable=0))
    assert outcomes(report) == {"a-sick": "moves", "b-fine": "waits"}
    assert one(report, "b-fine").at == 5


def test_kubectl_gives_up_at_its_timeout():
    report = drained(
        node("n1"), node("n2"), pod("web-a", "n1"), pod("web-b", "n1", app="b"), budget(maxUnavailable=0), timeout_s=20
    )
    assert not report.possible
    assert one(report, "web-a").outcome == "never"
    assert report.nodes[0].errors == (
        'error when evicting pods/"web-a" -n "default": global timeout reached: 20s',
        'error when waiting for pod "web-b" in namespace "default" to terminate: global timeout reached: 20s',
    )
    assert one(report, "web-b").outcome == "moves"


def test_only_pods_of_the_selector_leave():
    report = drained(node("n1"), node("n2"), pod("web-a", "n1"), pod("x", "n1", "", app="x"), pod_selector="app=web")
    assert outcomes(report) == {"web-a": "moves"}
    assert report.possible


def test_nodes_are_cordoned_before_the_first_is_drained():
    objects = [node("n1"), node("n2"), node("n3", cpu="1"), pod("a", "n1"), pod("b", "n2")]
    report = drained(*objects, nodes=["n1", "n2"])
    assert [(one.name, one.begin_seconds, one.done_seconds) for one in report.nodes] == [("n1", 0, 30), ("n2", 30, 60)]
    assert sorted(outcomes(report).values()) == ["moves", "pending"]
    assert {one.node for one in report.pods} == {"n3", None}


def test_nodes_that_return_take_pods_again():
    objects = [node("n1"), node("n2"), pod("a", "n1"), pod("b", "n2")]
    assert drained(*objects, nodes=["n1", "n2"]).pending
    report = drained(*objects, nodes=["n1", "n2"], returns=True)
    assert report.possible
    assert not report.pending
    assert one(report, "a").node == "n1"  # it moved to n2, and back


def test_a_surge_node_takes_the_pods():
    report = drained(node("n1"), pod("a", "n1"), surge=1)
    assert {one.node for one in report.pods} == {"n1-surge-1"}


def test_nodes_drained_together_share_the_time():
    objects = [node("n1"), node("n2"), node("n3"), pod("a", "n1"), pod("b", "n2")]
    report = drained(*objects, nodes=["n1", "n2"], together=True)
    assert [(one.begin_seconds, one.done_seconds) for one in report.nodes] == [(0, 30), (0, 30)]


def test_a_node_that_cannot_be_drained_ends_the_command():
    objects = [node("n1"), node("n2"), node("n3"), pod("bare", "n1", ""), pod("b", "n2")]
    report = drained(*objects, nodes=["n1", "n2"])
    assert [(one.name, one.drained, one.begin_seconds) for one in report.nodes] == [("n1", False, 0), ("n2", False, None)]
    assert outcomes(report) == {"bare": "refused"}


def test_pending_pods_of_the_input_are_placed_before_and_not_counted():
    waiting = pod("huge", "", cpu="9", app="huge")
    report = drained(node("n1"), node("n2"), waiting, pod("small", "", cpu="1"), nodes=["n1"])
    assert report.pending == ()


def test_a_loss_takes_the_place_of_a_drain_in_the_same_answer():
    report = drained(node("n1"), node("n2", cpu="1"), pod("a", "n1"), pod("b", "n1"), pod("c", "n1", ""), force=True)
    assert (report.if_lost.moves, len(report.if_lost.pending), report.if_lost.lost_for_good) == (1, 1, ("default/c",))


def test_unknown_nodes_are_an_error():
    with pytest.raises(InputError, match=r"no node has the name 'n9'$"):
        drained(node("n1"), nodes=["n9"])
    with pytest.raises(InputError, match="no node has the name 'worker-9'; close: worker-1"):
        drained(node("worker-1"), nodes=["worker-9"])


def orders():
    """Return a cluster where the order matters: n1's pods fit on n2 only while it is there, and return makes room."""
    return [
        node("n1", cpu="2"), node("n2", cpu="3"), node("n3", cpu="2"),
        pod("a", "n1", cpu="2", app="a"), pod("b", "n2", cpu="1", app="b"), pod("c", "n3", cpu="1", app="b"),
        budget("b", app="b", minAvailable=2),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("returns", [True, False])
def test_the_best_order_is_that_of_brute_force(returns):
    nodes = ["n1", "n2", "n3"]
    cluster = moorage.Cluster.from_objects(*orders())

    def score(report):
        return (
            sum(not one.drained for one in report.nodes),
            len(report.pending),
            sum(one.evicted_seconds is not None and one.budget is not None for one in report.pods),
        )

    scores = {order: score(cluster.drain(*order, returns=returns)) for order in itertools.permutations(nodes)}
    assert len(set(scores.values())) > 1
    found = cluster.drain(*nodes, returns=returns, find_order=True)
    assert scores[tuple(one.name for one in found.nodes)] == min(scores.values())
    assert found.proof.kind == "exhaustive"


@pytest.mark.slow
@pytest.mark.parametrize("least", [0, 1])
def test_beyond_eight_nodes_the_next_node_is_the_one_that_does_best(least):
    names = [f"n{i}" for i in range(9)]
    objects = [*map(node, names), node("free", cpu="9"), pod("web-a", "n0"), pod("web-b", "n0"), budget(minAvailable=least)]
    found = moorage.Cluster.from_objects(*objects).drain(*names, find_order=True)
    assert found.holds
    assert found.proof.kind == ("exhaustive" if least == 0 else "bounded")
    assert sorted(one.name for one in found.nodes) == names


@pytest.mark.parametrize(("drains", "seconds"), [(3, None), (2000, 1e-9)])
def test_a_search_for_an_order_ends_at_its_limit(drains, seconds, monkeypatch):
    cluster, nodes = moorage.Cluster.from_objects(*orders()), ("n1", "n2", "n3")
    full = cluster.drain(*nodes, find_order=True)
    monkeypatch.setattr(drain_order, "MOST_DRAINS", drains)
    found = cluster.drain(*nodes, find_order=True, time_limit_s=seconds)
    assert (found.stopped is None) == (seconds is None)
    assert (full.proof.kind, found.proof.kind) == ("exhaustive", "bounded")
    assert sorted(one.name for one in found.nodes) == ["n1", "n2", "n3"]
    assert found.proof.runs <= 2 * 3 + 2 * len(nodes)


def slowly(monkeypatch):
    """Let each drain of a node take a second; return the clock."""
    now, drain_next = [0.0], DrainRun.drain_next

    def slow(run, name):
        now[0] += 1
        return drain_next(run, name)

    monkeypatch.setattr(DrainRun, "drain_next", slow)
    return now


@pytest.mark.parametrize(
    ("order", "limit", "drains"), [("n3 n2 n1", 1, 1), ("n3 n2 n1", 5, 5), ("n3 n2 n1", 5.5, 6), ("n1 n2 n3", 1, 2)]
)
def test_no_drain_begins_after_the_limit_but_those_of_the_given_order(order, limit, drains, monkeypatch):
    cluster, now = moorage.Cluster.from_objects(*orders()), slowly(monkeypatch)
    asked = AnswerRequest(release="1.36"), order.split(), DrainPlan()
    found = drain_report(cluster, *asked, find_order=True, budget=TimeBudget(limit, lambda: now[0]))
    assert now[0] == drains
    assert found.stopped.reason == "timeLimit"
    assert found.pods


@pytest.mark.parametrize("limit", range(3, 16))
def test_the_answer_of_an_ended_search_is_that_of_a_drain_in_its_order(limit, monkeypatch):
    cluster, now = moorage.Cluster.from_objects(*orders()), slowly(monkeypatch)
    asked = AnswerRequest(release="1.36"), ("n3", "n2", "n1"), DrainPlan()
    found = drain_report(cluster, *asked, find_order=True, budget=TimeBudget(limit, lambda: now[0]))
    plain = drain_report(cluster, asked[0], [one.name for one in found.nodes], DrainPlan())
    assert replace(found, proof=plain.proof, stopped=None, if_lost=plain.if_lost) == plain


def test_a_node_without_pods_is_drained_once(monkeypatch):
    cluster = moorage.Cluster.from_objects(*orders(), node("empty"))
    monkeypatch.setattr(drain_order, "MOST_DRAINS", 5)
    found = cluster.drain("n1", "empty", "n2", "n3", find_order=True)
    assert sorted(one.name for one in found.nodes) == ["empty", "n1", "n2", "n3"]
