"""The faults of a run: each is a coroutine that acts for a while, chosen and timed by the seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from moorage.errors import ClusterError
from tools.simtest.network import Rule, Sent
from tools.simtest.recording import HELD, Lost, WriteRecord
from tools.simtest.scheduler_process import Member
from tools.simtest.unruly_plugin import Mood
from tools.simtest.virtual_api import VirtualApi
from tools.simtest.world import World

__all__ = ["FAULTS", "LOSSES", "OF_HOLDINGS", "FaultTarget"]


class FaultTarget(Protocol):
    """What faults act on; see ``tools.simtest.run``. ``wall_offset_s``: how far the schedulers' clocks are off."""

    wall_offset_s: float

    @property
    def api(self) -> VirtualApi: ...
    @property
    def world(self) -> World: ...
    @property
    def members(self) -> Sequence[Member]: ...
    @property
    def moods(self) -> Sequence[Mood]: ...
    @property
    def holding(self) -> Sequence[str]: ...
    @property
    def size(self) -> int: ...
    @property
    def now(self) -> float: ...


Fault = Callable[[FaultTarget, random.Random, float], Awaitable[None]]
_RESET = ClusterError("connection reset")
_REFUSALS = (
    _RESET,
    ClusterError("500 Internal Server Error", 500, "InternalError"),
    ClusterError("503 Service Unavailable", 503, "ServiceUnavailable", 2.0),
    ClusterError("429 Too Many Requests", 429, "TooManyRequests", 1.0),
    ClusterError("504 Gateway Timeout", 504, "Timeout"),
    ClusterError("403 Forbidden", 403, "Forbidden"),
)
_POINTS = (
    "hint", "pre_enqueue", "pre_filter", "filter", "score", "reserve", "unreserve", "permit", "pre_bind", "post_bind",
)  # fmt: skip


#: Resources of volumes and devices, and the requests that write them.
_HELD = ("persistentvolumes", "persistentvolumeclaims", "resourceclaims")
_HELD_WRITES = ("PUT persistentvolumes", "PUT persistentvolumeclaims", "PUT resourceclaims", "PUT status")


def _is(*whats: str) -> Callable[[Sent], bool]:
    return lambda sent: sent.what in whats and "/leases" not in sent.path


