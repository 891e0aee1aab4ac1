"""Measure what one process carries: memory of nodes and placed pods, and the CPU time of events and decisions beside them.

Objects are decoded from JSON, as a live scheduler does it. Times are CPU microseconds, beside that of ``sum(range(1000))``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks import shapes
from benchmarks.loop_time import loop_us
from benchmarks.workloads import ZONES
from moorage.api.core import Node, Pod
from moorage.api.pod_decoding import PodDecoder
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_scheduler
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Done, Seen, Work
from moorage.core.engine.scheduler import Scheduler
from moorage.interfaces.cli.given_back_memory import collect_seldom, keep_freed_memory

__all__ = ["measure_carried"]

#: Events and decisions in a measurement; decisions of new classes take longer, and fewer are enough.
_TIMES: Final = 1000
_NEW_CLASSES: Final = 30


def measure_carried(nodes: int, pods_per_node: int) -> dict[str, Any]:
    """Load a cluster and return its memory, and what events and decisions cost."""
    keep_freed_memory()
    collect_seldom()
    scheduler, _ = build_scheduler(load_source(ConfigSource()), Cycle(0))
    empty, began = _resident_mib(), process_time()
    for at in range(nodes):
        scheduler.observe(Seen(_node(at)), 0.0)
    with_nodes, loaded = _resident_mib(), process_time()
    for at in range(nodes * pods_per_node):
        scheduler.observe(Seen(_placed(f"old-{at}", at % nodes)), 0.0)
    with_pods, placed = _resident_mib(), process_time()
    gc.collect()
    gc.freeze()
    before_us = loop_us()
    return {
        "nodes": nodes,
        "pods": nodes * pods_per_node,
        "nodes_mib": round(with_nodes - empty),
        "pods_mib": round(with_pods - with_nodes),
        "load_nodes_s": round(loaded - began, 1),
        "load_pods_s": round(placed - loaded, 1),
        **{name: round(us, 1) for name, us in _costs(scheduler, nodes)},
        "loop_us": round((before_us + loop_us()) / 2, 1),
    }


def _costs(scheduler: Scheduler, nodes: int) -> Iterator[tuple[str, float]]:
    """Yield what each operation takes."""
    numbers = count()
    _decide(scheduler, [shapes.pod(f"first-{at}") for at in range(20)])
    yield "read_us", _each(_TIMES, lambda: _placed(f"read-{next(numbers)}", 0))
    yield "decide_us", _decided(scheduler, [shapes.pod(f"plain-{at}") for at in range(_TIMES)])
    yield "spread_us", _decided(scheduler, [_spread(f"spread-{at}") for at in range(_TIMES)])
    yield "apart_us", _decided(scheduler, [_apart(f"apart-{at}") for at in range(min(_TIMES, nodes // 2))])
    yield "unlike_us", _decided(scheduler, [_unlike(at) for at in range(_NEW_CLASSES)])
    yield "place_us", _foreign(scheduler, nodes)
    heartbeats = [replace(node, metadata=replace(node.metadata, resource_version="9")) for node in _first(scheduler)]
    yield "heartbeat_us", _timed(heartbeats, lambda node: scheduler.observe(Seen(node), 0.0))


def _foreign(scheduler: Scheduler, nodes: int) -> float:
    """Return what a pod that another scheduler placed costs, including its row in the next decision."""
    others = 10
    plain = _decided(scheduler, [shapes.pod(f"between-{at}") for at in range(100)])
    began = process_time()
    for turn in range(100):
        for at in range(others):
            scheduler.observe(Seen(_placed(f"other-{turn}-{at}", (turn * others + at) * 7 % nodes)), 0.0)
        _decide(scheduler, [shapes.pod(f"after-{turn}")])
    took_us = (process_time() - began) * 1e6
    read_us = _each(_TIMES, lambda: _placed("again", 0))
    return (took_us - 100 * plain) / (100 * others) - read_us


# -- objects ---------------------------------------------------------------------------------------------------------------

_POD: Final = msgspec.json.encode(replace(shapes.pod("NAME"), spec=replace(shapes.pod("NAME").spec, node_name="NODE")))
_NODE: Final = msgspec.json.encode(shapes.node(0, {shapes.ZONE: "ZONE"}))
_read_pod: Final = PodDecoder().decode
_read_node: Final = msgspec.json.Decoder(Node).decode


def _node(at: int) -> Node:
    return _read_node(_NODE.replace(b"node-0", b"node-%d" % at).replace(b"ZONE", ZONES[at % len(ZONES)].encode()))


def _placed(name: str, at: int) -> Pod:
    return _read_pod(_POD.replace(b"NAME", name.encode()).replace(b"NODE", b"node-%d" % at))


def _spread(name: str) -> Pod:
    constraint = {"maxSkew": 5, "topologyKey": shapes.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    constraint["labelSelector"] = {"matchLabels": {"color": "blue"}}
    return shapes.pod(name, {"color": "blue"}, topologySpreadConstraints=[constraint])


def _apart(name: str) -> Pod:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [shapes.term(shapes.HOSTNAME, "green")]}
    return shapes.pod(name, {"color": "green"}, affinity={"podAntiAffinity": required})


def _unlike(at: int) -> Pod:
    return shapes.pod(f"unlike-{at}", {"app": f"app-{at}"}, resources=shapes.requests(f"{50 + at}m", f"{300 + at}Mi"))


def _first(scheduler: Scheduler) -> list[Node]:
    return list(scheduler.cluster.table.nodes[:_TIMES])


# -- times -----------------------------------------------------------------------------------------------------------------


def _decide(scheduler: Scheduler, pods: list[Pod]) -> None:
    """Queue pods, decide on them, and confirm their bindings."""
    for pod in pods:
        scheduler.observe(Seen(pod), 0.0)
    while scheduler.step(0.0):
        for output in scheduler.take():
            if isinstance(output, Work):
                bound = replace(output.pod.pod, spec=replace(output.pod.pod.spec, node_name=output.node))
                scheduler.observe(Done(output.ticket), 0.0)
                scheduler.observe(Seen(bound), 0.0)


def _decided(scheduler: Scheduler, pods: list[Pod]) -> float:
    began = process_time()
    _decide(scheduler, pods)
    return (process_time() - began) * 1e6 / len(pods)


def _each(times: int, call: Callable[[], object]) -> float:
    return _timed([None] * times, lambda _: call())


def _timed(values: list[Any], call: Callable[[Any], object]) -> float:
    began = process_time()
    for value in values:
        call(value)
    return (process_time() - began) * 1e6 / len(values)


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
