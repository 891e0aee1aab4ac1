"""Verdicts, scores, history and setup from the live scheduler's own state."""

import moorage
from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Seen
from moorage.interfaces.web.pod_routes import ClusterSource
from moorage.laboratory.explain.live_changes import cause_document
from moorage.laboratory.explain.placement_report import score_columns, verdict_columns
from moorage.state.pod_info import PodInfo
from tests.interfaces.web.test_site import NODES, PODS, a_store, bind, browse, node, pod
from tests.live.server.test_on_embedded_server import a_scheduler


def knowing(store):
    """A scheduler that has seen the objects of a store."""
    scheduler = a_scheduler()
    for kind, struct in ((NODES, Node), (PODS, Pod)):
        for record in store.all(kind):
            scheduler.observe(Seen(decode(record.body, struct, "store")), 0.0)
    return scheduler


def a_cluster():
    store = a_store(nodes=3, pods=("a", "b"))
    store.create(NODES, "", {**node("n3"), "spec": {"unschedulable": True}})
    store.create(PODS, "default", pod("large", cpu="9"))
    bind(store, "a", "n1")
    return store


def found(store, name):
    return decode(store.get(PODS, "default", name).body, Pod, "store")


def test_each_node_has_the_first_refusal_of_the_pod():
    store = a_cluster()
    scheduler = knowing(store)
    columns = verdict_columns(scheduler, scheduler.profiles, found(store, "large"))
    texts = {name: columns["reasons"][at] for name, at in zip(columns["nodes"], columns["verdicts"], strict=True)}
    assert texts["n0"] == {"plugin": "NodeResourcesFit", "text": "Insufficient cpu"}
    assert texts["n3"] == {"plugin": "NodeUnschedulable", "text": "node(s) were unschedulable"}
    fits = verdict_columns(scheduler, scheduler.profiles, found(store, "b"))
    assert [name for name, at in zip(fits["nodes"], fits["verdicts"], strict=True) if at < 0] == ["n0", "n1", "n2"]


def test_the_first_node_of_the_highest_total_is_the_one_that_the_engine_chooses():
    store = a_cluster()
    scheduler = knowing(store)
    for number in range(12):  # ties are drawn by the pod's UID
        store.create(PODS, "default", pod(f"p{number}"))
        one = found(store, f"p{number}")
        columns = score_columns(scheduler, scheduler.profiles, one)
        totals = [sum(weight * column[at] for weight, column in zip(columns["weights"], columns["normalised"], strict=True))
                  for at in range(len(columns["nodes"]))]  # fmt: skip
        cycle = Cycle(scheduler.cycle.seed)
        decision = cycle.decide(scheduler.profiles["default-scheduler"], PodInfo(one), scheduler.snapshot, {})
        assert columns["nodes"][totals.index(max(totals))] == decision.node
        assert sorted(columns["nodes"]) == ["n0", "n1", "n2"]


def test_asking_for_columns_changes_nothing():
    store = a_cluster()
    scheduler = knowing(store)
    before = [scheduler.cluster.table.pod_count.view.tolist(), len(scheduler.queue)]
    for name in ("a", "b", "large"):
        verdict_columns(scheduler, scheduler.profiles, found(store, name))
        score_columns(scheduler, scheduler.profiles, found(store, name))
    assert [scheduler.cluster.table.pod_count.view.tolist(), len(scheduler.queue)] == before


def test_the_requests_about_a_pod_need_the_right_to_it():
    store = a_cluster()

    async def test(browser, store):
        await browser.enter()
        for path in ("verdicts", "scores"):
            status, answer = await browser.get(f"/lab/v1/{path}/default/b")
            assert (status, answer["pod"], len(answer["nodes"])) == (200, "default/b", 4 if path == "verdicts" else 3)
            assert (await browser.get(f"/lab/v1/pods/default/b/{path}"))[1] == answer
            assert (await browser.get(f"/lab/v1/{path}/default/none"))[0] == 404
            assert (await browser.get(f"/lab/v1/{path}/default/b", Authorization="Bearer weak"))[0] in {401, 403}
        _, setup = await browser.get("/lab/v1/setup")
        assert setup["profiles"][0]["weights"]["NodeResourcesFit"] == 1
        assert {"name": "SchedulerQueueingHints", "enabled": True} in setup["featureGates"]
        store.delete(PODS, "default", "b")
        _, history = await browser.get("/lab/v1/history")
        assert len(history["samples"]["at"]) == len(history["samples"]["pending"]) == 600
        assert history["samples"]["pending"][-1] == 1
        assert history["samples"]["utilisation"]["cpu"][-1] == round(500 / 16000, 4)
        assert dict(zip(history["lanes"]["pod"], history["lanes"]["node"], strict=True))["default/a"] == "n1"

    browse(test, store, scheduler=knowing(store))


def test_the_cause_of_a_pod_is_told_without_a_process_of_its_own():
    """What stands at once on the page of a pod: the cause, the verdicts and the event."""
    store = a_cluster()
    scheduler = knowing(store)

    async def test(browser, store):
        assert (await browser.get("/lab/v1/pods/default/large/cause"))[0] == 401
        await browser.enter()
        status, found = await browser.get("/lab/v1/pods/default/large/cause")
        assert status == 200
        answer = found["answer"]
        assert answer["outcome"] == "pending"
        assert "9 cpu" in found["summary"]
        assert len(answer["nodes"]) == 4
        assert answer["groups"]
        assert not answer["changes"]
        assert (await browser.get("/lab/v1/pods/default/nothing/cause"))[0] == 404

    browse(test, store, scheduler=scheduler)


def test_without_a_scheduler_there_is_no_cause():
    async def test(browser, store):
        await browser.enter()
        assert (await browser.ask("GET", "/lab/v1/pods/default/large/cause"))[0] == 204

    browse(test, a_cluster())


def test_the_event_is_that_of_the_last_attempt():
    """A cluster from files has no conditions of pods: the run that placed its pods knows the message."""
    cluster = moorage.Cluster.from_objects([node("n0"), pod("large", cpu="9")])
    cluster.run()
    source = ClusterSource(cluster)
    (key,) = source._pods
    document = cause_document(source.scheduler, source.scheduler.profiles, source.pod(key))
    assert document["answer"]["outcome"] == "pending"
    assert "Insufficient cpu" in source.queue_state(source.pod(key).uid).cause
