"""A trace: the nodes of a cluster, and the pods that arrived there, with times and durations.

A trace is immutable: methods return a new trace. Random choices depend on the seed alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt
from msgspec.structs import force_setattr
from msgspec.structs import replace as structs_replace

from moorage.api import quantity
from moorage.api.core import Node, ObjectMeta, Pod, PodSchedulingGroup, PodSpec, PodStatus
from moorage.api.documents.object_fields import stable_uid
from moorage.api.packing import pack
from moorage.api.pod_groups import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from moorage.api.releases import RELEASES
from moorage.basis.inputs.objects import FoundObject
from moorage.basis.printable import counted
from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_objects
from moorage.simulator.outcome_collector import collect
from moorage.simulator.pod_records import in_turn
from moorage.simulator.simulate import Options, load_options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster
from moorage.state.columns import ranges
from moorage.state.pod_info import PodInfo

# The arrivals of a trace as columns: many pods share few templates and differ in name.
#
# A pod is created when it is read, so that a million arrivals take some 80 MB.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_PENDING: Final = PodStatus(phase="Pending")
_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives ``time_s`` seconds after the start and runs ``duration_s`` seconds once placed (None: forever).

    ``pod``   may be a dict as in a manifest, which is read and completed. A pod without a namespace or a UID gets one
    ``job``   the name of the job that it belongs to; empty: it is a job of its own
    ``gang``  so many pods of the job start together, or none: the pod names ``group``; 0: pods of a job start one by one

    Raises  InputError for a dict that is not one pod, and for a pod without a name
    """

    time_s: float
    pod: Pod
    duration_s: float | None = None
    job: str = ""
    gang: int = 0

    def __post_init__(self) -> None:
        pod: Any = self.pod
        if not isinstance(pod, Pod) or not (pod.metadata.uid and pod.metadata.namespace):
            pod = _pod_of(pod)
            object.__setattr__(self, "pod", pod)
        if self.gang and pod.spec.scheduling_group is None:
            object.__setattr__(self, "pod", structs_replace(pod, spec=in_group(pod.spec, self.job)))

    @property
    def group(self) -> PodGroup | None:
        """The pod group of a gang, which must be there before its pods; None for a pod that starts alone."""
        if not self.gang:
            return None
        space = self.pod.namespace
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=self.gang))
        return PodGroup(
            metadata=ObjectMeta(name=self.job, namespace=space, uid=stable_uid("PodGroup", space, self.job)),
            spec=PodGroupSpec(scheduling_policy=policy, priority=self.pod.spec.priority),
        )


def in_group(spec: PodSpec, name: str) -> PodSpec:
    """Return the spec of a pod that names this pod group; without a name, of one that names none."""
    return structs_replace(spec, scheduling_group=PodSchedulingGroup(pod_group_name=name) if name else None)


def _pod_of(given: Any) -> Pod:
    """Return a pod that a program gives, with a namespace and a UID."""
    if not isinstance(given, Pod | Mapping):
        raise InputError(f"an arrival is a Pod or the dict of one, not {type(given).__name__}")
    plain = {"apiVersion": "v1", "kind": "Pod", **given} if isinstance(given, Mapping) else given
    found = read_objects(
        [FoundObject(str(plain["apiVersion"]), str(plain["kind"]), plain, "arrival") if isinstance(plain, dict) else plain],
        validated=isinstance(plain, dict),
    )
    if len(found.pods) != 1:
        raise InputError(f"an arrival is one Pod; found {len(found.pods)}")
    return found.pods[0]


