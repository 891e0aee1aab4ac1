"""The network between schedulers and the API server, and its faults.

A ``Rule`` affects requests. A ``Link`` is one watched resource of one scheduler; its events can be cut off, delayed, repeated,
or collapsed so that a delete and a new object of the same name look like one change. Without rules everything is delivered.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from moorage.errors import ClusterError

__all__ = ["Link", "Network", "Rule", "Sent"]

_EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}
_OPENING = ("WATCH",)
#: After how many seconds the system gives up a connection on which nothing arrives; see ``keep_alive``.
_DEAD_S = 45.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. ``plural`` is its resource."""

    actor: str
    method: str
    path: str
    query: dict[str, str]
    body: bytes
    media_type: str

    @property
    def plural(self) -> str:
        parts = self.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if not rest:  # what a group and version has
            return ""
        if rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        return rest[0]

    @property
    def what(self) -> str:
        """``METHOD resource`` or ``METHOD subresource``, for example ``POST binding`` or ``GET pods``."""
        last = self.path.rpartition("/")[2]
        return f"{self.method} {last if last in {'binding', 'status'} else self.plural}"


@dataclass
class Rule:
    """A fault for requests that ``takes`` accepts, for a ``share`` of them, and at most ``times``.

    ``hold_s``: delay before the server; with ``arrives`` the request is executed even if its sender gives up meanwhile.
    ``error``: the response, instead of executing the request, or ``after`` executing it. ``late_s``: the connection breaks,
    and the request is executed that much later.
    """

    takes: Callable[[Sent], bool]
    error: ClusterError | None = None
    after: bool = False
    hold_s: float = 0.0
    arrives: bool = False
    late_s: float | None = None
    share: float = 1.0
    times: int = 1_000_000


@dataclass
class Network:
    """All links and rules. ``down``: the actors that cannot reach the server."""

    rng: random.Random
    clock: Callable[[], float]
    latency_s: float = 0.002
    rules: list[Rule] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    #: No actor can reach the API server.
    dead: bool = False
    #: Resource → lists are answered with the state of so many versions ago.
    lagging: dict[str, int] = field(default_factory=dict)
    #: Whether watches may start with an initial list; never for lagging lists.
    streams: bool = True
    #: The number of requests affected by rules.
    spoiled: int = 0
    _links: dict[tuple[str, str], Link] = field(default_factory=dict)
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    _deaths: int = 0

    def link(self, actor: str, plural: str) -> Link:
        """Return the link of an actor for a resource; the same one for each of its watches."""
        key = actor, plural
        if key not in self._links:
            self._links[key] = Link(self.rng, self.clock)
        return self._links[key]

    def links(self, plural: str = "") -> list[Link]:
        return [link for (_, of), link in self._links.items() if plural in {"", of}]

    def heal(self) -> None:
        """Remove all faults."""
        self.rules.clear()
        self.down.clear()
        self.dead = False
        self.lagging.clear()
        for link in self._links.values():
            link.heal()

    def cut_off(self, actor: str) -> None:
        """Disconnect an actor, and break its watches."""
        self.down.add(actor)
        for (whose, _), link in self._links.items():
            if whose == actor:
                link.cut("connection reset")

    def die(self) -> None:
        """Stop the API server: requests in flight are lost, all watches break, and no actor can reach it."""
        self.dead = True
        self._deaths += 1
        for task in self._late:
            task.cancel()
        for link in self._links.values():
            link.cut("connection reset")

    async def open(self, sent: Sent) -> None:
        """Open a watch, or reject it."""
        if sent.query.get("sendInitialEvents") and (not self.streams or sent.plural in self.lagging):
            raise ClusterError("sendInitialEvents is forbidden", 422, "Invalid")
        await self.carry(sent, lambda: b"", 0)

    async def carry(self, sent: Sent, carry_out: Callable[[], bytes], version: int) -> bytes:
        """Deliver a request and return its response.

        Raises  ClusterError
        """
        deaths = self._deaths
        await asyncio.sleep(self.latency_s)
        self._check_up(sent, deaths)
        rule = self._rule(sent)
        if rule is not None and rule.hold_s:
            end = self.clock() + rule.hold_s
            try:
                await asyncio.sleep(rule.hold_s)
            except asyncio.CancelledError:
                if rule.arrives:
                    self._carry_out_later(end - self.clock(), carry_out)
                raise
            self._check_up(sent, deaths)
        if rule is not None and rule.late_s is not None:
            self._carry_out_later(rule.late_s, carry_out)
        if rule is not None and rule.error is not None and not rule.after:
            raise copy(rule.error)  # a reused exception object would collect tracebacks
        back = self.lagging.get(sent.plural, 0)
        if back and sent.method == "GET" and sent.path.endswith(sent.plural) and "continue" not in sent.query:
            sent.query["resourceVersion"], sent.query["resourceVersionMatch"] = str(max(1, version - back)), "Exact"
        body = carry_out()
        if rule is not None and rule.error is not None:
            raise copy(rule.error)
        self._check_up(sent, deaths)
        return body

    def _carry_out_later(self, late_s: float, carry_out: Callable[[], bytes]) -> None:
        task = asyncio.ensure_future(_after(late_s, carry_out))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _check_up(self, sent: Sent, deaths: int) -> None:
        if self.dead or self._deaths != deaths or sent.actor in self.down:
            raise ClusterError(f"{sent.method} {sent.path}: connection refused")

    def _rule(self, sent: Sent) -> Rule | None:
        for rule in self.rules:
            if rule.times > 0 and rule.takes(sent) and (rule.share >= 1.0 or self.rng.random() < rule.share):
                rule.times -= 1
                self.spoiled += 1
                return rule
        return None


