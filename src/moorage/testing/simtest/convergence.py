"""S8: when all is quiet, a scheduler believes what the API says, and nothing is left over from what it did."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.devices import ResourceClaim
from moorage.plugins.devices.claim_shapes import DeviceState
from moorage.testing.simtest.held_objects import HeldObjects
from moorage.testing.simtest.scheduler_process import Member, WatchedScheduler
from moorage.testing.simtest.world import World

__all__ = ["differences"]


def differences(member: Member, world: World) -> list[str]:
    """Return every way in which a scheduler's picture differs from the API's, and what it has not cleared away."""
    scheduler = member.scheduler
    if scheduler is None or member.live is None:
        return [f"S8: {member.name} does not run"]
    found = [*_nodes(scheduler, world), *_pods(scheduler, world), *_devices(scheduler, world)]
    if member.live.leads:
        found += [*_left_over(scheduler), *_nominations(scheduler, world), *_rescued(scheduler)]
    return [f"S8: {member.actor}: {text}" for text in found]


def _nodes(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    """Tell of nodes that are not known as they are, and of such as are known and gone."""
    view = scheduler.snapshot.nodes
    there = {node["metadata"]["name"] for node in world.nodes()}
    for name in sorted(there):
        if scheduler.snapshot.node(name) is None:
            yield f"node {name} is not known"
    if len(view) != len(there):
        yield f"{len(view)} nodes are known, and there are {len(there)}"


def _pods(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    alive = {}
    for pod in world.pods():
        if pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            alive[pod["metadata"]["uid"]] = pod
    for uid, pod in alive.items():
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        believed = scheduler.cluster.node_of(uid) or ""
        if believed != node:
            yield f"pod {name} ({uid}) is on {node or 'no node'}, and believed on {believed or 'none'}"
        ours = not node and pod["spec"]["schedulerName"] in scheduler.profiles
        if (scheduler.queue.get(uid) is not None) != ours:
            yield f"pod {name} ({uid}) is {'not queued' if ours else 'queued though it is not to be placed'}"
    for queued in scheduler.queue.pending():
        if queued.pod.uid not in alive:
            yield f"pod {queued.pod.key} ({queued.pod.uid}) is queued and gone"
    for name in [node["metadata"]["name"] for node in world.nodes()]:
        info = scheduler.snapshot.node(name)
        held = sorted(pod.uid for pod in info.pods) if info is not None else []
        there = sorted(uid for uid, pod in alive.items() if pod["spec"].get("nodeName") == name)
        if held != there:
            yield f"node {name} holds {there}, and is believed to hold {held}"


def _devices(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    """Yield where the devices that claims have differ from those that the scheduler takes for allocated."""
    if world.gadgets is None:
        return
    there = {claim["metadata"]["uid"]: claim for claim in world.gadgets.claims()}
    known = {claim.metadata.uid: claim for claim in scheduler.snapshot.objects(ResourceClaim).values()}
    for uid in sorted({*there, *known}):
        is_version = known[uid].metadata.resource_version if uid in known else "unknown"
        version = there[uid]["metadata"]["resourceVersion"] if uid in there else "gone"
        if is_version != version:
            yield f"claim {uid} is at version {version}, and is believed to be at {is_version}"
    device_state = scheduler.snapshot.index(DeviceState)
    device_state.follow()
    stock = HeldObjects()
    allocated = {device for claim in there.values() for device in stock.devices_of(claim)}
    for device in sorted(allocated ^ device_state.ledger.used):
        yield f"device {device[2]} is {'allocated' if device in allocated else 'free'}, and is believed not to be"
    for uid in sorted(device_state.ledger.pending_claims):
        yield f"claim {uid} is believed to be about to be allocated"


def _left_over(scheduler: WatchedScheduler) -> Iterator[str]:
    if scheduler.cluster.assumed:
        yield f"still assumed: {sorted(scheduler.cluster.assumed)}"
    if scheduler.state.bindings.by_uid:
        yield f"still being bound: {sorted(scheduler.state.bindings.by_uid)}"
    if scheduler.queue.logged_events:
        yield f"{scheduler.queue.logged_events} events are kept for pods in flight"
    if scheduler.preemption.evictions:
        yield f"evictions under way: {sorted(eviction.uid for eviction in scheduler.preemption.evictions.values())}"
    if scheduler.event_handlers.answers:
        yield f"{len(scheduler.event_handlers.answers)} answers to writes that no watch has told of"
    if scheduler.state.bindings.by_ticket:
        yield f"work under way: {sorted(scheduler.state.bindings.by_ticket)}"


def _nominations(scheduler: WatchedScheduler, world: World) -> Iterator[str]:
    pods = [pod for pod in world.pods() if not pod["spec"].get("nodeName")]
    told = {pod["metadata"]["uid"]: pod["status"].get("nominatedNodeName", "") for pod in pods}
    kept = {pod.uid: node for node, those in scheduler.queue.nominated.items() for pod in those}
    for uid in sorted({*told, *kept}):
        queued = scheduler.queue.get(uid)
        if queued is not None and queued.gated and uid not in kept:
            continue  # a scheduler that was started since keeps no room for a pod that it may not try yet
        if told.get(uid, "") != kept.get(uid, ""):
            yield f"pod {uid} is nominated to {told.get(uid) or 'no node'}, and room is kept on {kept.get(uid) or 'none'}"


def _rescued(scheduler: WatchedScheduler) -> Iterator[str]:
    """Tell of pods that were moved only because they had waited too long: an event must have been missed."""
    for (place, event), count in scheduler.queue.incoming.items():
        if event == "UnschedulableTimeout":
            yield f"{count} pods came to {place} only because they had waited for long"
