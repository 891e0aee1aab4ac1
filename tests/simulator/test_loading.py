"""Test that loading many placed or waiting pods together gives the same cluster as one fact after the other."""

from __future__ import annotations

import json
import random

import pytest

from moorage.basis.inputs.files import InputFile
from moorage.core.engine.facts import Seen
from moorage.laboratory.trial.digest import Digests
from moorage.laboratory.trial.recorded_simulation import RECORDED_PARTS, RecordedSimulation
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.pod_records import ArrivalKind, arrival_of
from moorage.simulator.simulate import Options, prepare
from tests.laboratory.random_world import OTHERS, World

RESIZE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


def simulation() -> RecordedSimulation:
    made, _ = prepare(Options(), parts=RECORDED_PARTS, simulation=RecordedSimulation)
    assert isinstance(made, RecordedSimulation)
    return made


def objects(seed: int) -> list:
    """Return random objects in the order of a simulation: many copies of few pods, some with more than a node."""
    world, pick = World(seed), random.Random(seed)
    items = [world.node(f"n{at}") for at in range(9)]
    for template in [world.pod("n0") for _ in range(8)]:
        for at in range(pick.randrange(1, 30)):
            copy = json.loads(json.dumps(template))
            copy["metadata"] |= {"name": f"{template['metadata']['name']}-{at}", "uid": f"{template['metadata']['name']}{at}"}
            copy["spec"]["nodeName"] = f"n{pick.randrange(10)}"
            if pick.random() < 0.1:
                copy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            if pick.random() < 0.2:
                reported = {"requests": {"cpu": pick.choice(["50m", "1"])}}
                copy["status"] = {
                    "phase": pick.choice(["Running", "Running", "Succeeded"]),
                    "containerStatuses": [{"name": "c", "resources": reported, "allocatedResources": reported["requests"]}],
                    "conditions": pick.choice([[], [RESIZE]]),
                }
            items.append(copy)
    items += waiting(world, pick)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    return [*objects_of(read_sources([InputFile("a.json", text), InputFile("b.yaml", OTHERS.encode())]))]


def waiting(world: World, pick: random.Random) -> list:
    """Return pods without a node: copies, of which some are gated, nominated, being deleted, or for another scheduler."""
    items = []
    for template in [world.pod() for _ in range(6)]:
        for at in range(pick.randrange(1, 12)):
            copy = json.loads(json.dumps(template))
            copy["metadata"] |= {"name": f"{template['metadata']['name']}-{at}", "uid": f"{template['metadata']['name']}{at}"}
            if pick.random() < 0.1:
                copy["spec"]["schedulerName"] = "other"
            if pick.random() < 0.1:
                copy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            if pick.random() < 0.1:
                copy["spec"]["schedulingGates"] = [{"name": "g"}]
            if pick.random() < 0.1:
                copy["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
            if pick.random() < 0.2:
                copy["status"] = {"phase": "Pending", "nominatedNodeName": f"n{pick.randrange(9)}"}
            items.append(copy)
    return items


def state(made: RecordedSimulation) -> list:
    """Return all that later decisions depend on, and what plugins read of placed pods."""
    table = made.scheduler.cluster.table
    own = [{pod.uid: (pod.needs, pod.host_ports, pod.label_class) for pod in pods.values()} for pods in table.pods]
    terms = [[(held, counts.tolist()) for held, counts in held_terms] for held_terms in table.held_terms]
    labels = {key: dict(found.rows) for key, found in table.pod_counts._classes.items()}
    volumes = [list(table.volume_use.pods_on(row)) for row in range(len(table))]
    scheduler = made.scheduler
    counts = scheduler.queue.incoming, scheduler.state.revision, scheduler.state.facts, list(scheduler.event_handlers.names)
    return [str(Digests().of(made, ())), own, terms, labels, volumes, made.arrived, made._arrivals, list(made._named), counts]


@pytest.mark.parametrize("seed", range(6))
def test_pods_loaded_together_count_as_pods_loaded_one_by_one(seed):
    known = objects(seed)
    together, one_by_one = simulation(), simulation()
    together.load(known)
    for obj in known:
        one_by_one._tell(Seen(obj))
    one_by_one.devices.begin()
    assert state(together) == state(one_by_one)
    together.run()
    one_by_one.run()
    assert state(together) == state(one_by_one)


def again(known: list) -> list:
    return [*known, known[-1]]


def before_the_nodes(known: list) -> list:
    return sorted(known, key=lambda obj: type(obj).__name__ != "Pod")


@pytest.mark.parametrize("order", [again, before_the_nodes, lambda known: [*reversed(known)]])
def test_pods_that_come_twice_or_before_their_nodes_are_counted_once(order):
    known = order([obj for obj in objects(7) if type(obj).__name__ in {"Node", "Pod"}])
    together, one_by_one = simulation(), simulation()
    together.load(known)
    for obj in known:
        one_by_one._tell(Seen(obj))
    one_by_one.devices.begin()
    assert state(together) == state(one_by_one)


def test_pods_are_loaded_together(monkeypatch):
    """Without this, the tests above would compare the slow way with itself."""
    made, told = simulation(), []
    monkeypatch.setattr(made, "_tell", told.append)
    made.load([obj for obj in objects(3) if type(obj).__name__ == "Pod" and obj.spec.node_name and not obj.status.phase])
    assert not told
    assert made.scheduler.cluster.pod_count == len(made.pods) > 50


def test_waiting_pods_are_loaded_together(monkeypatch):
    made, told = simulation(), []
    monkeypatch.setattr(made, "_tell", told.append)
    pods = [
        obj
        for obj in objects(3)
        if type(obj).__name__ == "Pod" and arrival_of(made.scheduler.profiles, obj) is ArrivalKind.WAITING
    ]
    made.load(pods)
    assert not told
    assert len(made.records) == len(made.scheduler.queue) == len(pods) > 5


def test_a_pod_that_is_placed_already_is_not_queued_with_others():
    known = [obj for obj in objects(5) if type(obj).__name__ in {"Node", "Pod"}]
    pods = [obj for obj in known if type(obj).__name__ == "Pod" and not obj.spec.node_name]
    together, one_by_one = simulation(), simulation()
    together.load(known)
    together.run()
    together.load(pods)
    for obj in known:
        one_by_one._tell(Seen(obj))
    one_by_one.devices.begin()
    one_by_one.run()
    for obj in pods:
        one_by_one._tell(Seen(obj))
    assert state(together) == state(one_by_one)
