"""The hub: what it sends leads from one snapshot to the next, readers that fall behind, and following only while watched."""

import asyncio
import gzip
import json
import os
import random
import time

import pytest

from moorage.api.core import Container, Node, NodeSpec, NodeStatus, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements
from moorage.api.meta import ObjectMeta
from moorage.interfaces.web import change_stream as hub_module
from moorage.interfaces.web.change_stream import MOST_FRAMES, MOST_ROWS, Hub
from moorage.interfaces.web.mirror import View
from moorage.interfaces.web.rows import QueueState, pod_row
from moorage.testing import builders

LONG = pytest.mark.skipif(not os.environ.get("MOORAGE_LONG_TESTS"), reason="takes a minute")


def a_node(name, cpu="16", **spec):
    status = NodeStatus(allocatable={"cpu": cpu, "memory": "64Gi", "pods": "110"})
    labels = {"topology.kubernetes.io/zone": f"z{hash(name) % 3}", "kubernetes.io/hostname": name}
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(**spec), status=status)


def a_pod(name, node="", cpu="100m", why="", namespace="default"):
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu, "memory": "128Mi"}))
    conditions = (PodCondition(type="PodScheduled", status="False", message=why),) if why else ()
    metadata = ObjectMeta(name=name, namespace=namespace, uid=name, creation_timestamp="2026-01-01T00:00:00Z")
    return Pod(
        metadata=metadata, spec=PodSpec(node_name=node, containers=(container,)), status=PodStatus(conditions=conditions)
    )


class Objects:
    """A source whose objects a test changes."""

    release, live, notes = "1.36", True, ()

    def __init__(self, nodes=(), pods=()):
        self.held = {("node", one.name): one for one in nodes} | {("pod", one.key): one for one in pods}
        self.on_change = None

    def nodes(self):
        return iter([one for (kind, _), one in self.held.items() if kind == "node"])

    def pods(self):
        return iter([one for (kind, _), one in self.held.items() if kind == "pod"])

    def workloads(self):
        return iter(())

    def follow(self, on_change):
        self.on_change = on_change

    def unfollow(self):
        self.on_change = None

    def queue_state(self, uid):
        return QueueState()

    def put(self, one):
        key = ("node", one.name) if isinstance(one, Node) else ("pod", one.key)
        self.held[key] = one
        if self.on_change is not None:
            self.on_change(*key, lambda: one)

    def drop(self, key):
        del self.held[key]
        if self.on_change is not None:
            self.on_change(*key, None)


async def everyone():
    return View()


async def read(stream, events):
    """Read the events of a stream into a list."""
    async for text in stream:
        fields = dict(line.split(": ", 1) for line in text.decode().splitlines() if ": " in line and not line.startswith(":"))
        if "event" in fields:
            events.append((fields["event"], fields["id"], json.loads(fields["data"])))


async def snapshot(hub, view=View()):  # noqa: B008
    return json.loads(gzip.decompress(await hub.snapshot(view, "ann")))


def state_of(found):
    """Return a snapshot as objects by name."""
    names = found["nodes"]["name"]
    nodes = {
        name: (found["nodes"]["cordoned"][at], {one: column[at] for one, column in found["nodes"]["requested"].items()})
        for at, name in enumerate(names)
    }
    pods = {
        key: (None if found["pods"]["node"][at] < 0 else names[found["pods"]["node"][at]], found["pods"]["cause"][at])
        for at, key in enumerate(found["pods"]["key"])
    }
    return nodes, pods


def applied(state, delta):
    nodes, pods = state
    for one in delta["nodes"]["set"]:
        nodes[one["name"]] = (one["cordoned"], one["requested"])
    for one in delta["pods"]["set"]:
        pods[one["key"]] = (one["node"], one["cause"])
    for name in delta["nodes"]["gone"]:
        nodes.pop(name)
    for key in delta["pods"]["gone"]:
        pods.pop(key)


