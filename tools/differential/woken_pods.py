"""Which pods a change wakes here, for scenarios of ``random_changes``; in the form that an oracle answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.meta import Object
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_scheduler
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Gone, Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue import QueuedPod, QueuePlace
from moorage.core.queue.pre_enqueue import ERRORS
from moorage.framework.dropped_fields import pod_reader
from moorage.state.pod_info import PodInfo
from tools.recordings.scenarios import known_kinds, recorded_release

Document = Mapping[str, Any]
#: Pod → the plugins that reject it.
Plugins = Mapping[str, list[str]]
WOKEN: Final = {QueuePlace.ACTIVE, QueuePlace.BACKOFF}


def answered(document: Document) -> list[dict[str, list[str]]]:
    """Return, for each change, the pods that waited and those that it woke."""
    return list(_followed(_scheduler(document), document))


def _scheduler(document: Document) -> Scheduler:
    gates = ",".join(f"{gate}={value}" for gate, value in document.get("featureGates", {}).items())
    loaded = load_source(ConfigSource(emulate=recorded_release(document), feature_gates=gates))
    return build_scheduler(loaded, Cycle())[0]


def _followed(scheduler: Scheduler, document: Document) -> Iterator[dict[str, list[str]]]:
    objects = [_object(data) for data in document["objects"]]
    for obj in objects:
        scheduler.observe(Seen(obj), 0.0)
    read = pod_reader(scheduler.gates)
    pending = {obj.uid: PodInfo(read(obj)) for obj in objects if isinstance(obj, Pod) and not obj.spec.node_name}
    for at, change in enumerate(document["changes"]):
        now = 1000.0 * (at + 1)
        in_flight = change.get("inFlight", {})
        parked, flying = _park(scheduler, pending.values(), change["rejectedBy"], in_flight, now)
        obj = _object(change.get("set") or change["delete"], version=str(at + 2))
        scheduler.observe(Seen(obj) if "set" in change else Gone(obj), now)
        after_error = (ERRORS,) if scheduler.gates.emulated.parks_errors else ()
        for queued in flying:
            scheduler.queue.requeue(queued, now, rejected_by=in_flight[queued.pod.key] or after_error)
        if obj.uid in pending and isinstance(obj, Pod) and not obj.spec.node_name:
            pending[obj.uid] = PodInfo(read(obj))
        yield {"parked": parked, "woken": sorted(pod.key for pod in pending.values() if _place(scheduler, pod) in WOKEN)}


def _place(scheduler: Scheduler, pod: PodInfo) -> QueuePlace | None:
    queued = scheduler.queue.get(pod.uid)
    return None if queued is None else queued.place


def _park(
    scheduler: Scheduler, pending: Iterable[PodInfo], rejected_by: Plugins, in_flight: Plugins, now: float
) -> tuple[list[str], list[QueuedPod]]:
    """Let pods wait that plugins rejected, and begin attempts of others; return all of them, and those in flight."""
    queue = scheduler.queue
    for pod in pending:
        queue.delete(pod, now)
    for pod in pending:
        if rejected_by.get(pod.key) or pod.key in in_flight:
            queue.add(pod, now)
    tried, flying = [], []
    while (queued := queue.pop(now)) is not None:
        if queued.pod.key in in_flight:
            flying.append(queued)
        else:
            queue.requeue(queued, now, rejected_by=rejected_by[queued.pod.key])
        tried.append(queued.pod.key)
    return sorted(tried), flying


def _object(data: Document, version: str = "1") -> Object:
    obj = decode(json.loads(json.dumps(data)), known_kinds()[data["kind"]], data["metadata"]["name"])
    if isinstance(obj, Node):
        return default_node(obj)
    return default_pod(obj) if isinstance(obj, Pod) else obj
