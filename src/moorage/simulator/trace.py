"""A trace: the nodes of a cluster, and the pods that arrived there, with times and durations.

A trace is immutable: methods return a new trace. Random choices depend on the seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt
from msgspec.structs import force_setattr

from moorage.api import quantity
from moorage.api.core import Node, ObjectMeta, Pod, PodSpec, PodStatus
from moorage.api.documents.object_fields import stable_uid
from moorage.basis.inputs.objects import FoundObject
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_objects
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt, SimulatedCluster
from moorage.state.columns import ranges
from moorage.state.pod_info import PodInfo

# -- trace arrivals ----------------------------------------------------------------------------------------------------
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

    ``pod`` may be a dict as in a manifest, which is read and completed. A pod without a namespace or a UID gets one.

    Raises  InputError for a dict that is not one pod, and for a pod without a name
    """

    time_s: float
    pod: Pod
    duration_s: float | None = None

    def __post_init__(self) -> None:
        pod: Any = self.pod
        if not isinstance(pod, Pod) or not (pod.metadata.uid and pod.metadata.namespace):
            object.__setattr__(self, "pod", _pod_of(pod))


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

    def pod(self, name: str, own: str = "") -> Pod:
        """Return a pod of this template with this name.

        ``own`` has the values of its own labels, separated by newlines; the pod lacks labels with an empty value.
        """
        labels = dict(self.labels)
        if own:
            labels.update((key, value) for key, value in zip(self.own, own.split("\n"), strict=True) if value)
        metadata = ObjectMeta(
            name=name, namespace=self.namespace, uid=stable_uid("Pod", self.namespace, name), labels=labels,
            annotations=dict(self.annotations),
        )  # fmt: skip
        return Pod(metadata=metadata, spec=self.spec, status=_PENDING)


@dataclass(frozen=True, eq=False)
class ArrivalColumns(Sequence[Arrival]):
    """Arrivals as columns, by time.

    ``names``, ``shape_of``  the name and the template's index of each row of the files
    ``labels``               the values of each row's own labels, as ``PodTemplate.pod`` takes them; empty if no row has any
    ``row``, ``copy``        the row of each arrival, and the number of the copy: 0 for the pod itself
    ``duration_s``           NaN for pods that never end
    """

    templates: tuple[PodTemplate, ...]
    names: Sequence[str]
    shape_of: Ints
    row: Ints
    copy: Ints
    time_s: Floats
    duration_s: Floats
    labels: Sequence[str] = ()

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
        name = f"{self.names[row]}.copy-{copy}" if copy else self.names[row]
        pod = self.templates[int(self.shape_of[row])].pod(name, self.labels[row] if self.labels else "")
        return Arrival(float(self.time_s[at]), pod, None if math.isnan(duration) else duration)

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

    def head(self, count: int) -> Trace:
        """Return the first arrivals."""
        return self._at(np.arange(min(max(count, 0), len(self))))

    def between(self, start_s: float, end_s: float = math.inf) -> Trace:
        """Return the arrivals from ``start_s`` up to but not including ``end_s``; ``start_s`` becomes time 0."""
        first, last = np.searchsorted(self.arrivals.time_s, (start_s, end_s), side="left").tolist()
        found = self.arrivals.at(np.arange(first, max(first, last)))
        return replace(self, arrivals=replace(found, time_s=found.time_s - start_s))

    def shuffle(self, seed: int = 0) -> Trace:
        """Let the pods arrive in random order, at the same times."""
        order = np.random.default_rng(seed).permutation(len(self))
        return replace(self, arrivals=replace(self.arrivals.at(order), time_s=self.arrivals.time_s))

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
        asked = requests_of(self.arrivals, resource)
        target = share * capacity_of(self.nodes, resource)
        if not target > 0 or not asked.sum():
            raise InputError(f"a trace cannot be scaled by {resource}: its nodes have none of it, or its pods request none")
        chance = np.random.default_rng(seed)
        if asked.sum() > target:
            return self._at(np.sort(_kept(asked, target, chance)))
        return self._with_copies(_drawn(asked, target, chance))

    def inflate(self, factor: float, seed: int = 0) -> Trace:
        """Let ``factor`` times as many pods arrive, each copy when its original does; below 1, remove pods at random.

        Raises  InputError for a factor that is not positive, or too large
        """
        count = round(factor * len(self)) if math.isfinite(factor) else _MOST + 1
        if not factor > 0 or count > _MOST:
            raise InputError(f"inflate: {factor} is no factor; use a positive number that gives at most {_MOST:,} pods")
        chance = np.random.default_rng(seed)
        if count <= len(self):
            return self._at(np.sort(chance.permutation(len(self))[:count]))
        whole, rest = divmod(count - len(self), len(self))
        return self._with_copies(
            np.concatenate([np.tile(np.arange(len(self)), whole), np.sort(chance.permutation(len(self))[:rest])])
        )

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
            lifetimes = np.random.default_rng(seed).exponential(mean_s, len(self))
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
) -> Run:
    """Schedule every arrival of a trace, in order. With ``stay`` no pod ever finishes.

    Raises  ConfigError, InputError
    """
    simulation, notes = prepare(options, on_attempt)
    if stay:
        trace = trace.with_lifetimes(None)
    simulation.load(trace.nodes)
    for arrival in trace.arrivals:
        simulation.at(arrival.time_s, Seen(arrival.pod))
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
        notes=[InputNote("Remark", text) for text in (about, *trace.notes, *_warnings(trace, stay=stay))] + notes,
    )


def _warnings(trace: Trace, *, stay: bool) -> list[str]:
    """Return the warnings about a trace, without the one that no pod ends if the caller asked for that."""
    return [text for text in trace.warnings() if not (stay and text == NEVER_ENDS)]
