"""Collects the outcome of a finished simulation in the form that reports use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from moorage.api.core import Pod, PodSpec, PodStatus
from moorage.api.devices import ClaimConsumer, ResourceClaim
from moorage.api.gc_pause import collector_paused
from moorage.api.pod_groups import POD_GROUP_INITIALLY_SCHEDULED, POD_GROUP_SCHEDULED, PodGroup, find_condition
from moorage.api.pod_requests import is_plain, pod_requests
from moorage.basis.printable import counted
from moorage.core.extenders.wire import ExtenderError
from moorage.core.groups.group_cycle import GroupReport
from moorage.plugins.devices.group_claims import GROUPS
from moorage.report.claims_and_groups import DeviceOutcome, PodGroupOutcome, VolumeOutcome
from moorage.report.outcome import InputNote, NodeOutcome, PodOutcome, RefusedPods, Run
from moorage.simulator.owners import controller_title, is_active
from moorage.simulator.pod_creation import NotCreated
from moorage.simulator.pod_records import PodRecord
from moorage.simulator.quotas import limits_for
from moorage.simulator.simulation import SimulatedCluster, State
from moorage.state.pod_groups import GroupPods, group_key
from moorage.state.pod_info import PodInfo
from moorage.state.pod_volumes import claims_used
from moorage.state.table import NodeTable


def volumes_bound(simulation: SimulatedCluster) -> Iterator[VolumeOutcome]:
    """Yield the claims whose volumes were bound during the run, by namespace and name."""
    bound = simulation.storage.bound
    if not bound:
        return
    users: dict[str, list[PodRecord]] = {}
    for record in _placed(simulation):
        for use in claims_used(record.pod):
            users.setdefault(use.key, []).append(record)
    for key, one in sorted(bound.items()):
        records = users.get(key, [])
        yield VolumeOutcome(
            namespace=one.claim.metadata.namespace,
            claim=one.claim.metadata.name,
            volume=one.volume.name,
            storage_class=one.storage_class,
            made=one.made,
            node=records[0].node if records else "",
            pods=tuple([record.pod.key for record in records]),
        )


def devices_allocated(simulation: SimulatedCluster) -> Iterator[DeviceOutcome]:
    """Yield the devices that were allocated during the run and still are, by namespace and name of the claim."""
    claims = simulation.scheduler.snapshot.objects(ResourceClaim)
    keys = sorted(simulation.devices.allocated)
    placed = {record.pod.metadata.uid: record for record in _placed(simulation)} if keys else {}
    for key in keys:
        claim = claims[key]
        allocation = claim.status.allocation
        uids = [uid for user in claim.status.reserved_for for uid in _users(user, claim, simulation)]
        records = [placed[uid] for uid in uids if uid in placed]
        for result in allocation.devices.results if allocation is not None else ():
            yield DeviceOutcome(
                namespace=claim.metadata.namespace,
                claim=claim.metadata.name,
                request=result.request,
                driver=result.driver,
                pool=result.pool,
                device=result.device,
                node=records[0].node if records else "",
                pods=tuple([record.pod.key for record in records]),
            )


def _users(user: ClaimConsumer, claim: ResourceClaim, simulation: SimulatedCluster) -> Iterable[str]:
    """Return the UIDs of the pods that a consumer of a claim stands for: itself, or the placed pods of a group."""
    group = simulation.scheduler.snapshot.group(f"{claim.metadata.namespace}/{user.name}") if user.resource == GROUPS else None
    return [user.uid] if group is None else group.nodes


def _placed(simulation: SimulatedCluster) -> Iterator[PodRecord]:
    return (record for record in simulation.records.values() if record.placed_s is not None)


# -- group outcomes ----------------------------------------------------------------------------------------------------


def pod_groups(simulation: SimulatedCluster) -> Iterator[PodGroupOutcome]:
    """Yield every pod group that exists or that a pod names, by namespace and name; none if groups are disabled."""
    snapshot = simulation.scheduler.snapshot
    if simulation.scheduler.cluster.groups is None:
        return
    known = snapshot.objects(PodGroup)
    named = {key for record in simulation.records.values() if (key := group_key(PodInfo(record.pod))) is not None}
    for key in sorted({*known, *named}):
        yield _outcome(key, known.get(key), snapshot.group(key), simulation.groups.get(key))


def _outcome(key: str, group: PodGroup | None, pods: GroupPods | None, last: GroupReport | None) -> PodGroupOutcome:
    namespace, _, name = key.partition("/")
    there, placed = (0, 0) if pods is None else (len(pods), pods.scheduled_count)
    least = None if group is None else group.min_count
    state, message = _state(group, there, placed, last)
    return PodGroupOutcome(
        namespace=namespace, name=name, state=state, min_count=least, pods=there, placed=placed, message=message
    )


def _state(group: PodGroup | None, there: int, placed: int, last: GroupReport | None) -> tuple[str, str]:
    if group is None:
        return "Missing", "there is no PodGroup of this name, and its pods wait for it"
    condition = find_condition(group, POD_GROUP_INITIALLY_SCHEDULED) or find_condition(group, POD_GROUP_SCHEDULED)
    if condition is not None and condition.status == "True":
        return "Scheduled", ""
    least = group.min_count
    if least is not None and there < least:
        return "Waiting", f"{there} of the {least} pods that go together are there"
    if last is None:
        return ("Scheduled", "") if there and there == placed else ("Waiting", "no pod of it was tried")
    if last.result == "error":
        return "Error", last.message
    found = placed + last.could_go
    if least is None:
        return "Unschedulable", last.message
    return "Unschedulable", f"{last.message}: {found} of the {least} pods that go together found a node"


def closed_gate_notes(simulation: SimulatedCluster, groups: int) -> Iterator[InputNote]:
    """Yield a note if the input has pod groups but the feature gate for them is off."""
    if groups and simulation.scheduler.cluster.groups is None:
        gates = ("GenericWorkload", "GangScheduling")
        opened = ",".join(f"{gate}=true" for gate in gates if gate in simulation.scheduler.gates.emulated.gates)
        what = f"{counted(groups, 'pod group')} ignored, and the pods scheduled one by one"
        text = f"{what}; --feature-gates={opened} schedules them as groups"
        yield InputNote("PodGroups", text)


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
        found = {name: amount for name, amount in sorted(pod_requests(pod).requests.items()) if amount}
        if is_plain(pod):
            self._known[id(spec), id(status)] = spec, status, found
        return found


def _pod(record: PodRecord, names: Mapping[str, str], requests: _Requests, simulation: SimulatedCluster) -> PodOutcome:
    pod, attempts, message = record.pod, record.attempts, record.message
    metadata = pod.metadata
    return PodOutcome(
        namespace=metadata.namespace,
        name=metadata.name,
        state=record.state,
        node=record.node,
        workload=names.get(metadata.uid) or controller_title(metadata),
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


# -- refused pods ------------------------------------------------------------------------------------------------------


def refused_outcomes(
    refused: Iterable[NotCreated], pods: Iterable[Pod], workloads: Mapping[str, str]
) -> tuple[RefusedPods, ...]:  # fmt: skip
    """Return the pods that were refused, by workload and reason. ``pods`` are the pods that exist.

    ``workloads`` maps a pod's UID to its workload: ``Deployment/web``.
    """
    groups: dict[tuple[str, str, str, str], list[NotCreated]] = {}
    for one in refused:
        workload = workloads.get(one.pod.uid, "")
        key = (one.pod.namespace, workload or f"Pod/{one.pod.name}", one.refused.by, one.refused.quota or one.refused.why)
        groups.setdefault(key, []).append(one)
    if not groups:
        return ()
    there = Counter((pod.namespace, workloads.get(pod.uid, "")) for pod in pods if is_active(pod))
    there.update((one.pod.namespace, workloads.get(one.pod.uid, "")) for held in groups.values() for one in held)
    return tuple(_refusal(held, workloads.get(held[0].pod.uid, ""), there) for held in groups.values())


def _refusal(held: list[NotCreated], workload: str, there: Mapping[tuple[str, str], int]) -> RefusedPods:
    first = held[0]
    return RefusedPods(
        namespace=first.pod.namespace,
        workload=workload,
        names=tuple(one.pod.name for one in held),
        wanted=there[first.pod.namespace, workload] if workload else 1,
        by=first.refused.by,
        quota=first.refused.quota,
        message=first.refused.message,
        amounts=first.refused.shortages,
        labels=first.pod.metadata.labels,
        limits=tuple(limits_for([one.refused for one in held])),
        priority=first.pod.spec.priority or 0,
    )
