"""The manager: what it hears, what it does when a look fails, and that a run can be repeated."""

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.documents.object_fields import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, REPLICA_SETS
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.worker import Worker
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.cluster.controllers.manager import ControllerManager, StepExecutor
from moorage.cluster.controllers.upkeep.namespaces import Namespaces
from moorage.rules.store.store import Store
from moorage.rules.workloads.object_index import ObjectIndex
from moorage.rules.workloads.steps import Create, EventStep, Later, SetStatus, Update, WorkQueue

MAP = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


class Clock:
    now = 1_750_000_000.0

    def __call__(self):
        return self.now


class Scripted:
    """Does with nodes what the test gives it, and records when it was called."""

    name = "scripted"

    def __init__(self, clock, *answers):
        self.clock, self.answers, self.asked = clock, list(answers), []

    def keys(self, event, world):
        return [event.latest["metadata"]["name"]] if event.kind is NODES else []

    def reconcile(self, key, world, now):
        self.asked.append(now - Clock.now)
        answer = self.answers.pop(0) if self.answers else ()
        if isinstance(answer, Exception):
            raise answer
        yield from answer


def manage(*answers):
    clock = Clock()
    store = Store(clock, random.Random(1), b"k")
    controller = Scripted(clock, *answers)
    reports = []
    manager = ControllerManager(store, [controller], reports.append)
    store.create(NODES, "", json.loads(json.dumps(MAP)))
    return clock, store, controller, manager, reports


def pass_time(clock, manager, until):
    while (due := manager.next_time()) is not None and due - Clock.now <= until:
        clock.now = max(clock.now, due)
        while manager.step():
            pass


def test_failures_are_reported_and_retried_with_backoff():
    refused = ApiError(409, "Conflict", "no")
    clock, _, controller, manager, reports = manage(refused, refused, KeyError("spec"), ())
    pass_time(clock, manager, 10)
    assert controller.asked == pytest.approx([0, 0.005, 0.015, 0.035], abs=1e-5)
    assert reports[0] == "scripted: n: no; will be tried again"
    assert reports[1].startswith("scripted: n: KeyError: 'spec'")


def test_a_repeated_failure_is_reported_once_until_a_success():
    refused = [ApiError(403, "Forbidden", f"pod {number} exceeds the quota") for number in range(4)]
    clock, _, _, manager, reports = manage(*refused[:3], [Later(1)], refused[3], ())
    pass_time(clock, manager, 10)
    assert reports == [f"scripted: n: pod {number} exceeds the quota; will be tried again" for number in (0, 3)]


def test_a_delayed_key_runs_at_the_earlier_of_two_times():
    clock, _, controller, manager, _ = manage([Later(30), Later(5)], [Later(60)])
    pass_time(clock, manager, 1000)
    assert controller.asked == [0, 5, 65]


def test_a_failed_step_stops_the_later_ones():
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "Bad", "namespace": "default"}, "spec": {}}
    note = EventStep(NODES, {"metadata": {"name": "n", "uid": "u"}}, "Normal", "Done", "done")
    _, store, _, manager, reports = manage([Create(PODS, bad), note])
    manager.step()
    assert "Invalid value" in reports[0]
    assert not [*store.all(PODS)]


def test_a_step_on_a_recreated_object_is_rejected():
    _, store, _, manager, reports = manage()
    old = {**MAP, "metadata": {"name": "n", "uid": "of another life"}}
    manager._controllers[0].answers = [[SetStatus(NODES, old, {"phase": "x"})]]
    manager.step()
    assert "another object has taken this name" in reports[0]
    assert "phase" not in (store.get(NODES, "", "n").document().get("status") or {})


def test_a_repeated_event_is_counted():
    about = {"metadata": {"name": "n", "uid": "u"}}
    note = EventStep(NODES, about, "Normal", "Seen", "seen")
    clock, store, _, manager, _ = manage([note, Later(1)], [note, Later(1)], [note])
    pass_time(clock, manager, 10)

    (event,) = (record.document() for record in store.all(EVENTS))
    assert (event["count"], event["involvedObject"]["name"], event["source"]) == (3, "n", {"component": "scripted"})


def test_many_events_with_different_messages_are_aggregated():
    about = {"metadata": {"name": "n", "uid": "u"}}
    notes = [EventStep(NODES, about, "Normal", "Made", f"made {i}") for i in range(14)]
    clock, store, _, manager, _ = manage([*notes, Later(601)], [EventStep(NODES, about, "Normal", "Made", "made again")])
    pass_time(clock, manager, 1000)

    events = {event["message"]: event for event in (record.document() for record in store.all(EVENTS))}
    assert [*events] == [*(f"made {i}" for i in range(9)), "(combined from similar events): made 13", "made again"]
    combined = events["(combined from similar events): made 13"]
    assert (combined["count"], combined["reportingComponent"], combined["source"]) == (5, "", {"component": "scripted"})