def change(source, rng):
    name, number = f"p{rng.randrange(20)}", rng.randrange(5)
    key = ("pod", f"default/{name}")
    match rng.randrange(5):
        case 0:
            source.put(a_node(f"n{number}", unschedulable=rng.random() < 0.5))
        case 1 if ("node", f"n{number}") in source.held and rng.random() < 0.3:
            source.drop(("node", f"n{number}"))
        case 2 if key in source.held:
            source.drop(key)
        case 3:
            source.put(a_pod(name, cpu=f"{rng.randrange(1, 9)}00m", why=rng.choice(["", "too full", "tainted"])))
        case _:
            source.put(a_pod(name, node=rng.choice([f"n{number}", "n0"])))


@pytest.mark.parametrize("seed", range(3))
def test_deltas_lead_from_one_snapshot_to_the_next(seed, monkeypatch):
    monkeypatch.setattr(hub_module, "FRAME_S", 0.001)

    async def test():
        rng, source, events = random.Random(seed), Objects([a_node(f"n{at}") for at in range(5)]), []
        hub = Hub(source)
        first = await snapshot(hub)
        state = state_of(first)
        reading = asyncio.create_task(read(hub.events(everyone, first["id"]), events))
        for _ in range(60):
            for _ in range(rng.randrange(4)):
                change(source, rng)
            await asyncio.sleep(rng.choice([0, 0.002]))
        await asyncio.sleep(0.05)
        last = await snapshot(hub)
        for name, _, delta in events:
            assert name == "delta"
            applied(state, delta)
        assert state == state_of(last)
        assert events[-1][1] == last["id"]
        assert {one["text"]: one["pods"] for one in last["causes"]} == count_causes(state)
        reading.cancel()
        hub.end()

    asyncio.run(test())


def count_causes(state):
    causes = [cause for node, cause in state[1].values() if node is None]
    return {cause: causes.count(cause) for cause in causes}