def _requests(*whats: str, **how: object) -> Fault:
    """Return a fault that affects a share of some requests."""

    async def spoil(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
        share = rng.choice([0.2, 0.5, 0.9])
        rule = Rule(_is(*whats), share=share, **{"error": rng.choice(_REFUSALS), **how})  # type: ignore[arg-type]
        sim.api.network.rules.append(rule)
        await asyncio.sleep(seconds)
        if rule in sim.api.network.rules:
            sim.api.network.rules.remove(rule)

    return spoil


async def _bind_held(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    await _requests("POST binding", error=None, hold_s=rng.choice([0.5, 4.0, 60.0]))(sim, rng, seconds)


async def _bind_late(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    await _requests("POST binding", error=_RESET, late_s=rng.choice([0.2, 2.0, 8.0]))(sim, rng, seconds)


async def _everything_slow(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    rule = Rule(lambda sent: True, share=0.7, hold_s=rng.choice([0.3, 1.5]))
    sim.api.network.rules.append(rule)
    await asyncio.sleep(seconds)
    if rule in sim.api.network.rules:
        sim.api.network.rules.remove(rule)


async def _outage(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """No scheduler reaches the API server, and all watches break."""
    for member in sim.members:
        sim.api.network.cut_off(member.actor)
    await asyncio.sleep(rng.choice([1.0, 5.0, 30.0]))
    sim.api.network.down.clear()


async def _partition(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    member = rng.choice(sim.members)
    actor = member.actor
    sim.api.network.cut_off(actor)
    await asyncio.sleep(rng.choice([3.0, 12.0, 25.0]))
    sim.api.network.down.discard(actor)


async def _die(sim: FaultTarget, rng: random.Random, *, leaps: bool) -> None:
    """Stop the API server and restart it without the last writes, which clients may have seen in responses and watches."""
    begin, entries = sim.now, sim.api.recording.entries
    then, first = sim.api.store.version, len(entries)
    late = sim.api.network.links(rng.choice(["pods", "none", *(_HELD if sim.holding else ())]))
    for link in late:
        link.delay_s = 1.0
    least_s, binds = rng.choice([0.05, 0.5, 3.0]), list[int]()
    while sim.now < begin + least_s or (not binds and sim.now < begin + 10.0):
        await asyncio.sleep(0.05)
        binds = [one.version for one in entries[first:] if isinstance(one, WriteRecord) and _matters(one)]
    sim.api.network.die()
    await asyncio.sleep(rng.choice([0.0, 0.5, 5.0]))
    if not any(isinstance(one, Lost) for one in entries[first:]):  # otherwise another fault has stopped it already
        then = rng.choice([then, *(version - 1 for version in binds)])
        sim.api.go_back(then, sim.api.store.version + rng.choice([1, 1000]) if leaps else then)
    sim.world.look_again()
    sim.api.network.dead = False
    for link in late:
        link.heal()


def _matters(write: WriteRecord) -> bool:
    """Return True for a write that a scheduler relies on once it gets the response."""
    return write.verb == "POST binding" or (write.kind in HELD and write.actor != "world")


async def _writes_lost(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    end = sim.now + seconds
    while sim.now < end:
        await _die(sim, rng, leaps=True)
        await asyncio.sleep(rng.uniform(1.0, 15.0))


async def _back_in_time(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """Reuse resource versions. Clients cannot detect that, so restart the schedulers, as etcd's manual requires."""
    await _die(sim, rng, leaps=False)
    try:
        await asyncio.sleep(rng.choice([0.0, 1.0, 10.0]))
    finally:
        for member in sim.members:
            await member.kill()


# -- watches ------------------------------------------------------------------------------------------------------------


def _cuts(how: str) -> Fault:
    async def cut(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
        end = sim.now + seconds
        while sim.now < end:
            await asyncio.sleep(rng.uniform(0.1, 5.0))
            for link in sim.api.network.links():
                if rng.random() < 0.3:
                    link.cut(how)

    return cut


async def _swizzle(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """Stall watches one by one, and resume them in another order."""
    links = sim.api.network.links()
    rng.shuffle(links)
    for link in links:
        link.stalled = True
        await asyncio.sleep(rng.uniform(0, 1))
    rng.shuffle(links)
    for link in links:
        await asyncio.sleep(rng.uniform(0, 1))
        link.heal()


async def _silence(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for link in sim.api.network.links(rng.choice(["pods", "nodes"])):
        link.stalled = True
    await asyncio.sleep(rng.choice([5.0, 45.0]))
    for link in sim.api.network.links():
        link.heal()


async def _lost_events(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """Stall watches until their history has expired: only a list shows the missed events."""
    links = sim.api.network.links(rng.choice(["pods", "nodes", ""]))
    for link in links:
        link.stalled = True
    await asyncio.sleep(rng.uniform(1, 15))
    for link in links:
        link.stalled = False
        link.cut("expired")


async def _crowds_unseen(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """Create, bind and delete many pods while watches are stalled until their history expires: only a long list shows them."""
    end = sim.now + seconds
    while sim.now < end:
        links = sim.api.network.links(rng.choice(["pods", ""]))
        for link in links:
            link.stalled = True
        for _ in range(rng.randrange(5, 25)):
            rng.choice([_foreign_pod, _foreign_pod, _foreign_bind, _delete, _finish, _relabel, _node_resized])(sim, rng)
        await asyncio.sleep(rng.uniform(0.1, 3.0))
        for link in links:
            link.stalled = False
            link.cut("expired")
        await asyncio.sleep(rng.uniform(1, 8))


async def _twice(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for link in sim.api.network.links():
        link.twice = 0.5
    await asyncio.sleep(seconds)
    for link in sim.api.network.links():
        link.twice = 0.0


def _late(*plurals: str, collapses: bool = False) -> Fault:
    async def late(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
        for link in (one for plural in plurals for one in sim.api.network.links(plural)):
            link.delay_s, link.collapses = rng.choice([0.3, 2.0, 10.0]), collapses
        await asyncio.sleep(seconds)
        for link in (one for plural in plurals for one in sim.api.network.links(plural)):
            link.heal()

    return late


async def _lagging_lists(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    plural = rng.choice(["pods", "nodes"])
    end = sim.now + min(seconds, 20.0)
    while sim.now < end:
        sim.api.network.lagging[plural] = rng.randrange(1, 40)
        for link in sim.api.network.links(plural):
            link.cut("expired")
            link.delay_s = 3.0
        await asyncio.sleep(rng.uniform(1, 6))
    sim.api.network.lagging.pop(plural, None)
    for link in sim.api.network.links(plural):
        link.heal()


# -- the cluster --------------------------------------------------------------------------------------------------------


def _often(act: Callable[[FaultTarget, random.Random], None], least_s: float = 0.05, most_s: float = 2.0) -> Fault:
    """Return a fault that repeats an action at random intervals."""

    async def keep_on(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
        end = sim.now + seconds
        while sim.now < end:
            await asyncio.sleep(rng.uniform(least_s, most_s))
            act(sim, rng)

    return keep_on


def _a_pod(sim: FaultTarget, rng: random.Random) -> str:
    pods = sim.world.pods()
    return str(rng.choice(pods)["metadata"]["name"]) if pods else "missing"


def _a_node(sim: FaultTarget, rng: random.Random) -> str:
    return f"n{rng.randrange(sim.size)}"


def _recreate(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.recreate_pod(_a_pod(sim, rng))


def _delete(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.delete_pod(_a_pod(sim, rng), grace=rng.choice([None, 0]))


def _finish(sim: FaultTarget, rng: random.Random) -> None:
    placed = [pod for pod in sim.world.pods() if pod["spec"].get("nodeName")]
    if placed:
        sim.world.finish(rng.choice(placed)["metadata"]["name"])


def _relabel(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.change_pod(_a_pod(sim, rng), labels={"app": rng.choice(["web", "db", "batch"])})


def _ungate(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.ungate(_a_pod(sim, rng))


def _node_goes(sim: FaultTarget, rng: random.Random) -> None:
    name = _a_node(sim, rng)
    sim.world.delete_node(name)
    if rng.random() < 0.7:
        sim.world.node(name, rng.choice([1, 2, 4]), rng.choice(["a", "b"]))


def _node_resized(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.node(_a_node(sim, rng), rng.choice([1, 2, 4, 6]))


def _cordon(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.node(_a_node(sim, rng), 4, unschedulable=rng.random() < 0.4)


def _taint(sim: FaultTarget, rng: random.Random) -> None:
    taint = {"key": "broken", "effect": rng.choice(["NoSchedule", "NoExecute"])}
    sim.world.node(_a_node(sim, rng), 4, taints=[taint] if rng.random() < 0.5 else [])


def _foreign_pod(sim: FaultTarget, rng: random.Random) -> None:
    spec = {"nodeName": _a_node(sim, rng), "schedulerName": "other-scheduler"}
    sim.world.pod("", rng.choice(["500m", "1", "2"]), actor="other", **spec)


def _foreign_bind(sim: FaultTarget, rng: random.Random) -> None:
    waiting = [pod["metadata"]["name"] for pod in sim.world.pods() if not pod["spec"].get("nodeName")]
    if waiting:
        sim.world.bind(rng.choice(waiting), _a_node(sim, rng))


def _important(sim: FaultTarget, rng: random.Random) -> None:
    sim.world.pod("", rng.choice(["1", "2", "3"]), priorityClassName=rng.choice(["middle", "high"]))


def _holding_changed(sim: FaultTarget, rng: random.Random) -> None:
    """Change a field that no plugin reads, so that concurrent writes get a conflict."""
    path = rng.choice(_held_paths(sim))
    beat = {"metadata": {"annotations": {"beat": str(rng.randrange(10**6))}}}
    sim.api.do("PATCH", path, beat, media_type="application/merge-patch+json")


def _claim_deleted(sim: FaultTarget, rng: random.Random) -> None:
    sim.api.do("DELETE", rng.choice([path for path in _held_paths(sim) if "claims/" in path] or ["/api/v1/missing"]))


def _held_paths(sim: FaultTarget) -> list[str]:
    found = []
    for path in sim.world.holdings():
        found += [f"{path}/{one['metadata']['name']}" for one in sim.api.items(path)]
    return found or ["/api/v1/missing"]


async def _storm(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """Send many irrelevant updates at once."""
    for _ in range(300):
        sim.world.touch_node(_a_node(sim, rng))
        if rng.random() < 0.05:
            await asyncio.sleep(0.01)


# -- plugins and processes ----------------------------------------------------------------------------------------------


async def _raises(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for mood in sim.moods:
        mood.raises = {point: rng.choice([0.0, 0.1, 0.4]) for point in _POINTS}
    await asyncio.sleep(seconds)


async def _nonsense(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for mood in sim.moods:
        mood.nonsense = {point: rng.choice([0.0, 0.1, 0.4]) for point in _POINTS}
    await asyncio.sleep(seconds)


async def _waits(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for mood in sim.moods:
        mood.waits, mood.refuses = 0.5, 0.1
    end = sim.now + seconds
    while sim.now < end:
        await asyncio.sleep(rng.uniform(0.1, 4.0))
        for member in sim.members:
            for waiting in list(member.scheduler.waiting()) if member.scheduler is not None else ():
                for plugin in waiting.pending if rng.random() < 0.5 else ():
                    waiting.allow(plugin)
                if rng.random() < 0.3:
                    waiting.reject("Unruly", "changed its mind")


async def _slow_pre_bind(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for mood in sim.moods:
        mood.calls, mood.calls_fail = 0.5, rng.choice([0.0, 0.3])
    await asyncio.sleep(seconds)


async def _preempted_while_preparing(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    """Free a node, create small pods with a slow PreBind, and then a large pod that preempts them.

    Writes of PreBind are slow as well.
    """
    for mood in sim.moods:
        mood.calls, mood.calls_fail = rng.choice([0.1, 0.8]), rng.choice([0.0, 0.2])
    slow = Rule(_is("POST resourceclaims"), share=0.7, hold_s=rng.choice([0.5, 2.0]), arrives=True)
    sim.api.network.rules.append(slow)
    end = sim.now + seconds
    while sim.now < end:
        name = _a_node(sim, rng)
        sim.world.node(name, 4)
        for pod in sim.world.pods():
            if pod["spec"].get("nodeName") == name:
                sim.world.delete_pod(pod["metadata"]["name"], grace=0)
        for _ in range(4):
            sim.world.pod("", "1", priorityClassName="low")
        await asyncio.sleep(rng.uniform(0.1, 2.0))
        sim.world.pod("", "4", priorityClassName="high")
        await asyncio.sleep(rng.uniform(0.5, 3.0))
    if slow in sim.api.network.rules:
        sim.api.network.rules.remove(slow)


async def _killed(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    for _ in range(rng.randrange(1, 4)):
        await asyncio.sleep(rng.uniform(0.5, 8.0))
        await rng.choice(sim.members).kill()


async def _terminated(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    await asyncio.sleep(rng.uniform(0.5, 8.0))
    await rng.choice(sim.members).terminate()


async def _lease_stolen(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
    if rng.random() < 0.4:
        sim.api.do("DELETE", path)
        return
    patch = {"spec": {"holderIdentity": rng.choice(["thief", "", "\U0001f980"]), "leaseDurationSeconds": rng.choice([1, 15])}}
    sim.api.do("PATCH", path, patch, media_type="application/merge-patch+json")


async def _clock_jumps(sim: FaultTarget, rng: random.Random, seconds: float) -> None:
    end = sim.now + seconds
    while sim.now < end:
        await asyncio.sleep(rng.uniform(0.5, 5.0))
        sim.wall_offset_s = rng.choice([-3600.0, 3600.0, -60.0, 0.0, 86400.0])


FAULTS: dict[str, Fault] = {
    "bind refused": _requests("POST binding"),
    "bind's reply lost": _requests("POST binding", error=_RESET, after=True),
    "bind answered 504 but done": _requests("POST binding", error=ClusterError("504", 504, "Timeout"), after=True),
    "bind held": _bind_held,
    "bind done late": _bind_late,
    "reading pods fails": _requests("GET pods"),
    "lists fail": _requests("GET nodes", "GET pods", "WATCH pods", "WATCH nodes"),
    "status patches fail": _requests("PATCH status"),
    "status patches slow": _requests("PATCH status", error=None, hold_s=8.0),
    "deletes fail": _requests("DELETE pods"),
    "events fail": _requests("POST events", "PATCH events"),
    "events slow": _requests("POST events", "PATCH events", error=None, hold_s=10.0),
    "everything slow": _everything_slow,
    "outage": _outage,
    "partition": _partition,
    "last writes lost": _writes_lost,
    "last writes lost, versions given out again": _back_in_time,
    "watches closed": _cuts(""),
    "watches broken": _cuts("connection reset"),
    "watches garbled": _cuts("garbled"),
    "watches expired": _cuts("expired"),
    "watches swizzled": _swizzle,
    "watches silent": _silence,
    "events lost": _lost_events,
    "crowds unseen": _crowds_unseen,
    "events twice": _twice,
    "pods late": _late("pods"),
    "nodes late": _late("nodes"),
    "namesakes collapsed": _late("pods", collapses=True),
    "lists lag": _lagging_lists,
    "pods made again": _often(_recreate),
    "pods deleted": _often(_delete),
    "pods end": _often(_finish),
    "pods relabelled": _often(_relabel),
    "gates lifted": _often(_ungate),
    "nodes go": _often(_node_goes, 1.0, 8.0),
    "nodes resized": _often(_node_resized, 0.5, 5.0),
    "nodes cordoned": _often(_cordon, 0.2, 3.0),
    "nodes tainted": _often(_taint, 0.2, 3.0),
    "foreign pods": _often(_foreign_pod, 0.5, 5.0),
    "foreign binds": _often(_foreign_bind, 0.2, 3.0),
    "important pods": _often(_important, 0.5, 4.0),
    "event storm": _storm,
    "plugins raise": _raises,
    "plugins talk nonsense": _nonsense,
    "permit waits": _waits,
    "pre-bind slow": _slow_pre_bind,
    "preparing pods preempted": _preempted_while_preparing,
    "schedulers killed": _killed,
    "schedulers terminated": _terminated,
    "lease stolen": _lease_stolen,
    "clock jumps": _clock_jumps,
    "holdings not written": _requests(*_HELD_WRITES),
    "holdings' replies lost": _requests(*_HELD_WRITES, error=_RESET, after=True),
    "holdings late": _late(*_HELD),
    "holdings changed": _often(_holding_changed, 0.05, 1.0),
    "claims deleted": _often(_claim_deleted, 1.0, 8.0),
}
#: Faults in which the API server loses accepted writes.
LOSSES = frozenset(["last writes lost", "last writes lost, versions given out again"])
#: Faults that need volumes or devices.
OF_HOLDINGS = frozenset(
    ["holdings not written", "holdings' replies lost", "holdings late", "holdings changed", "claims deleted"]
)
