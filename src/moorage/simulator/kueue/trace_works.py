"""The pods of a trace in queues: each is a workload of its own, and LocalQueues share them out.

A trace has no queues. The annotation ``moorage.dev/trace-share`` of a LocalQueue says which part of the pods it gets, in
proportion to the others, and ``moorage.dev/trace-selector`` limits it to pods with certain labels. Which pod goes to which
queue depends on the seed and the pod's name, so that another configuration of the queues sees the same jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.errors import InputError
from moorage.simulator.kueue.integrations import QueuedWork, work_of_pods
from moorage.simulator.kueue.objects import Objects
from moorage.simulator.trace import Trace

_SHARE: Final = "moorage.dev/trace-share"
_SELECTOR: Final = "moorage.dev/trace-selector"


@dataclass(frozen=True, slots=True)
class _Taker:
    """A LocalQueue and the part of the pods that it gets."""

    namespace: str
    name: str
    share: float
    selector: Selector


def works_of_trace(
    trace: Trace, objects: Objects, documents: Sequence[Mapping[str, Any]], *, seed: int = 0
) -> Iterator[QueuedWork]:
    """Yield a work for each arrival, in a LocalQueue. All LocalQueues take equal parts unless one of them states a part.

    Raises  InputError if no queue takes a pod, or an annotation cannot be read
    """
    takers = _takers(documents)
    if not takers:
        raise InputError(f"no LocalQueue takes the pods of the trace; add one, or give one the annotation {_SHARE}")
    for space in {taker.namespace for taker in takers}:
        objects.namespaces.setdefault(space, {"kubernetes.io/metadata.name": space})
    for number, arrival in enumerate(trace.arrivals):
        pod = arrival.pod
        taker = _choose([taker for taker in takers if taker.selector.matches(pod.labels)], pod, seed)
        moved = replace(pod, metadata=replace(pod.metadata, namespace=taker.namespace))
        yield work_of_pods(
            f"Pod/{pod.name}", [moved], taker.name, priority=pod.spec.priority or 0, created=float(number),
            arrival_s=arrival.time_s, duration_s=arrival.duration_s,
        )  # fmt: skip


def _takers(documents: Sequence[Mapping[str, Any]]) -> list[_Taker]:
    queues = [one for one in documents if one.get("kind") == "LocalQueue"]
    notes = [(one.get("metadata") or {}).get("annotations") or {} for one in queues]
    shared = any(_SHARE in note for note in notes)
    found = []
    for one, note in zip(queues, notes, strict=True):
        meta = one["metadata"]
        where = f"LocalQueue {meta.get('namespace', 'default')}/{meta['name']}: metadata.annotations"
        text = note.get(_SHARE, "0" if shared else "1")
        try:
            share = float(text)
            selector = parse_selector(str(note.get(_SELECTOR, "")))
        except SelectorError as error:
            raise InputError(f"{where}[{_SELECTOR}]: {error}") from None
        except ValueError:
            share, selector = -1.0, parse_selector("")
        if not 0 <= share < float("inf"):
            raise InputError(f"{where}[{_SHARE}]: {text!r} is no part; use a number such as 1 or 2.5")
        if share:
            found.append(_Taker(str(meta.get("namespace", "default")), str(meta["name"]), share, selector))
    return found


def _choose(takers: Sequence[_Taker], pod: Pod, seed: int) -> _Taker:
    if not takers:
        raise InputError(f"no LocalQueue takes the pod {pod.name} of the trace: no {_SELECTOR} matches its labels")
    draw = int.from_bytes(blake2b(f"{seed}/{pod.name}".encode(), digest_size=8).digest(), "big") / 2**64
    draw *= sum(taker.share for taker in takers)
    for taker in takers:
        draw -= taker.share
        if draw < 0:
            return taker
    return takers[-1]