@pytest.mark.slow
def test_a_reader_that_falls_behind_is_sent_to_the_snapshot_and_costs_no_memory(monkeypatch):
    monkeypatch.setattr(hub_module, "FRAME_S", 0.0)

    async def test():
        source = Objects([a_node("n")])
        hub = Hub(source)
        first = await snapshot(hub)
        stream = hub.events(everyone, first["id"])
        assert await anext(stream) == b": connected\n\n"
        for number in range(MOST_FRAMES + 20):
            source.put(a_pod(f"p{number}"))
            count = hub.id
            while hub.id == count:
                await asyncio.sleep(0)
        assert len(hub.frames) == MOST_FRAMES
        assert (await anext(stream)).startswith(b"id: " + hub.id.encode() + b"\nevent: reset")
        await stream.aclose()

        for number in range(MOST_ROWS // 4000 + 2):
            for other in range(4000):
                source.put(a_pod(f"q{other}", cpu=f"{number + 1}m"))
            count = hub.id
            while hub.id == count:
                await asyncio.sleep(0)
        assert sum(one.changes.size for one in hub.frames) <= MOST_ROWS
        hub.end()

    asyncio.run(test())


def test_a_view_hides_the_pods_of_other_namespaces(monkeypatch):
    monkeypatch.setattr(hub_module, "FRAME_S", 0.001)

    async def test():
        source, events = Objects([a_node("n")], [a_pod("secret", why="secret cause"), a_pod("mine", namespace="team")]), []
        hub, view = Hub(source), View(frozenset(["team"]))

        async def mine():
            return view

        found = await snapshot(hub, view)
        assert found["pods"]["key"] == ["team/mine"]
        assert "secret" not in json.dumps(found)
        reading = asyncio.create_task(read(hub.events(mine, found["id"]), events))
        await asyncio.sleep(0.01)
        source.put(a_pod("secret", node="n"))
        source.put(a_pod("mine", node="n", namespace="team"))
        await asyncio.sleep(0.1)
        assert "secret" not in json.dumps(events)
        assert [one["key"] for _, _, delta in events for one in delta["pods"]["set"]] == ["team/mine"]
        reading.cancel()
        hub.end()

    asyncio.run(test())


def test_nothing_is_followed_while_no_browser_is_connected(monkeypatch):
    monkeypatch.setattr(hub_module, "FRAME_S", 0.001)
    monkeypatch.setattr(hub_module, "IDLE_S", 0.2)

    async def test():
        source = Objects([a_node("n")])
        hub = Hub(source)
        assert source.on_change is None
        first = await snapshot(hub)
        assert source.on_change is not None
        while source.on_change is not None:
            await asyncio.sleep(0.01)
        assert (hub.mirror.nodes, len(hub.frames)) == ({}, 0)
        source.put(a_node("m"))
        stream = hub.events(everyone, first["id"])
        assert b"event: reset" in await anext(stream)
        assert (await snapshot(hub))["nodes"]["name"] == ["n", "m"]
        await stream.aclose()
        hub.end()

    asyncio.run(test())


@LONG
def test_five_thousand_nodes_and_a_thousand_changes_a_second(capsys):
    """Print size and times of a large cluster; the loop is never taken for long, and readers do not fall behind."""
    nodes = [a_node(f"node-{at:05}") for at in range(5000)]
    pods = [a_pod(f"pod-{at:05}-abcde", node=f"node-{at % 5000:05}") for at in range(50_000)]

    async def test():
        source, events, busy = Objects(nodes, pods), [], []
        hub = Hub(source)
        watching = asyncio.create_task(watch(busy))
        began, cpu = time.monotonic(), time.thread_time()
        first = await hub.snapshot(View(), "ann")
        say = [(f"snapshot: {len(gzip.decompress(first)):,} bytes, {len(first):,} compressed, {time.monotonic() - began:.2f} s,"
               f" loop {time.thread_time() - cpu:.2f} s CPU, longest {max(busy):.3f} s")]  # fmt: skip
        reading = asyncio.create_task(read(hub.events(everyone, json.loads(gzip.decompress(first))["id"]), events))
        busy.clear()
        began, cpu = time.monotonic(), time.process_time()
        for second in range(60):
            for tenth in range(10):
                for number in range(100):
                    at = (second * 1000 + tenth * 100 + number) % 50_000
                    source.put(a_pod(f"pod-{at:05}-abcde", node=f"node-{(at + second) % 5000:05}", cpu=f"{second + 1}m"))
                await asyncio.sleep(max(0.0, began + second + (tenth + 1) / 10 - time.monotonic()))
        await asyncio.sleep(1)
        took = time.process_time() - cpu
        changed = sum(len(delta["pods"]["set"]) for _, _, delta in events)
        say.append(f"60,000 changes: {len(events)} frames, {changed:,} pods, {took:.1f} s CPU, longest {max(busy):.3f} s")
        with capsys.disabled():
            print("\n".join(["", *say]))
        assert all(name == "delta" for name, _, _ in events)
        assert changed == 60_000
        for task in (reading, watching):
            task.cancel()
        hub.end()

    asyncio.run(test())


async def watch(busy):
    """Note how late the loop runs a timer."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        busy.append(time.monotonic() - before - 0.005)


# -- rows ------------------------------------------------------------------------------------------------------------------


CPU = "0/3 nodes are available: 3 Insufficient cpu."
MEMORY = "0/3 nodes are available: 3 Insufficient memory."


@pytest.mark.parametrize(
    ("recorded", "now", "cause", "differs"),
    [
        ("", CPU, CPU, False),
        (f"{CPU} preemption: 0/3", f"{CPU} no new claims", f"{CPU} no new claims", False),
        (MEMORY, CPU, CPU, True),
        (MEMORY, "", MEMORY, False),
    ],
    ids=["nothing was recorded", "only the part on preemption differs", "another cause", "not tried here"],
)
def test_a_recorded_cause_is_kept_where_another_one_is_found_now(recorded, now, cause, differs):
    row = pod_row(a_pod("web", why=recorded), QueueState("pending", 1, now))
    assert (row.cause, row.recorded) == (cause, recorded if differs else "")


def test_a_row_has_what_the_pod_requires_of_its_node():
    expression = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    pinned = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = [{"matchExpressions": [expression]}, {"matchFields": [pinned]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    asked = pod_row(builders.a_pod("web", nodeSelector={"pool": "general"}, affinity=affinity).pod).requires
    assert json.loads(asked) == {"labels": {"pool": "general"}, "terms": [[["zone", "In", ["a", "b"]]]]}
    assert asked is pod_row(builders.a_pod("web", nodeSelector={"pool": "general"}, affinity=affinity).pod).requires
    assert pod_row(a_pod("web")).requires == ""