def test_a_watch_that_fell_behind_is_restarted():
    _, store, controller, manager, _ = manage()
    while manager.step():
        pass
    manager._watches[NODES]._backlog = 3
    for i in range(8):
        store.create(NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}})
    store.delete(NODES, "", "n")
    while manager.step():
        pass
    assert {node["metadata"]["name"] for node in manager.world.all(NODES)} == {f"n{i}" for i in range(8)}
    assert len(controller.asked) >= 9


def test_the_manager_runs_as_a_task_and_wakes_on_changes():
    async def main():
        loop = asyncio.get_running_loop()
        store = Store(loop.time, random.Random(1), b"k")
        controller = Scripted(None)
        manager = ControllerManager(store, [controller])
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(0)
        store.create(NODES, "", json.loads(json.dumps(MAP)))
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return len(controller.asked)

    assert asyncio.run(main()) == 1


class Maker:
    """Makes the config maps that are missing."""

    name = "maker"

    def __init__(self, documents):
        self.documents = documents

    def keys(self, event, world):
        return ["all"]

    def reconcile(self, key, world, now):
        for one in self.documents:
            if world.get(CONFIG_MAPS, "default", one["metadata"]["name"]) is None:
                yield Create(CONFIG_MAPS, {**one, "metadata": dict(one["metadata"])})


def config_maps(count, values):
    data = {f"k{i}": "v" for i in range(values)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{i}", "namespace": "default"}, "data": data}
        for i in range(count)
    ]


def run_beside(controller, is_done, worker=None, prepare=lambda store: None):
    """Run a controller until all is done. Return the number of changes of the store between any two turns of another task."""

    async def main():
        store = Store(Clock(), random.Random(1), b"k")
        prepare(store)
        manager = ControllerManager(store, [controller], pytest.fail, worker)
        task = asyncio.create_task(manager.run())
        versions = [store.version]
        while not is_done(store):
            await asyncio.sleep(0)
            versions.append(store.version)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [after - before for before, after in itertools.pairwise(versions)]

    return asyncio.run(main())


def test_many_steps_do_not_block_other_tasks(monkeypatch):
    monkeypatch.setattr("moorage.cluster.controllers.manager._SLICE_S", 0.0)
    steps = run_beside(Maker(config_maps(100, 2)), lambda store: store.count(CONFIG_MAPS) == 100)
    assert max(steps) <= 4


def test_the_content_of_a_namespace_is_deleted_in_batches(monkeypatch):
    def fill(store):
        for one in config_maps(100, 2):
            store.create(CONFIG_MAPS, "default", one)
        store.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        for i in range(100):
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"e{i}"},
                "involvedObject": {"namespace": "other"},
            }
            store.create(EVENTS, "other", event)
        for one in config_maps(100, 2):
            store.create(CONFIG_MAPS, "other", {**one, "metadata": {"name": one["metadata"]["name"]}})
        store.empties_namespaces = False
        store.delete(NAMESPACES, "", "other")

    monkeypatch.setattr("moorage.cluster.controllers.manager._SLICE_S", 0.0)
    steps = run_beside(Namespaces(), lambda store: store.find(NAMESPACES, "", "other") is None, prepare=fill)
    assert (sum(steps) > 200, max(steps) <= 6) == (True, True)


@pytest.mark.slow
def test_the_worker_executes_steps_on_large_objects():
    asked = []

    class Watched(Worker):
        async def run(self, client, work):
            asked.append(client)
            return await super().run(client, work)

    steps = run_beside(
        Maker([*config_maps(2, 2000), *config_maps(4, 2)[2:]]),
        lambda store: store.count(CONFIG_MAPS) == 4,
        Watched(ServerLimits()),
    )
    assert (asked, max(steps)) == (["maker", "maker"], 2)


def test_a_step_on_an_object_changed_since_is_not_executed():
    store = Store(Clock(), random.Random(1), b"k")
    seen = store.create(CONFIG_MAPS, "default", config_maps(1, 2)[0]).document()
    seen["data"] = {"ours": "1"}
    update, executor = Update(CONFIG_MAPS, seen), StepExecutor(store)
    executor.carry_out_detached(update, "tests", lambda function: function())
    assert store.get(CONFIG_MAPS, "default", "m0").document()["data"] == {"ours": "1"}
    store.change(CONFIG_MAPS, "default", "m0", lambda document: document["data"].update(theirs="1"))
    executor.carry_out_detached(update, "tests", lambda function: function())
    assert store.get(CONFIG_MAPS, "default", "m0").document()["data"] == {"ours": "1", "theirs": "1"}


