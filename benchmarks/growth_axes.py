"""The axes along which ``benchmarks growth`` measures: each builds a cluster of a size and returns a step.

A step prepares its input, such as new pods, and returns the work to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks.shapes import HOSTNAME, ZONE, namespace, node, pod, requests, term
from benchmarks.waiting_axes import waiting_allowed, waiting_beside, waiting_late
from benchmarks.workloads import WORKLOADS, Sizes
from moorage.api.core import Node, NodeCondition, Pod, Service
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import Object
from moorage.api.pod_groups import PodGroup
from moorage.core.engine.facts import Gone, Seen
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["AXES", "Axis", "Step"]

Work = Callable[[], object]
Step = Callable[[], Work]
_ZONES: Final = ("zone1", "zone2", "zone3")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: Pods placed in one step of most axes.
_PODS: Final = 60
#: How often a step that changes its cluster for good can be called.
_REBUILT: Final = 4
#: Resources of nodes that take any number of pods.
_ROOMY: Final = {"cpu": "9000", "memory": "90Ti", "pods": "90000"}
#: Resources of nodes that take the pods of a gang, some hundreds each.
_LARGE: Final = {"cpu": "128", "memory": "1Ti", "pods": "2000"}
_GANGS: Final = FeatureGates({"GenericWorkload": True, "GangScheduling": True})


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis. ``make(size)`` returns the step; ``limit`` is the largest exponent of its cost that is not a failure.

    ``small`` sizes are for tests; ``each(size)``: how many pods, events or attempts share the cost of a step.
    """

    make: Callable[[int], Step]
    small: tuple[int, ...]
    large: tuple[int, ...]
    each: Callable[[int], int]
    limit: float = 1.2


# -- building ----------------------------------------------------------------------------------------------------------


def _cluster(objects: Iterable[Any], placed: Iterable[Pod] = (), gates: FeatureGates | None = None) -> SimulatedCluster:
    simulation, _ = prepare(Options() if gates is None else Options(gates=gates))
    simulation.load(objects)
    simulation.load(placed)
    _finish(simulation)
    return simulation


def _finish(simulation: SimulatedCluster) -> int:
    """Make attempts until nothing can change. Returns how many."""
    return sum(1 for _ in simulation.steps())


def _nodes(number: int, allocatable: Mapping[str, str] | None = None, zones: int = 3) -> list[Any]:
    machines = [node(at, {ZONE: f"zone{at % zones}"}, allocatable) for at in range(number)]
    return [namespace("default"), *machines]


def _bound(made: Pod, at: int) -> Pod:
    return replace(made, spec=replace(made.spec, node_name=f"node-{at}"))


def _placing(simulation: SimulatedCluster, make: Callable[[int], Pod], pods: int = _PODS) -> Step:
    """Return a step that places new pods."""
    numbers = count()

    def step() -> Work:
        new = [make(next(numbers)) for _ in range(pods)]
        return lambda: _place(simulation, new)

    return step


def _place(simulation: SimulatedCluster, pods: Iterable[Any]) -> None:
    simulation.load(pods)
    _finish(simulation)


def _observing(simulation: SimulatedCluster, facts: Callable[[int], Iterable[Seen | Gone]]) -> Step:
    """Return a step that reports events to the engine, without attempts."""
    numbers = count()

    def step() -> Work:
        events = list(facts(next(numbers)))
        return lambda: _observe(simulation, events)

    return step


def _observe(simulation: SimulatedCluster, events: Iterable[Seen | Gone]) -> None:
    for event in events:
        simulation.scheduler.observe(event, simulation.now)


def _placing_between(simulation: SimulatedCluster, event: Callable[[int], Seen], first: int = 0, pods: int = _PODS) -> Step:
    """Return a step that places plain pods, each after an event."""
    numbers = count(first)

    def step() -> Work:
        new = [(event(number), _plain(number)) for number in (next(numbers) for _ in range(pods))]
        return lambda: [(_observe(simulation, [fact]), _place(simulation, [made])) for fact, made in new]

    return step


def _plain(number: int) -> Pod:
    return pod(f"new-{number}", resources=requests("1m", "1Mi"))


