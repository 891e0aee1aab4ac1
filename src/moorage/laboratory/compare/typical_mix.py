"""The typical mix: the shapes of a cluster's pods, each with its share of all pods and the nodes that it may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Container, Pod, PodStatus
from moorage.laboratory.metrics import WorkShape
from moorage.laboratory.trial.feasibility import feasibility_of
from moorage.simulator.owners import controller_kind, is_mirror
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo, infos_of, parts_of

#: Shapes with a smaller share of the pods are merged.
RARE: Final = 0.01
_Requested = tuple[tuple[str, int], ...]
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class PodShape(NamedTuple):
    """Pods with equal requests that may use the same nodes: the requests, their share of all pods, and one of them."""

    requests: dict[str, int]
    weight: float
    pod: Pod
    pods: int


def is_bound_to_its_node(pod: Pod) -> bool:
    """Return True for a pod that exists because of its node: of a DaemonSet, or made by the kubelet."""
    return is_mirror(pod) or controller_kind(pod) in {"DaemonSet", "Node"}


def typical_mix(pods: Iterable[Pod], rare: float = RARE) -> list[PodShape]:
    """Return the shapes of pods, the most frequent first. Shapes below ``rare`` are merged by the resources they request."""
    held: dict[tuple[_Requested, bytes], list[_Alike]] = {}
    for one in _alike(pods):
        held.setdefault((_requested(one.first), _constraints(one.first.pod)), []).append(one)
    total = sum(map(_count, held.values()))
    kinds: dict[Hashable, list[_Alike]] = {}
    for (requested, constraints), members in held.items():
        few = _count(members) < rare * total
        key: Hashable = tuple(name for name, _ in requested) if few else (requested, constraints)
        kinds.setdefault((few, key), []).extend(members)
    shapes = [_shape(members, total) for members in kinds.values()]
    return sorted(shapes, key=lambda shape: -shape.pods)


class _Alike(NamedTuple):
    """Copies of one pod, which share the objects that describe them: the first one, and their number."""

    first: PodInfo
    number: int


def _alike(pods: Iterable[Pod]) -> list[_Alike]:
    """Return the pods that have not ended and are not bound to their node, in the order of the first copies."""
    first: dict[Hashable, Pod] = {}
    numbers: Counter[Hashable] = Counter()
    for pod in pods:
        if pod.status.phase not in ENDED_PHASES and not is_bound_to_its_node(pod):
            spec = pod.spec
            parts = (parts_of(pod), id(spec.node_selector), id(spec.tolerations), spec.scheduler_name)
            numbers[parts] += 1
            first.setdefault(parts, pod)
    return list(map(_Alike, infos_of([*first.values()]), numbers.values()))


def _count(members: Iterable[_Alike]) -> int:
    return sum(one.number for one in members)


def _requested(pod: PodInfo) -> _Requested:
    return tuple(sorted((name, amount) for name, amount in pod.requests.items() if amount))


def _constraints(pod: Pod) -> bytes:
    """Return the fields of a pod that determine which nodes it may use, regardless of other pods."""
    spec = pod.spec
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    return _ENCODER.encode((spec.node_selector, affinity, spec.tolerations, spec.scheduler_name))


def _shape(members: Sequence[_Alike], total: int) -> PodShape:
    number = _count(members)
    names = sorted({name for one in members for name in one.first.requests})
    sums = {name: sum(one.first.requests.get(name, 0) * one.number for one in members) for name in names}
    mean = {name: -(-amount // number) for name, amount in sums.items() if amount}
    return PodShape(mean, number / total, members[0].first.pod, number)


# -- where they may go ---------------------------------------------------------------------------------------------------


def eligible_shapes(simulation: SimulatedCluster, shapes: Iterable[PodShape]) -> list[WorkShape]:
    """Return shapes with the nodes that no filter but that of resources refuses, in the order of the node table's rows."""
    return [_eligible(simulation, shape) for shape in shapes]


def _eligible(simulation: SimulatedCluster, shape: PodShape) -> WorkShape:
    table = simulation.scheduler.snapshot.table
    rows = np.zeros(len(table), dtype=np.bool_)
    for name in feasibility_of(simulation, PodInfo(_asking_for_nothing(shape.pod)), None).nodes:
        rows[table.row_of[name]] = True
    return WorkShape(shape.requests, shape.weight, rows, shape.pod.key)


def unplaced_copy(pod: Pod, suffix: str) -> Pod:
    """Return a new pending pod like this one."""
    metadata = replace(pod.metadata, name=f"{pod.name}-{suffix}", uid=f"{pod.uid}-{suffix}", deletion_timestamp=None)
    spec = replace(pod.spec, node_name="", scheduling_gates=())
    return replace(pod, metadata=metadata, spec=spec, status=PodStatus())


def _asking_for_nothing(pod: Pod) -> Pod:
    """Return a new pending pod like this one that requests nothing, so that it is never too large."""
    copy = unplaced_copy(pod, "like")
    spec = replace(
        copy.spec, overhead={}, resources=None,
        containers=_empty(pod.spec.containers), init_containers=_empty(pod.spec.init_containers),
    )  # fmt: skip
    return replace(copy, spec=spec)


def _empty(containers: Iterable[Container]) -> tuple[Container, ...]:
    return tuple(replace(one, resources=type(one.resources)()) for one in containers)