def test_the_queue_holds_each_key_once():
    queue = WorkQueue()
    for item in ("a", "b", "a"):
        queue.add(item)
    queue.add_at("c", 5.0)
    queue.add_at("c", 9.0)
    assert [queue.take(0.0) for _ in range(3)] == ["a", "b", None]
    assert queue.next_time() == 5.0
    assert queue.take(5.0) == "c"
    assert queue.next_time() is None


def test_the_world_indexes_objects_by_their_fields():
    world = ObjectIndex()
    owner = {"metadata": {"name": "rs", "namespace": "d", "uid": "u1"}}
    ref = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u1", "controller": True}
    free = {"metadata": {"name": "p", "namespace": "d", "uid": "u2"}, "spec": {}}
    world.note(REPLICA_SETS, owner)
    world.note(PODS, free)
    assert world.unmanaged(PODS, "d") == [free]
    owned = {"metadata": {**free["metadata"], "ownerReferences": [ref]}, "spec": {"nodeName": "n1"}}
    event = world.note(PODS, owned)
    assert event.old is free
    assert (world.unmanaged(PODS, "d"), world.controlled(PODS, owner), world.pods_on("n1")) == ([], [owned], [owned])
    world.note(PODS, owned, gone=True)
    assert (world.controlled(PODS, owner), world.pods_on("n1"), world.by_uid("u2"), world.count(PODS)) == ([], [], None, 0)


# -- properties ---------------------------------------------------------------------------------------------------------

SHOP = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
    "spec": {"selector": {"matchLabels": {"app": "shop"}}, "template": {
        "metadata": {
            "labels": {"app": "shop"},
            "annotations": {"moorage.dev/ready-seconds": "3", "moorage.dev/stop-seconds": "2"},
        },
        "spec": {"containers": [{"name": "c", "image": "shop:0"}]}}},
}  # fmt: skip


def with_image(number):
    def change(held):
        held["spec"]["template"]["spec"]["containers"][0]["image"] = f"shop:{number}"

    return change


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.integers(0, 8)),
        st.tuples(st.just("image"), st.integers(0, 3)),
        st.tuples(st.just("lose"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(1, 4)),
        st.tuples(st.just("pause"), st.booleans()),
    ),
    max_size=12,
)


@settings(max_examples=12, deadline=None)
@given(CHANGES, st.sampled_from([(1, 0), (2, 1), ("25%", "25%"), (0, 2)]))
def test_a_deployment_keeps_its_bounds_and_completes_under_faults(lab_class, changes, bounds):
    lab = lab_class(*(one for one in all_controllers() if one.name != "kubelet"))
    surge, unavailable = bounds
    shop = json.loads(json.dumps(SHOP))
    shop["spec"] |= {"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}
    lab.apply(shop)
    lab.advance(10)
    wanted = 4
    for what, value in changes:
        if what == "scale":
            wanted = value
            lab.patch("deployments", "shop", replicas=value)
        elif what == "image":
            lab.edit("deployments", "shop", with_image(value))
        elif what == "lose" and lab.names("pods"):
            lab.delete("pods", lab.names("pods")[value % len(lab.names("pods"))], gracePeriodSeconds=0)
        elif what == "pause":
            lab.patch("deployments", "shop", paused=value)
        else:
            lab.advance(value)
        lab.settle()
        room = -(-int(surge[:-1]) * wanted // 100) if isinstance(surge, str) else surge
        sizes = sum(one["spec"]["replicas"] for one in lab.all("replicasets"))
        assert sizes <= wanted + room or what == "scale"
    lab.patch("deployments", "shop", paused=False)
    lab.advance(120)
    held = lab.get("deployments", "shop")
    (image,) = {one["spec"]["containers"][0]["image"] for one in lab.all("pods")} or {None}
    assert len(lab.all("pods")) == wanted
    assert image in {None, held["spec"]["template"]["spec"]["containers"][0]["image"]}
    assert held["status"].get("availableReplicas", 0) == wanted
    assert lab.reports == []


RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from conftest import Lab
from moorage.cluster.controllers.all_controllers import all_controllers
lab = Lab(*(one for one in all_controllers() if one.name != "kubelet"), nodes=5)
shop = json.loads(sys.argv[2])
shop["spec"]["replicas"] = 9
lab.apply(shop)
lab.advance(20)
lab.edit("nodes", "n2", lambda node: node["metadata"].update(annotations={"moorage.dev/down": "true"}))
lab.patch("deployments", "shop", replicas=4)
lab.advance(500)
lab.delete("deployments", "shop")
lab.advance(20)
print(lab.store.version, lab.manager.looks, lab.names("pods"), [one["metadata"]["name"] for one in lab.all("events")][-5:])
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_under_any_hash_seed():
    here = Path(__file__).parent
    printed = set()
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(here.parents[1] / "src")}
        command = [sys.executable, "-c", RUN, str(here), json.dumps(SHOP)]
        printed.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(printed) == 1