def _spread(key: str, labels: Mapping[str, str], when: str = "ScheduleAnyway") -> dict[str, Any]:
    return {"maxSkew": 5, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": dict(labels)}}


def _convert(kind: type[Object], name: str, space: str = "", **parts: Any) -> Any:
    metadata = {"name": name, "uid": f"{kind.__name__}/{name}", **({"namespace": space} if space else {})}
    return msgspec.convert({"metadata": metadata, **parts}, kind)


# -- nodes and pods ----------------------------------------------------------------------------------------------------


def nodes(size: int) -> Step:
    return _placing(_cluster(_nodes(size)), _plain)


def nodes_of_new_classes(size: int) -> Step:
    unlike = lambda at: pod(f"new-{at}", {"app": f"a{at}"}, resources=requests(f"{1 + at}m", f"{1 + at}Mi"))  # noqa: E731
    return _placing(_cluster(_nodes(size)), unlike)


def nodes_with_spread_by_default(size: int) -> Step:
    service = _convert(Service, "web", "default", spec={"selector": {"app": "web"}})
    web = lambda at: pod(f"new-{at}", {"app": "web"}, resources=requests("1m", "1Mi"))  # noqa: E731
    return _placing(_cluster([*_nodes(size), service]), web)


def nodes_with_preferred_affinity(size: int) -> Step:
    preferred = [{"weight": 1, "podAffinityTerm": term(HOSTNAME, "red")}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    red = lambda at: pod(f"new-{at}", {"color": "red"}, resources=requests("1m", "1Mi"), affinity=affinity)  # noqa: E731
    return _placing(_cluster(_nodes(size)), red)


def pods_placed(size: int) -> Step:
    placed = [_bound(pod(f"old-{at}", resources=requests("1m", "1Mi")), at % 20) for at in range(size)]
    return _placing(_cluster(_nodes(20, _ROOMY), placed), _plain)


def classes_in_turn(size: int) -> Step:
    of_class = lambda at: pod(f"new-{at}", resources=requests(f"{1 + at % size}m", "1Mi"))  # noqa: E731
    return _placing(_cluster(_nodes(200, _ROOMY)), of_class, 320)


def heartbeats(size: int) -> Step:
    simulation = _beating(size)
    machines = simulation.scheduler.snapshot.table.nodes

    def beats(number: int) -> Iterable[Seen]:
        for at in range(40):
            yield Seen(_with_heartbeat(machines[at % size], number))

    return _observing(simulation, beats)


def _beating(size: int) -> SimulatedCluster:
    machines = [_with_heartbeat(node(at, {ZONE: f"zone{at % 3}"}), 0) for at in range(size)]
    return _cluster([namespace("default"), *machines], [_plain(-at) for at in range(1, 4)])


def _with_heartbeat(machine: Node, number: int) -> Node:
    ready = NodeCondition(type="Ready", status="True")
    version = replace(machine.metadata, resource_version=str(number))
    return replace(machine, metadata=version, status=replace(machine.status, conditions=(ready,)))


def pods_beside_heartbeats(size: int) -> Step:
    simulation = _beating(size)
    machines = simulation.scheduler.snapshot.table.nodes
    return _placing_between(simulation, lambda number: Seen(_with_heartbeat(machines[number % size], number)))


def nodes_relabelled(size: int) -> Step:
    simulation = _cluster(_nodes(size), [_plain(-at) for at in range(1, 4)])
    machines = simulation.scheduler.snapshot.table.nodes

    def relabelled(number: int) -> Seen:
        machine = machines[number % size]
        labels = {**machine.metadata.labels, "disk": f"d{number}"}
        return Seen(replace(machine, metadata=replace(machine.metadata, labels=labels)))

    return _placing_between(simulation, relabelled)


def node_added(size: int) -> Step:
    simulation = _cluster(_nodes(size), [_plain(-at) for at in range(1, 4)])
    return _placing_between(simulation, lambda number: Seen(node(number, {ZONE: "zone1"})), size, 10)


# -- labels, selectors, domains ------------------------------------------------------------------------------------------


def label_sets(size: int) -> Step:
    placed = [
        _bound(pod(f"old-{at}", {"app": "web", "pod": f"p{at}"}, resources=requests("1m", "1Mi")), at % 50)
        for at in range(size)
    ]
    spread = [_spread(ZONE, {"app": "web"})]

    def one(at: int) -> Pod:
        labels = {"app": "web", "pod": f"n{at}"}
        return pod(f"new-{at}", labels, resources=requests("1m", "1Mi"), topologySpreadConstraints=spread)

    return _placing(_cluster(_nodes(50, _ROOMY), placed), one)


def services(size: int) -> Step:
    services = [_convert(Service, f"s{at}", "default", spec={"selector": {"app": f"a{at}"}}) for at in range(size)]
    placed = [_bound(pod(f"old-{at}", {"app": f"a{at}"}, resources=requests("1m", "1Mi")), at % 50) for at in range(size)]
    of_app = lambda at: pod(f"new-{at}", {"app": f"a{at % size}"}, resources=requests("1m", "1Mi"))  # noqa: E731
    return _placing(_cluster([*_nodes(50, _ROOMY), *services], placed), of_app)


def label_values(size: int) -> Step:
    """Return a step whose pods each select the value of a label, of which there are ``size``."""

    def apart(name: str, at: int) -> Pod:
        terms = {"podAntiAffinity": {_REQUIRED: [term(HOSTNAME, f"c{at % size}")]}}
        return pod(name, {"color": f"c{at % size}"}, resources=requests("1m", "1Mi"), affinity=terms)

    placed = [_bound(apart(f"old-{at}", at), at % 50) for at in range(size)]
    return _placing(_cluster(_nodes(50, _ROOMY), placed), lambda at: apart(f"new-{at}", at))


def namespaces(size: int) -> Step:
    spaces = [namespace(f"ns{at}", {"team": f"t{at}"}) for at in range(size)]

    def apart(name: str, at: int) -> Pod:
        selects = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
        selects["namespaceSelector"] = {"matchLabels": {"team": f"t{at % size}"}}
        terms = {"podAntiAffinity": {_REQUIRED: [selects]}}
        return pod(name, {"app": "web"}, space=f"ns{at % size}", resources=requests("1m", "1Mi"), affinity=terms)

    placed = [_bound(apart(f"old-{at}", at), at % 50) for at in range(size)]
    return _placing(_cluster([*_nodes(50, _ROOMY), *spaces], placed), lambda at: apart(f"new-{at}", at))


def domains(size: int) -> Step:
    spread = [_spread(ZONE, {"app": "web"}, "DoNotSchedule")]
    web = lambda at: pod(  # noqa: E731
        f"new-{at}", {"app": "web"}, resources=requests("1m", "1Mi"), topologySpreadConstraints=spread
    )
    return _placing(_cluster(_nodes(size, _ROOMY, zones=size)), web)


def constraints(size: int) -> Step:
    def one(at: int) -> Pod:
        spread = [_spread(ZONE, {"app": f"a{number}"}) for number in range(size)]
        return pod(f"new-{at}", {"app": "a0"}, resources=requests("1m", "1Mi"), topologySpreadConstraints=spread)

    return _placing(_cluster(_nodes(50, _ROOMY)), one, 6)


# -- preemption ----------------------------------------------------------------------------------------------------------


def _full(size: int, priorities: int = 1) -> SimulatedCluster:
    """Return a cluster whose nodes are full of pods of ``priorities`` different priorities."""
    shapes = [pod("old", resources=requests("900m", "1Mi"), priority=at) for at in range(priorities)]
    old = [_renamed(shapes[at % priorities], f"old-{at}") for at in range(4 * size)]
    return _cluster(_nodes(size), [_bound(one, at % size) for at, one in enumerate(old)])


def _renamed(made: Pod, name: str) -> Pod:
    return replace(made, metadata=replace(made.metadata, name=name, uid=name))


def _preemptor(at: int) -> Pod:
    return pod(f"high-{at}", resources=requests("3", "1Mi"), priority=1_000_000)


def preemptors(size: int) -> Step:
    """Return a step of ``size`` preemptors that arrive at once, on 1,000 full nodes; 100 for the few of a test."""
    numbers = count()

    def step() -> Work:
        simulation = clusters.pop()
        simulation.load([_preemptor(next(numbers)) for _ in range(size)])
        return lambda: _attempt(simulation, size)

    clusters = [_full(1000 if size >= 50 else 100) for _ in range(_REBUILT)]
    return step


def nominated(size: int) -> Step:
    """Return a step of plain pods beside nodes with nominated pods."""
    simulation = _full(max(400, 2 * size))
    simulation.load([_preemptor(at) for at in range(size)])
    _attempt(simulation, size)
    numbers = count()

    def step() -> Work:
        new = [_plain(next(numbers)) for _ in range(_PODS)]
        return lambda: (simulation.load(new), _attempt(simulation, _PODS))

    return step


def _attempt(simulation: SimulatedCluster, times: int) -> None:
    for _ in range(times):
        simulation.scheduler.step(simulation.now)


def priorities(size: int) -> Step:
    simulation = _full(400, size)
    profile = next(iter(simulation.scheduler.profiles.values()))
    infos = [PodInfo(_preemptor(at)) for at in range(4)]

    simulation.scheduler.cycle.by_class = False
    decide, snapshot = simulation.scheduler.cycle.decide, simulation.scheduler.snapshot
    return lambda: lambda: [decide(profile, info, snapshot, {}) for info in infos]


# -- groups, queue -------------------------------------------------------------------------------------------------------


def gang(size: int) -> Step:
    simulation = _cluster(_nodes(50, _LARGE), gates=_GANGS)
    numbers = count()

    def step() -> Work:
        members = _gang(f"gang-{next(numbers)}", size)
        return lambda: _place(simulation, members)

    return step


def gang_with_affinity(size: int) -> Step:
    """Return a step of a gang whose pods attract each other, on nodes without other pods that have affinity."""
    affinity = {"podAffinity": {_REQUIRED: [term(ZONE, "red")]}}
    clusters = [_cluster(_nodes(50, _LARGE), gates=_GANGS) for _ in range(_REBUILT)]
    members = _gang("gang", size, affinity=affinity)

    def step() -> Work:
        simulation = clusters.pop()
        return lambda: _place(simulation, members)

    return step


def _gang(name: str, size: int, **spec: Any) -> list[Any]:
    policy = {"schedulingPolicy": {"gang": {"minCount": size // 2}}}
    members = [pod(f"{name}-{at}", {"color": "red"}, schedulingGroup={"podGroupName": name}, **spec) for at in range(size)]
    return [_convert(PodGroup, name, "default", spec=policy), *members]


def _parked(size: int) -> SimulatedCluster:
    """Return a cluster with ``size`` unschedulable pods of one shape, rejected by NodeAffinity and InterPodAffinity."""
    near = {"podAffinity": {_REQUIRED: [term("rack", "none")]}}
    shape: Mapping[str, Any] = {"nodeSelector": {ZONE: "zone0"}, "affinity": near}
    waiting = [pod(f"waits-{at}", {"app": "big"}, resources=requests("1m", "1Mi"), **shape) for at in range(size)]
    return _cluster([*_nodes(20), *waiting])


def _short_lived(number: int) -> Pod:
    return _bound(_plain(number), number % 20)


def pod_beside_parked(size: int) -> Step:
    """Return a step of a pod that is added to a node and deleted."""
    return _observing(_parked(size), lambda at: [Seen(_short_lived(at)), Gone(_short_lived(at))])


def node_added_beside_parked(size: int) -> Step:
    return _observing(_parked(size), lambda at: [Seen(node(1000 + at, {ZONE: "zone1"}))])


def node_relabelled_beside_parked(size: int) -> Step:
    return _observing(_parked(size), lambda at: [Seen(node(3, {ZONE: "zone0", "disk": f"d{at}"}))])


def all_woken(size: int) -> Step:
    """Return a step of an event that moves every unschedulable pod."""
    waiting = [pod(f"waits-{at}", resources=requests("900", "1Mi")) for at in range(size)]
    clusters = [_cluster([*_nodes(2), _short_lived(0), *waiting]) for _ in range(_REBUILT)]

    def step() -> Work:
        simulation = clusters.pop()
        return lambda: _observe(simulation, [Gone(_short_lived(0))])

    return step


def beside_waiting(size: int) -> Step:
    return waiting_beside(size, _PODS)


# -- claims and volumes --------------------------------------------------------------------------------------------------


def _of_workload(name: str, size: int, init: int, pods: int) -> Step:
    """Return a step that places some pods of a workload."""
    workload = WORKLOADS[name][0](Sizes(size, init, pods * _REBUILT), Random(0))
    simulation = _cluster(workload.objects, workload.init)
    left = iter(workload.measured)

    def step() -> Work:
        new = [next(left) for _ in range(pods)]
        return lambda: _place(simulation, new)

    return step


def claims(size: int) -> Step:
    return _of_workload("dra-claims", size, 10, 30)


def volumes(size: int) -> Step:
    return _of_workload("local-volumes", size, 10, 30)


def _one(size: int) -> int:
    return 1


def _itself(size: int) -> int:
    return size


def _of(number: int) -> Callable[[int], int]:
    return lambda size: number


AXES: Final[Mapping[str, Axis]] = {
    "nodes": Axis(nodes, (50, 100, 200), (1000, 10_000, 100_000), _of(_PODS)),
    "nodes, all pods unlike": Axis(nodes_of_new_classes, (50, 100, 200), (1000, 10_000, 100_000), _of(_PODS)),
    "nodes, spread by default": Axis(nodes_with_spread_by_default, (50, 100, 200), (1000, 10_000, 100_000), _of(_PODS)),
    "nodes, preferred affinity": Axis(nodes_with_preferred_affinity, (50, 100, 200), (1000, 10_000, 100_000), _of(_PODS)),
    "pods placed": Axis(pods_placed, (100, 400, 1600), (1000, 10_000, 100_000), _of(_PODS), 0.3),
    "classes in turn": Axis(classes_in_turn, (10, 20, 40), (10, 40, 160), _of(320)),
    "heartbeats": Axis(heartbeats, (50, 100, 200), (1000, 10_000, 100_000), _of(40), 0.3),
    "pods beside heartbeats": Axis(pods_beside_heartbeats, (50, 100, 200), (1000, 10_000, 100_000), _of(_PODS), 0.3),
    "nodes relabelled": Axis(nodes_relabelled, (50, 100, 200), (1000, 10_000, 100_000), _of(_PODS)),
    "a node added": Axis(node_added, (50, 100, 200), (1000, 10_000, 100_000), _of(10), 0.4),
    "label sets": Axis(label_sets, (50, 200, 800), (500, 2000, 8000), _of(_PODS)),
    "services": Axis(services, (50, 100, 200), (500, 1500, 5000), _of(_PODS)),
    "label values": Axis(label_values, (50, 100, 200), (500, 1500, 5000), _of(_PODS)),
    "namespaces": Axis(namespaces, (20, 40, 80), (100, 300, 1000), _of(_PODS)),
    "domains": Axis(domains, (10, 40, 160), (50, 500, 5000), _of(_PODS)),
    "constraints of a pod": Axis(constraints, (2, 8, 32), (8, 32, 128), _of(6)),
    "preemptors at once": Axis(preemptors, (5, 10, 20), (50, 200, 800), _itself),
    "nominated nodes": Axis(nominated, (5, 20, 40), (50, 200, 400), _of(_PODS)),
    "priorities": Axis(priorities, (1, 4, 16), (1, 16, 256), _of(4)),
    "gang size": Axis(gang, (10, 20, 40), (250, 1000, 4000), _itself),
    "gang size, pod affinity": Axis(gang_with_affinity, (10, 20, 40), (250, 1000, 4000), _itself),
    "parked pods, pod added and deleted": Axis(pod_beside_parked, (50, 200, 800), (1000, 10_000, 50_000), _one, 0.3),
    "parked pods, node added": Axis(node_added_beside_parked, (50, 200, 800), (1000, 10_000, 50_000), _one, 0.3),
    "parked pods, node relabelled": Axis(node_relabelled_beside_parked, (50, 200, 800), (1000, 10_000, 50_000), _one, 0.3),
    "parked pods, all woken": Axis(all_woken, (50, 200, 800), (1000, 5000, 20_000), _itself),
    "waiting pods, all allowed": Axis(waiting_allowed, (50, 200, 800), (1000, 5000, 20_000), _itself),
    "waiting pods, all too late": Axis(waiting_late, (50, 200, 800), (1000, 5000, 20_000), _itself),
    "waiting pods, others placed": Axis(beside_waiting, (50, 200, 800), (1000, 5000, 20_000), _of(_PODS), 0.3),
    "claims": Axis(claims, (10, 20, 40), (100, 500, 2000), _of(30)),
    "volumes": Axis(volumes, (40, 80, 160), (200, 1000, 4000), _of(30)),
}  # fmt: skip