def told_apart(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """Yield arrivals; a pod that arrives again is another pod, with a number in its name: ``web``, ``web-2``, ``web-3``."""
    known: set[str] = set()
    times: dict[str, int] = {}
    for arrival in arrivals:
        pod = arrival.pod
        if pod.metadata.uid in known:
            pod = next_copy(pod, known, times)
            arrival = replace(arrival, pod=pod)  # noqa: PLW2901 (the same arrival of another pod)
        known.add(pod.metadata.uid)
        yield arrival


def next_copy(pod: Pod, known: Container[str], times: dict[str, int]) -> Pod:
    """Return the pod with the next free number in its name. ``known``: UIDs that are taken; ``times``: numbers by UID."""
    uid = pod.metadata.uid
    while True:
        times[uid] = times.get(uid, 1) + 1
        copied = another(pod, f"{pod.name}-{times[uid]}")
        if copied.metadata.uid not in known:
            return copied


def another(template: Pod, name: str) -> Pod:
    """Return a pod of this template with another name and UID. Setting fields of unshared copies is faster than ``replace``."""
    pod, metadata = copy(template), copy(template.metadata)
    force_setattr(metadata, "name", name)
    force_setattr(metadata, "uid", f"{metadata.namespace}/{name}")
    force_setattr(pod, "metadata", metadata)
    return pod


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod of a trace without its name and the values of its labels ``own``; many pods share a template."""

    spec: PodSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    namespace: str = _NAMESPACE
    own: tuple[str, ...] = ()

    def pod(self, name: str, own: str = "", spec: PodSpec | None = None) -> Pod:
        """Return a pod of this template with this name.

        ``own``   the values of its own labels, separated by newlines; the pod lacks labels with an empty value
        ``spec``  another spec
        """
        labels = dict(self.labels)
        if own:
            labels.update((key, value) for key, value in zip(self.own, own.split("\n"), strict=True) if value)
        metadata = ObjectMeta(
            name=name, namespace=self.namespace, uid=stable_uid("Pod", self.namespace, name), labels=labels,
            annotations=dict(self.annotations),
        )  # fmt: skip
        return Pod(metadata=metadata, spec=spec or self.spec, status=_PENDING)


@dataclass(frozen=True, eq=False)
class ArrivalColumns(Sequence[Arrival]):
    """Arrivals as columns, by time.

    ``names``, ``shape_of``  the name and the template's index of each row of the files
    ``labels``               the values of each row's own labels, as ``PodTemplate.pod`` takes them; empty if no row has any
    ``row``, ``copy``        the row of each arrival, and the number of the copy: 0 for the pod itself
    ``duration_s``           NaN for pods that never end
    ``job_of``, ``jobs``     the job of each row, -1 for a pod alone, and the names of jobs; empty if no row has a job
    ``gang_of``              how many pods of each job start together, 0 if they start one by one
    """

    templates: tuple[PodTemplate, ...]
    names: Sequence[str]
    shape_of: Ints
    row: Ints
    copy: Ints
    time_s: Floats
    duration_s: Floats
    labels: Sequence[str] = ()
    job_of: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    jobs: Sequence[str] = ()
    gang_of: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    #: The last spec with a group, which the other pods of its gang share: the template's spec, the group, and the spec in it.
    _last: list[tuple[PodSpec, str, PodSpec]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, at: int) -> Arrival: ...
    @overload
    def __getitem__(self, at: slice) -> ArrivalColumns: ...
    def __getitem__(self, at: int | slice) -> Arrival | ArrivalColumns:
        if isinstance(at, slice):
            return self.at(np.arange(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"arrival {at} of {len(self)}")
        row, copy, duration = int(self.row[at]), int(self.copy[at]), float(self.duration_s[at])
        suffix = f".copy-{copy}" if copy else ""
        template, labels = self.templates[int(self.shape_of[row])], self.labels[row] if self.labels else ""
        time_s, duration_s = float(self.time_s[at]), None if math.isnan(duration) else duration
        job = int(self.job_of[row]) if len(self.job_of) else -1
        if job < 0:
            return Arrival(time_s, template.pod(self.names[row] + suffix, labels), duration_s)
        name, gang = self.jobs[job] + suffix, int(self.gang_of[job])
        spec = self._in_group(template.spec, name) if gang else template.spec
        return Arrival(time_s, template.pod(self.names[row] + suffix, labels, spec), duration_s, name, gang)

    def _in_group(self, spec: PodSpec, group: str) -> PodSpec:
        """Return the spec of pods in a group; pods of a gang that are alike share it."""
        last = self._last[0] if self._last else None
        if last is None or last[0] is not spec or last[1] != group:
            last = (spec, group, in_group(spec, group))
            self._last[:] = [last]
        return last[2]

    @property
    def has_gangs(self) -> bool:
        """Whether some pods start together."""
        return bool((self.gang_of[self._jobs_there()] > 1).any()) if len(self.gang_of) else False

    def _jobs_there(self) -> Ints:
        found = self.job_of[self.row]
        return found[found >= 0]

    @property
    def gangs(self) -> int:
        """How many gangs there are."""
        units = self.units()
        return int((np.bincount(units) > 1).sum()) if len(units) else 0

    def units(self) -> Ints:
        """Return the number of the unit of each arrival, by first arrival: pods that start together are one unit.

        Shape (arrivals,).
        """
        alone = np.arange(len(self), dtype=np.int64)
        if not len(self.gang_of) or not len(self):
            return alone
        job = self.job_of[self.row]
        is_gang = (job >= 0) & (self.gang_of[np.maximum(job, 0)] > 0)
        keys = np.where(is_gang, job * (self.copy.max() + 1) + self.copy, -1 - alone)
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        rank = np.empty_like(first)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first))
        found: Ints = rank[of].astype(np.int64)
        return found

    def whole(self) -> ArrivalColumns:
        """Return the arrivals without those of gangs that are not complete."""
        if not len(self.gang_of) or not len(self):
            return self
        units, job = self.units(), self.job_of[self.row]
        wanted = np.where(job >= 0, np.maximum(self.gang_of[np.maximum(job, 0)], 1), 1)
        there = np.bincount(units)[units]
        is_gang = (job >= 0) & (self.gang_of[np.maximum(job, 0)] > 0)
        kept = ~is_gang | (there >= wanted)
        return self if kept.all() else self.at(np.flatnonzero(kept))

    def __iter__(self) -> Iterator[Arrival]:
        return (self[at] for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def at(self, which: Ints) -> ArrivalColumns:
        """Return the arrivals at these indexes, in this order."""
        return replace(
            self, row=self.row[which], copy=self.copy[which], time_s=self.time_s[which], duration_s=self.duration_s[which]
        )

    @property
    def shapes(self) -> Ints:
        """The index in ``templates`` of each arrival's template."""
        return self.shape_of[self.row]


# -- arrivals of programs ----------------------------------------------------------------------------------------------

_OTHER: Final = re.compile(r"[^a-z0-9]+")
_MOST_NAME: Final = 200


def plain_name(text: str, prefix: str = "task") -> str:
    """Return a name that an object can have: lower case, with dashes for all other characters."""
    found = _OTHER.sub("-", text.lower()).strip("-")[:_MOST_NAME].strip("-")
    return found or prefix


def job_names(jobs: Iterable[str]) -> list[str]:
    """Return names that objects can have, all different; a second ``job-1`` is ``job-1.2``."""
    found: dict[str, None] = {}
    for job in jobs:
        plain = name = plain_name(job, "job")
        number = 1
        while name in found:
            number += 1
            name = f"{plain}.{number}"
        found[name] = None
    return list(found)


_encode: Final = partial(pack, ordered=True)


def columns_of(given: Iterable[Any]) -> ArrivalColumns:
    """Return the arrivals of a program as columns, by time; see ``Trace.of``.

    Raises  InputError
    """
    templates: dict[Hashable, int] = {}
    made: list[PodTemplate] = []
    names: dict[tuple[str, str], str] = {}
    jobs: dict[str, int] = {}
    gangs: dict[int, list[int]] = {}
    shape_of, job_of, times, durations = [], [], [], []
    for at, arrival in enumerate(told_apart(map(_arrival_of, given))):
        if not (math.isfinite(arrival.time_s) and arrival.time_s >= 0):
            raise InputError(f"arrival {at}: time_s {arrival.time_s!r} is no time; use seconds from 0")
        meta, spec = arrival.pod.metadata, arrival.pod.spec
        spec = in_group(spec, "") if arrival.gang else spec
        key = _encode((spec, meta.labels, meta.annotations, meta.namespace))
        shape = templates.setdefault(key, len(made))
        if shape == len(made):
            made.append(PodTemplate(spec, meta.labels, meta.annotations, meta.namespace))
        name, number = meta.name, 1
        while (meta.namespace, name) in names:
            number += 1
            name = f"{meta.name}-{number}"
        names[meta.namespace, name] = name
        job = jobs.setdefault(arrival.job, len(jobs)) if arrival.job else -1
        if arrival.gang:
            if job < 0:
                raise InputError(f"arrival {at}: a gang needs the name of its job")
            gangs.setdefault(job, []).append(arrival.gang)
        shape_of.append(shape)
        job_of.append(job)
        times.append(float(arrival.time_s))
        durations.append(math.nan if arrival.duration_s is None else max(float(arrival.duration_s), 0.0))
    rows = np.arange(len(times), dtype=np.int64)
    found = ArrivalColumns(
        templates=tuple(made), names=list(names.values()), shape_of=np.array(shape_of, dtype=np.int64), row=rows,
        copy=np.zeros_like(rows), time_s=np.array(times), duration_s=np.array(durations),
        job_of=np.array(job_of, dtype=np.int64) if jobs else np.zeros(0, dtype=np.int64), jobs=job_names(jobs),
        gang_of=_gang_sizes(jobs, gangs),
    )  # fmt: skip
    return found.at(np.argsort(found.time_s, kind="stable"))


def _gang_sizes(jobs: Iterable[str], gangs: Mapping[int, Sequence[int]]) -> Ints:
    """Return how many pods of each job start together."""
    sizes = []
    for number, job in enumerate(jobs):
        said = gangs.get(number, [])
        if said and set(said) != {len(said)}:
            wanted = ", ".join(map(str, sorted(set(said))))
            raise InputError(f"job {job}: {counted(len(said), 'pod')} arrive, and its gang is of {wanted}")
        sizes.append(len(said) if len(said) > 1 else 0)
    return np.array(sizes, dtype=np.int64)


def _arrival_of(given: Any) -> Arrival:
    if isinstance(given, Arrival):
        return given
    try:
        return Arrival(**given) if isinstance(given, Mapping) else Arrival(*given)
    except TypeError as error:
        raise InputError(f"an arrival is an Arrival, or its fields (time_s, pod, duration_s): {error}") from None


def _nodes_of(given: Iterable[Any]) -> tuple[Node, ...]:
    plain = ({"apiVersion": "v1", "kind": "Node", **one} if isinstance(one, Mapping) else one for one in given)
    found = read_objects(
        [FoundObject(str(one["apiVersion"]), str(one["kind"]), one, "node") if isinstance(one, dict) else one for one in plain]
    )
    return tuple(found.nodes)


# -- trace amounts -----------------------------------------------------------------------------------------------------
# The amounts that pods of a trace request and its nodes have, and warnings if they are too small to affect placement.

#: Extended resource: thousandths of GPUs, over all devices of a node.
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
#: Extended resource: whole devices.
WHOLE_GPU: Final = "nvidia.com/gpu"
#: The resources that are summed, in milli-cores, bytes, and thousandths of GPUs.
RESOURCES: Final = ("cpu", "memory", "gpu")
#: The warning about a trace without durations.
NEVER_ENDS: Final = "no pod ever ends"
#: If pods never request more than this share of a resource at once, it does not affect where they are placed.
_IDLE: Final = 0.1


def capacity_of(nodes: Sequence[Node], resource: str) -> int:
    """Return the sum over all nodes of ``cpu`` (milli-cores), ``memory`` (bytes) or ``gpu`` (thousandths of devices)."""
    total = 0
    for node in nodes:
        amounts = node.status.allocatable
        if resource == "cpu":
            total += quantity.milli_value(amounts.get("cpu", 0))
        elif resource == "gpu":
            total += quantity.value(amounts.get(GPU_MILLI, 0)) + 1000 * quantity.value(amounts.get(WHOLE_GPU, 0))
        else:
            total += quantity.value(amounts.get(resource, 0))
    return total


def requests_of(arrivals: ArrivalColumns, resource: str) -> Floats:
    """Return the request of each arrival, in the units of ``capacity_of``; shape (arrivals,)."""
    of_shape = [_request(PodInfo(template.pod("pod")).requests, resource) for template in arrivals.templates]
    found: Floats = np.array(of_shape, dtype=np.float64)[arrivals.shapes] if len(arrivals) else np.zeros(0)
    return found


def _request(requests: object, resource: str) -> float:
    held: dict[str, int] = dict(requests)  # type: ignore[call-overload]
    if resource == "gpu":
        return float(held.get(GPU_MILLI, 0) + 1000 * held.get(WHOLE_GPU, 0))
    return float(held.get(resource, 0))


def most_at_once(arrivals: ArrivalColumns, resource: str) -> float:
    """Return the highest total request at any time, if each pod started when it arrives."""
    asked = requests_of(arrivals, resource)
    ends = arrivals.time_s + np.where(np.isnan(arrivals.duration_s), np.inf, arrivals.duration_s)
    times = np.concatenate([arrivals.time_s, ends])
    changes = np.concatenate([asked, -asked])
    # At equal times, pods that end make room first.
    order = np.lexsort((changes > 0, times))
    running = np.cumsum(changes[order])[np.isfinite(times[order])]
    return float(running.max(initial=0.0))


def trace_warnings(nodes: Sequence[Node], arrivals: ArrivalColumns) -> Iterator[str]:
    """Yield warnings about questions that an experiment with this trace cannot answer."""
    if not len(arrivals):
        yield "no pod arrives"
        return
    if not nodes:
        yield "no nodes: give nodes of your own"
        return
    for resource in RESOURCES:
        whole = capacity_of(nodes, resource)
        if not whole:
            continue
        most = most_at_once(arrivals, resource) / whole
        if 0 < most < _IDLE:
            yield (
                f"pods never request more than {_percent(most)} of the nodes' {_SHOWN[resource]} at once, so it hardly affects"
                " where they are placed; let pods stay, give them longer lifetimes or scale the trace"
            )
    if np.isnan(arrivals.duration_s).all():
        yield NEVER_ENDS
    if arrivals.time_s[0] == arrivals.time_s[-1] and len(arrivals) > 1:
        yield "all pods arrive at the same time: waiting times depend on the queue alone"


_SHOWN: Final = {"cpu": "cpu", "memory": "memory", "gpu": "GPUs"}


def _percent(share: float) -> str:
    digits = max(0, -math.floor(math.log10(100 * share))) if 100 * share < 1 else 1
    return f"{100 * share:.{digits}f} %"


#: The most arrivals to which a trace may be scaled or inflated.
_MOST: Final = 100_000_000


@dataclass(frozen=True)
class Trace:
    """Nodes, and arrivals by time, then in file order. ``notes`` are remarks of the reader, such as ignored rows."""

    nodes: tuple[Node, ...]
    arrivals: ArrivalColumns
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.arrivals
        if not isinstance(given, ArrivalColumns):
            object.__setattr__(self, "arrivals", columns_of(given))

    def __len__(self) -> int:
        return len(self.arrivals)

    def as_cluster(self) -> ClusterInput:
        """Return the trace without its times: an empty cluster and all pods pending, in order of arrival."""
        return ClusterInput(nodes=self.nodes, pods=tuple(arrival.pod for arrival in self.arrivals))

    def warnings(self) -> list[str]:
        """Return warnings about questions that an experiment with this trace cannot answer."""
        return list(trace_warnings(self.nodes, self.arrivals))

    # -- other traces ----------------------------------------------------------------------------------------------------

    def with_nodes(self, nodes: Sequence[Node]) -> Trace:
        """Return the same arrivals on other nodes."""
        return replace(self, nodes=tuple(nodes))

    @classmethod
    def of(cls, nodes: Iterable[Any], arrivals: Iterable[Any], notes: Sequence[str] = ()) -> Trace:
        """Return a trace of nodes and arrivals of a program, in any order.

        ``nodes``     Node objects, or dicts as in manifests
        ``arrivals``  ``Arrival`` values, or mappings and tuples of their fields: ``(time_s, pod)``, ``(time_s, pod,
                      duration_s)``; pods may be dicts, and an arrival of a pod that has arrived before is another pod

        Raises  InputError for what is no node and no arrival, for a time that is no number from 0, and for a gang with another
        number of pods than it says
        """
        return cls(_nodes_of(nodes), columns_of(arrivals), tuple(notes))

    def with_pods_apart(self) -> Trace:
        """Let pods of a job start one by one."""
        return replace(self, arrivals=replace(self.arrivals, gang_of=np.zeros_like(self.arrivals.gang_of), _last=[]))

    def split(self, *shares: float, seed: int | None = None) -> tuple[Trace, ...]:
        """Return one trace for each share of the arrivals, such as ``split(0.8, 0.2)``, in order of time; each begins at 0.

        ``seed``: draw the arrivals of each part at random instead, at their own times. Pods that start together stay together.

        Raises  InputError for shares that are not positive or sum to more than 1
        """
        if not shares or any(not share > 0 for share in shares) or sum(shares) > 1 + 1e-9:
            raise InputError(f"split: {', '.join(map(str, shares)) or 'nothing'}: use positive shares that sum to at most 1")
        units = self.arrivals.units()
        count = int(units.max(initial=-1)) + 1
        order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
        ends = np.rint(np.cumsum(shares) * count).astype(np.int64)
        parts = []
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            chosen = np.zeros(count, dtype=bool)
            chosen[order[start:end]] = True
            part = self._at(np.flatnonzero(chosen[units]))
            first = part.arrivals.time_s[0] if seed is None and len(part) else 0.0
            parts.append(replace(part, arrivals=replace(part.arrivals, time_s=part.arrivals.time_s - first)))
        return tuple(parts)

    def head(self, count: int) -> Trace:
        """Return the first arrivals, without gangs of which some pods come later."""
        return replace(self, arrivals=self.arrivals.at(np.arange(min(max(count, 0), len(self)))).whole())

    def between(self, start_s: float, end_s: float = math.inf) -> Trace:
        """Return the arrivals from ``start_s`` up to but not including ``end_s``; ``start_s`` becomes time 0."""
        first, last = np.searchsorted(self.arrivals.time_s, (start_s, end_s), side="left").tolist()
        found = self.arrivals.at(np.arange(first, max(first, last))).whole()
        return replace(self, arrivals=replace(found, time_s=found.time_s - start_s))

    def shuffle(self, seed: int = 0) -> Trace:
        """Let the pods arrive in random order, at the same times; pods that start together arrive together."""
        units = self.arrivals.units()
        rows, starts = _rows_of_units(units)
        order = np.random.default_rng(seed).permutation(len(starts))
        sizes = np.diff(np.append(starts, len(units)))
        times = np.repeat(self.arrivals.time_s[rows[starts]], sizes[order])
        return replace(self, arrivals=replace(self.arrivals.at(_expanded(order, rows, starts, sizes)), time_s=times))

    def scale_to(
        self, *, cpu: float | None = None, memory: float | None = None, gpu: float | None = None, seed: int = 0
    ) -> Trace:
        """Scale the trace until its pods request this multiple of the nodes' capacity of one resource: ``scale_to(gpu=1.3)``.

        Copies of pods are drawn at random until the next one would request too much, or pods are removed at random until they
        request no more. A copy arrives when its original does, after all pods of that time.

        Raises  InputError without exactly one resource, if the nodes have none of it, or no pod requests it
        """
        given = {"cpu": cpu, "memory": memory, "gpu": gpu}
        wanted = [(name, share) for name, share in given.items() if share is not None]
        if len(wanted) != 1:
            raise InputError(f"scale_to takes one of {', '.join(RESOURCES)}")
        [(resource, share)] = wanted
        units = self.arrivals.units()
        asked: Floats = np.bincount(units, weights=requests_of(self.arrivals, resource)).astype(np.float64)
        target = share * capacity_of(self.nodes, resource)
        if not target > 0 or not asked.sum():
            raise InputError(f"a trace cannot be scaled by {resource}: its nodes have none of it, or its pods request none")
        chance = np.random.default_rng(seed)
        if asked.sum() > target:
            return self._at(np.sort(_expand(_kept(asked, target, chance), units)))
        return self._with_copies(_expand(_drawn(asked, target, chance), units))

    def inflate(self, factor: float, seed: int = 0) -> Trace:
        """Let ``factor`` times as many pods arrive, each copy when its original does; below 1, remove pods at random.

        Raises  InputError for a factor that is not positive, or too large
        """
        units = self.arrivals.units()
        there = int(units.max(initial=-1)) + 1
        count = round(factor * there) if math.isfinite(factor) else _MOST + 1
        if not factor > 0 or count > _MOST:
            raise InputError(f"inflate: {factor} is no factor; use a positive number that gives at most {_MOST:,} pods")
        chance = np.random.default_rng(seed)
        if count <= there:
            return self._at(np.sort(_expand(chance.permutation(there)[:count], units)))
        whole, rest = divmod(count - there, there)
        drawn = np.concatenate([np.tile(np.arange(there), whole), np.sort(chance.permutation(there)[:rest])])
        return self._with_copies(_expand(drawn, units))

    def with_lifetimes(self, mean_s: float | None, distribution: str = "exponential", seed: int = 0) -> Trace:
        """Give every pod another lifetime. ``None``: all stay for good. ``distribution``: ``exponential`` or ``constant``.

        Raises  InputError for another distribution, and for a mean that is not positive
        """
        if mean_s is not None and not 0 < mean_s < math.inf:
            raise InputError(f"with_lifetimes: {mean_s} is no lifetime; use a positive number of seconds, or None")
        if distribution not in {"exponential", "constant"}:
            raise InputError(f"with_lifetimes: unknown distribution {distribution}; use exponential or constant")
        if mean_s is None:
            lifetimes: Floats = np.full(len(self), np.nan)
        elif distribution == "constant":
            lifetimes = np.full(len(self), float(mean_s))
        else:
            units = self.arrivals.units()
            lifetimes = np.random.default_rng(seed).exponential(mean_s, int(units.max(initial=-1)) + 1)[units]
        return replace(self, arrivals=replace(self.arrivals, duration_s=lifetimes))

    def _at(self, which: Ints) -> Trace:
        return replace(self, arrivals=self.arrivals.at(which))

    def _with_copies(self, which: Ints) -> Trace:
        """Add a copy of each of these arrivals; copies of one pod are numbered."""
        held = self.arrivals
        copies = held.at(which)
        number = _occurrence(copies.row) + _most_copies(held)[copies.row]
        both = np.concatenate([np.arange(len(held)), which])
        found = replace(held.at(both), copy=np.concatenate([held.copy, number]))
        return replace(self, arrivals=found.at(np.argsort(found.time_s, kind="stable")))


def _rows_of_units(units: Ints) -> tuple[Ints, Ints]:
    """Return the arrivals by unit, and where each unit starts among them."""
    rows = np.argsort(units, kind="stable")
    return rows, np.flatnonzero(np.diff(units[rows], prepend=-1))


def _expand(which: Ints, units: Ints) -> Ints:
    """Return the arrivals of these units, in this order."""
    rows, starts = _rows_of_units(units)
    return _expanded(which, rows, starts, np.diff(np.append(starts, len(units))))


def _expanded(which: Ints, rows: Ints, starts: Ints, sizes: Ints) -> Ints:
    return rows[ranges(starts[which], sizes[which])]


def _kept(asked: Floats, target: float, chance: np.random.Generator) -> Ints:
    """Remove arrivals at random until the rest request no more than ``target``; return the indexes of the rest."""
    order = chance.permutation(len(asked))
    left = asked.sum() - np.concatenate([[0.0], np.cumsum(asked[order])])
    removed = int(np.argmax(left <= target))
    return order[removed:].astype(np.int64)


def _drawn(asked: Floats, target: float, chance: np.random.Generator) -> Ints:
    """Return indexes of random arrivals, with repetition, up to the first that would exceed ``target``.

    Raises  InputError if it takes too many
    """
    found: list[Ints] = []
    total, drawn = float(asked.sum()), 0
    while True:
        block = chance.integers(0, len(asked), size=max(1024, len(asked)))
        sums = total + np.cumsum(asked[block])
        over = np.flatnonzero(sums > target)
        if len(over):
            return np.concatenate([*found, block[: over[0]]]).astype(np.int64)
        found.append(block)
        total, drawn = float(sums[-1]), drawn + len(block)
        if drawn > _MOST:
            raise InputError(f"scale_to: more than {_MOST:,} copies")


def _occurrence(rows: Ints) -> Ints:
    """Return for each entry the number of times its row has occurred so far, itself included; shape of ``rows``."""
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    found = np.empty(len(rows), dtype=np.int64)
    found[order] = ranges(np.ones_like(starts), np.diff(np.append(starts, len(rows))))
    return found


def _most_copies(held: ArrivalColumns) -> Ints:
    """Return the highest number of a copy for each row; shape (rows of the files,)."""
    most = np.zeros(len(held.names), dtype=np.int64)
    np.maximum.at(most, held.row, held.copy)
    return most


# -- trace run ---------------------------------------------------------------------------------------------------------


def simulate_trace(
    trace: Trace,
    options: Options,
    *,
    stay: bool = False,
    on_attempt: Callable[[SimulatedAttempt], None] | None = None,
    on_end: Callable[[SimulatedCluster], None] | None = None,
    on_result: Callable[[Decision], None] | None = None,
    on_repeats: Callable[[int], None] | None = None,
) -> Run:
    """Schedule every arrival of a trace, in order. With ``stay`` no pod ever finishes.

    ``on_attempt`` and ``on_result`` are called with each decision; ``on_repeats``, if given, in their place with how many
    waiting pods failed as before, which saves their decisions.

    Raises  ConfigError, InputError
    """
    trace, options, about_gangs = with_gangs(trace, options)
    simulation, notes = prepare(options, on_attempt)
    simulation.on_result = on_result
    if on_repeats is not None and (options.on_decision is None or options.on_repeats is not None):
        simulation.on_repeats = in_turn(options.on_repeats, on_repeats)
    if stay:
        trace = trace.with_lifetimes(None)
    simulation.load(trace.nodes)
    jobs: dict[str, str] = {}
    group = ""
    for arrival in trace.arrivals:
        if arrival.gang and arrival.job != group and (made := arrival.group) is not None:
            group = arrival.job
            simulation.at(arrival.time_s, Seen(made))
        simulation.at(arrival.time_s, Seen(arrival.pod))
        if arrival.job:
            jobs[arrival.pod.uid] = f"Job/{arrival.job}"
        if arrival.duration_s is not None:
            simulation.durations[arrival.pod.uid] = arrival.duration_s
    simulation.run()
    if on_end is not None:
        on_end(simulation)
    kind = "pods stay for good" if stay else "pods leave after the time they ran in the trace"
    about = f"trace of {len(trace.arrivals)} arrivals; {kind}"
    return collect(
        simulation,
        simulation.scheduler.gates.release,
        notes=[InputNote("Remark", text) for text in (about, *about_gangs, *trace.notes, *_warnings(trace, stay=stay))] + notes,
        workloads=jobs,
    )


#: The feature gates that pod groups need.
_GATES: Final = ("GenericWorkload", "GangScheduling")


def with_gangs(trace: Trace, options: Options) -> tuple[Trace, Options, list[str]]:
    """Return a trace with gangs and the options that schedule them together, and a note; or the trace with its pods apart.

    The pods are apart if the release has no pod groups, or the options close their feature gate.
    """
    count = trace.arrivals.gangs
    if not count:
        return trace, options, []
    what = f"{counted(count, 'job')} on several nodes"
    loaded = load_options(options)
    if loaded.gates["GenericWorkload"]:
        return trace, options, [f"{what}: the pods of each start together, as a pod group"]
    missing = [gate for gate in _GATES[:1] if gate not in RELEASES[loaded.release].gates]
    if missing or _GATES[0] in options.feature_gates:
        why = f"kube-scheduler {loaded.release} has no pod groups" if missing else f"the feature gate {_GATES[0]} is closed"
        return trace.with_pods_apart(), options, [f"{what}: {why}, so their pods start one by one"]
    opened = [gate for gate in _GATES if gate in RELEASES[loaded.release].gates]
    text = ",".join([*([options.feature_gates] if options.feature_gates else []), *(f"{gate}=true" for gate in opened)])
    note = (
        f"{what}: the pods of each start together, as a pod group (feature gates {', '.join(opened)}); --pods-apart starts them"
    )
    return trace, replace(options, feature_gates=text), [f"{note} one by one"]


def _warnings(trace: Trace, *, stay: bool) -> list[str]:
    """Return the warnings about a trace, without the one that no pod ends if the caller asked for that."""
    return [text for text in trace.warnings() if not (stay and text == NEVER_ENDS)]
