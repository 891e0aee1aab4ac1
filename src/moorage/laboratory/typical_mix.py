"""The typical mix: the shapes of a cluster's pods, each with its share of all pods and the nodes that it may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Container, Pod, PodStatus
from moorage.laboratory.feasibility import feasibility_of
from moorage.laboratory.metrics import WorkShape
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo
from moorage.state.shared_facts import infos_of

__all__ = ["MIRROR", "RARE", "PodShape", "eligible_shapes", "is_bound_to_its_node", "typical_mix", "unplaced_copy"]

#: Shapes with a smaller share of the pods are merged.
RARE: Final = 0.01
#: The annotation of mirror pods, which the kubelet of their node makes.
MIRROR: Final = "kubernetes.io/config.mirror"
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
    owners = (owner for owner in pod.metadata.owner_references if owner.controller)
    return MIRROR in pod.metadata.annotations or any(owner.kind in {"DaemonSet", "Node"} for owner in owners)


def typical_mix(pods: Iterable[Pod], rare: float = RARE) -> list[PodShape]:
    """Return the shapes of pods, the most frequent first. Shapes below ``rare`` are merged by the resources they request."""
    counted = [pod for pod in pods if pod.status.phase not in ENDED_PHASES and not is_bound_to_its_node(pod)]
    alike: dict[Hashable, list[PodInfo]] = {}  # copies of a pod share the objects that describe them
    for info in infos_of(counted):
        spec = info.spec
        parts = (id(info.needs), id(spec.node_selector), id(spec.affinity), id(spec.tolerations), spec.scheduler_name)
        alike.setdefault(parts, []).append(info)
    held: dict[tuple[_Requested, bytes], list[PodInfo]] = {}
    for members in alike.values():
        held.setdefault((_requested(members[0]), _constraints(members[0].pod)), []).extend(members)
    total = sum(map(len, held.values()))
    kinds: dict[Hashable, list[PodInfo]] = {}
    for (requested, constraints), members in held.items():
        few = len(members) < rare * total
        key: Hashable = tuple(name for name, _ in requested) if few else (requested, constraints)
        kinds.setdefault((few, key), []).extend(members)
    shapes = [_shape(members, total) for members in kinds.values()]
    return sorted(shapes, key=lambda shape: -shape.pods)


def _requested(pod: PodInfo) -> _Requested:
    return tuple(sorted((name, amount) for name, amount in pod.requests.items() if amount))


def _constraints(pod: Pod) -> bytes:
    """Return the fields of a pod that determine which nodes it may use, regardless of other pods."""
    spec = pod.spec
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    return _ENCODER.encode((spec.node_selector, affinity, spec.tolerations, spec.scheduler_name))


def _shape(members: Sequence[PodInfo], total: int) -> PodShape:
    times = Counter(id(pod.needs) for pod in members)
    asked = {id(pod.needs): pod.requests for pod in members}
    names = sorted({name for requests in asked.values() for name in requests})
    sums = {name: sum(requests.get(name, 0) * times[key] for key, requests in asked.items()) for name in names}
    mean = {name: -(-amount // len(members)) for name, amount in sums.items() if amount}
    return PodShape(mean, len(members) / total, members[0].pod, len(members))


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
