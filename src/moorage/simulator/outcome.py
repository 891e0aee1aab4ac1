"""Collects the outcome of a finished simulation in the form that reports use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from moorage.api.core import Pod, PodSpec, PodStatus
from moorage.api.gc_pause import collector_paused
from moorage.cycle.extender_wire import ExtenderError
from moorage.report.outcome import InputNote, NodeOutcome, PodOutcome, Run
from moorage.simulator.claim_outcomes import devices_allocated, volumes_bound
from moorage.simulator.group_outcomes import pod_groups
from moorage.simulator.simulation import PodRecord, SimulatedCluster, State
from moorage.state.pod_requests import is_plain, pod_requests
from moorage.state.table import NodeTable
from moorage.wording import counted

__all__ = ["collect"]


def collect(
    simulation: SimulatedCluster,
    release: str,
    *,
    notes: Iterable[InputNote] = (),
    workloads: Mapping[str, str] | None = None,
    gone: Iterable[PodRecord] = (),
) -> Run:
    """Return the outcome of the run.

    ``workloads`` maps a pod's UID to the name of its workload (``Deployment/web``); without an entry, the pod's controller is
    named. ``gone``: records of pods that were deleted before the run.
    """
    with collector_paused():
        return _collect(simulation, release, notes, workloads or {}, gone)


def _collect(
    simulation: SimulatedCluster, release: str, notes: Iterable[InputNote], names: Mapping[str, str], gone: Iterable[PodRecord]
) -> Run:
    records = simulation.records
    victims = {uid: record for uid, record in simulation.victims.items() if uid not in records}
    requests = _Requests()
    every = chain(gone, records.values(), victims.values())
    table = simulation.scheduler.cluster.table
    return Run(
        pods=tuple([_pod(record, names, requests, simulation) for record in every]),
        nodes=tuple(_node(table, row, records) for row in sorted(range(len(table)), key=lambda r: table.nodes[r].name)),
        notes=(
            *notes,
            *(InputNote("Overslept", _overslept(key)) for key in simulation.overslept),
            *_ignored_extenders(simulation),
        ),
        seed=simulation.scheduler.cycle.seed,
        release=release,
        ended_s=simulation.now,
        attempts=sum(record.attempts for record in records.values()),
        volumes=tuple(volumes_bound(simulation)),
        devices=tuple(devices_allocated(simulation)),
        groups=tuple(pod_groups(simulation)),
    )


def _ignored_extenders(simulation: SimulatedCluster) -> Iterator[InputNote]:
    """Yield a note for each distinct failure of an extender that was ignored."""
    times = Counter(str(fault) for fault in simulation.faults if isinstance(fault, ExtenderError))
    for text, number in times.items():
        yield InputNote("Extenders", f"{text} ({counted(number, 'time')})")


def _overslept(key: str) -> str:
    return f"pod {key} found a place only in a last retry: a plugin's queueing hint missed the event that helped it"


class _Requests:
    """The requests of pods; pods of one spec share them."""

    def __init__(self) -> None:
        #: By the ids of a spec and a status: these two, so that the ids stay their own, and the requests.
        self._known: dict[tuple[int, int], tuple[PodSpec, PodStatus, Mapping[str, int]]] = {}

    def of(self, pod: Pod) -> Mapping[str, int]:
        """Return the amounts that are not 0, by name."""
        spec, status = pod.spec, pod.status
        known = self._known.get((id(spec), id(status)))
        if known is not None:
            return known[2]
        found = _requests(pod)
        if is_plain(pod):
            self._known[id(spec), id(status)] = spec, status, found
        return found


def _requests(pod: Pod) -> dict[str, int]:
    return {name: amount for name, amount in sorted(pod_requests(pod).requests.items()) if amount}


def _pod(record: PodRecord, names: Mapping[str, str], requests: _Requests, simulation: SimulatedCluster) -> PodOutcome:
    pod, attempts, message = record.pod, record.attempts, record.message
    metadata = pod.metadata
    return PodOutcome(
        namespace=metadata.namespace,
        name=metadata.name,
        state=record.state,
        node=record.node,
        workload=names.get(metadata.uid) or _controller(pod),
        scheduler_name=pod.spec.scheduler_name,
        priority=pod.priority,
        requests=requests.of(pod),
        arrived_s=record.arrived_s,
        placed_s=record.placed_s,
        ended_s=record.ended_s,
        attempts=attempts,
        message=_message(record, simulation) if record.state == State.PENDING else "",
        nominated=record.nominated if not attempts or message else "",
        preempted_by=record.preempted_by,
        replaced_by=record.replaced,
        labels=metadata.labels,
    )


def _message(record: PodRecord, simulation: SimulatedCluster) -> str:
    if record.attempts:
        return record.message
    gates = ", ".join(gate.name for gate in record.pod.spec.scheduling_gates)
    if gates:
        return f"Scheduling is blocked due to non-empty scheduling gates: {gates}"
    queued = simulation.scheduler.queue.get(record.pod.uid)
    return ", ".join(queued.gate.reasons) if queued is not None and queued.gate is not None else ""


def _controller(pod: Pod) -> str:
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    return "" if owner is None else f"{owner.kind}/{owner.name}"


def _node(table: NodeTable, row: int, records: Mapping[str, PodRecord]) -> NodeOutcome:
    node = table.nodes[row]
    offered = {name: int(table.allocatable(name).data[row]) for name in sorted(node.status.allocatable) if name != "pods"}
    on_it = table.pods[row].values()
    #: By identity: the requests, which copies of a pod share, and how many pods have them.
    counts: dict[int, list[Any]] = {}
    for pod in on_it:
        needs = pod.needs
        known = counts.get(id(needs))
        if known is None:
            counts[id(needs)] = [needs.requests, 1]
        else:
            known[1] += 1
    asked: dict[str, int] = {}
    for requests, count in counts.values():
        for name, amount in requests.items():
            asked[name] = asked.get(name, 0) + count * amount
    return NodeOutcome(
        name=node.name,
        pods=len(on_it),
        placed=sum([uid in records and records[uid].state == State.PLACED for uid in table.pods[row]]),
        allowed_pods=int(table.allowed_pods.data[row]),
        allocatable=offered,
        requested={name: asked[name] for name in sorted(asked) if asked[name]},
    )
