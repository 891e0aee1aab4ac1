"""S8: after all faults, a scheduler's state equals the API's, and no temporary state is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from moorage.api.devices import ResourceClaim
from moorage.plugins.devices.claim_shapes import DeviceState
from tools.simtest.held_objects import HeldObjects
from tools.simtest.recording import Entry, RequestRecord
from tools.simtest.scheduler_process import Member, WatchedScheduler
from tools.simtest.world import World

__all__ = ["differences"]


def differences(member: Member, world: World, entries: Sequence[Entry]) -> list[str]:
    """Return every difference between a scheduler's state and the API's, and its leftover state; ``entries``: the history."""
    scheduler = member.scheduler
    if scheduler is None or member.live is None:
        return [f"S8: {member.name} is not running"]
    found = [*_nodes(scheduler, world), *_pods(scheduler, world), *_devices(scheduler, world)]
    if member.live.leads:
        found += [*_left_over(scheduler), *_nominations(scheduler, world, _unwritten(entries)), *_rescued(scheduler)]
    return [f"S8: {member.actor}: {text}" for text in found]


def _nodes(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    """Yield nodes that are missing, and nodes that are known but deleted."""
    view = scheduler.snapshot.nodes
    there = {node["metadata"]["name"] for node in world.nodes()}
    for name in sorted(there):
        if scheduler.snapshot.node(name) is None:
            yield f"node {name} is unknown"
    if len(view) != len(there):
        yield f"{len(view)} nodes are known, but {len(there)} exist"


def _pods(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    alive = {}
    for pod in world.pods():
        if pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            alive[pod["metadata"]["uid"]] = pod
    for uid, pod in alive.items():
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        believed = scheduler.cluster.node_of(uid) or ""
        if believed != node:
            yield f"pod {name} ({uid}) is on {node or 'no node'}, but recorded on {believed or 'none'}"
        ours = not node and pod["spec"]["schedulerName"] in scheduler.profiles
        if (scheduler.queue.get(uid) is not None) != ours:
            yield f"pod {name} ({uid}) is {'not queued' if ours else 'queued although it should not be scheduled'}"
    for queued in scheduler.queue.pending():
        if queued.pod.uid not in alive:
            yield f"pod {queued.pod.key} ({queued.pod.uid}) is queued but deleted"
    for name in [node["metadata"]["name"] for node in world.nodes()]:
        info = scheduler.snapshot.node(name)
        held = sorted(pod.uid for pod in info.pods) if info is not None else []
        there = sorted(uid for uid, pod in alive.items() if pod["spec"].get("nodeName") == name)
        if held != there:
            yield f"node {name} has pods {there}, but is recorded with {held}"


def _devices(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    """Yield differences between the devices of claims and the devices that the scheduler counts as allocated."""
    if world.gadgets is None:
        return
    there = {claim["metadata"]["uid"]: claim for claim in world.gadgets.claims()}
    known = {claim.metadata.uid: claim for claim in scheduler.snapshot.objects(ResourceClaim).values()}
    for uid in sorted({*there, *known}):
        is_version = known[uid].metadata.resource_version if uid in known else "unknown"
        version = there[uid]["metadata"]["resourceVersion"] if uid in there else "gone"
        if is_version != version:
            yield f"claim {uid} is at version {version}, but is recorded at {is_version}"
    device_state = scheduler.snapshot.index(DeviceState)
    device_state.follow()
    stock = HeldObjects()
    allocated = {device for claim in there.values() for device in stock.devices_of(claim)}
    for device in sorted(allocated ^ device_state.ledger.used):
        yield f"device {device[2]} is {'allocated' if device in allocated else 'free'}, but recorded otherwise"
    for uid in sorted(device_state.ledger.pending_claims):
        yield f"claim {uid} is still recorded as being allocated"


def _left_over(scheduler: WatchedScheduler) -> Iterator[str]:
    if scheduler.cluster.assumed:
        yield f"still assumed: {sorted(scheduler.cluster.assumed)}"
    if scheduler.state.bindings.by_uid:
        yield f"still being bound: {sorted(scheduler.state.bindings.by_uid)}"
    if scheduler.queue.logged_events:
        yield f"{scheduler.queue.logged_events} events are still logged for pods in flight"
    if scheduler.preemption.evictions:
        yield f"evictions in progress: {sorted(eviction.uid for eviction in scheduler.preemption.evictions.values())}"
    if scheduler.event_handlers.answers:
        yield f"{len(scheduler.event_handlers.answers)} responses to writes are not confirmed by a watch"
    if scheduler.state.bindings.by_ticket:
        yield f"work in progress: {sorted(scheduler.state.bindings.by_ticket)}"


def _unwritten(entries: Sequence[Entry]) -> set[str]:
    """Return the pods whose last status patch failed. Like kube-scheduler, ours repeats it only after another attempt."""
    last = {
        entry.uid: entry.code
        for entry in entries
        if isinstance(entry, RequestRecord) and entry.method == "PATCH" and entry.path.endswith("/status")
    }
    return {uid for uid, code in last.items() if code != 200}


def _nominations(scheduler: WatchedScheduler, world: World, unwritten: Collection[str]) -> Iterator[str]:
    pods = [pod for pod in world.pods() if not pod["spec"].get("nodeName")]
    nominated = {pod["metadata"]["uid"]: pod["status"].get("nominatedNodeName", "") for pod in pods}
    kept = {pod.uid: node for node, those in scheduler.queue.nominated.items() for pod in those}
    for uid in sorted({*nominated, *kept}):
        queued = scheduler.queue.get(uid)
        if uid in unwritten and uid not in kept:
            continue  # the API server still has the nomination that the scheduler has given up
        if queued is not None and queued.gated and uid not in kept:
            continue  # a restarted scheduler does not reserve resources for a gated pod
        if nominated.get(uid, "") != kept.get(uid, ""):
            yield f"pod {uid} is nominated to {nominated.get(uid) or 'no node'}, but recorded for {kept.get(uid) or 'none'}"


def _rescued(scheduler: WatchedScheduler) -> Iterator[str]:
    """Yield pods that were only retried because they had waited too long: an event was missed."""
    for (place, event), count in scheduler.queue.incoming.items():
        if event == "UnschedulableTimeout":
            yield f"{count} pods were moved to {place} only because of the flush timeout"