async def _after(late_s: float, carry_out: Callable[[], bytes]) -> None:
    await asyncio.sleep(late_s)
    try:
        carry_out()
    except ClusterError:
        return


class Link:
    """The watch of one actor on one resource, across all of its streams."""

    def __init__(self, rng: random.Random, clock: Callable[[], float]) -> None:
        self._rng, self._clock = rng, clock
        self._lines: deque[tuple[float, bytes | None]] = deque()
        self._news = asyncio.Event()
        self._cut: str | None = None
        #: Delay of events, which keeps their order.
        self.delay_s = 0.0
        #: No events are delivered while the connection stays open.
        self.stalled = False
        #: The share of events that are delivered twice.
        self.twice = 0.0
        #: A delete and a new object of the same name within the delay are delivered as one change.
        self.collapses = False

    def heal(self) -> None:
        """Deliver events again. Stalled events are delivered by the next stream, as on a new connection."""
        if self.stalled:
            self.cut("")
        self.delay_s, self.stalled, self.twice, self.collapses = 0.0, False, 0.0, False
        self._news.set()

    def cut(self, how: str) -> None:
        """End the stream: "" cleanly, "expired" with a 410, "garbled" in the middle of a line, otherwise with that error."""
        self._cut = how
        self._news.set()

    def begin(self) -> Link:
        """Start a new stream and drop what is left of the previous one."""
        self._lines.clear()
        self._cut = None
        return self

    def put(self, line: bytes | None) -> None:
        self._lines.append((self._clock(), line))
        self._news.set()

    async def lines(self, idle_s: float) -> AsyncIterator[list[bytes]]:
        """Yield lines as they arrive, one or more at a time; the stream ends after ``idle_s`` without one.

        A connection that delivers nothing any more is found dead sooner, as TCP does by asking the peer.
        """
        silent_since, is_dead = self._clock(), False
        while True:
            if self._cut is not None:
                line = self._end()
                if line is None:
                    return
                yield [line]
            ready = self._ready()
            arrived: list[bytes] = []
            for line in ready:
                if line is None:
                    break
                arrived += [line, line] if self._rng.random() < self.twice else [line]
            if arrived:
                yield arrived
            if None in ready:
                return
            if ready:
                silent_since, is_dead = self._clock(), False
                continue
            is_dead = is_dead or self.stalled
            left_s = silent_since + (min(idle_s, _DEAD_S) if is_dead else idle_s) - self._clock()
            if left_s <= 0 and is_dead:
                raise ClusterError("watch: the connection is dead")
            if left_s <= 0:
                return
            await self._wait(left_s)

    def _end(self) -> bytes | None:
        how, self._cut = self._cut, None
        if how == "expired":
            return json.dumps({"type": "ERROR", "object": _EXPIRED}).encode()
        if how == "garbled":
            return b'{"type":"MODIFIED","object":{"metadata":{"name":"x","na'
        if how:
            raise ClusterError(f"watch: {how}")
        return None

    async def _wait(self, left_s: float) -> None:
        self._news.clear()
        due = self._lines[0][0] + self.delay_s if self._lines and not self.stalled else float("inf")
        try:
            async with asyncio.timeout(max(0.001, min(left_s, due - self._clock()))):
                await self._news.wait()
        except TimeoutError:
            return

    def _ready(self) -> list[bytes | None]:
        """Return the lines that are due."""
        ready: list[bytes | None] = []
        while not self.stalled and self._lines and self._lines[0][0] + self.delay_s <= self._clock() + 1e-9:
            ready.append(self._lines.popleft()[1])
        if not (self.collapses and ready):
            return ready
        ready += [line for _, line in self._lines]
        self._lines.clear()
        return _collapsed(ready)


def _collapsed(lines: list[bytes | None]) -> list[bytes | None]:
    """Merge a delete and the next object of the same name into one change, as only a list could."""
    merged: list[bytes | None] = []
    gone: dict[str, int] = {}
    for line in lines:
        event: Any = json.loads(line) if line is not None else {}
        key = _name_of(event)
        if event.get("type") == "DELETED":
            gone[key] = len(merged)
        elif event.get("type") == "ADDED" and key in gone:
            merged[gone.pop(key)] = b""
            merged.append(json.dumps({**event, "type": "MODIFIED"}).encode())
            continue
        merged.append(line)
    return [line for line in merged if line != b""]


def _name_of(event: Any) -> str:
    metadata = event.get("object", {}).get("metadata", {})
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
