"""A cluster in virtual time that several schedulers share: the embedded store, watches, kubelets and controllers.

The store executes the writes one after the other, and each takes the same time: that is the whole API server, with its
database. Watches deliver every change to every scheduler after a delay. A kubelet refuses a pod for which its node has no
room (``OutOfcpu``), and a controller replaces the pod; or the store refuses such a binding, if it is given that check.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from moorage.api.core import Pod
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.documents.statuses import ApiError
from moorage.rules.store.store import Store
from moorage.rules.store.subresources import bind
from moorage.rules.store.watches import StoreChange

__all__ = ["HOPS", "SHARD", "Agenda", "Ask", "Change", "Limits", "Room", "SharedCluster"]

#: Annotations of a pod that was handed over: the scheduler that has it now, and how often it was handed over.
SHARD: Final = "moorage.dev/shard"
HOPS: Final = "moorage.dev/hops"
_PODS: Final = served("pods")
_EPOCH: Final = 1_790_000_000.0
#: Writes that follow a placed pod: its event, and two status updates of the kubelet.
_EVENT_WRITES, _KUBELET_WRITES = 1, 2


class Agenda:
    """Calls in the order of their virtual times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Make a call at a time that is not past."""
        self._serial += 1
        heapq.heappush(self._calls, (max(time_s, self.now), self._serial, call))

    def next(self, until_s: float) -> bool:
        """Make the next call. Return False if there is none until then."""
        if not self._calls or self._calls[0][0] > until_s:
            return False
        self.now, _, call = heapq.heappop(self._calls)
        call()
        return True


@dataclass(frozen=True, slots=True)
class Limits:
    """``writes_per_s`` of the API server, the delay of watches, and that of a request or an answer on the network."""

    writes_per_s: float
    watch_delay_s: float
    network_s: float = 0.0005


class Ask(NamedTuple):
    """A pod to create, and what it requests."""

    document: Document
    cpu_milli: int
    memory_mib: int


@dataclass(slots=True)
class Room:
    """What is free on a node."""

    cpu_milli: int
    memory_mib: int
    pods: int

    def fits(self, ask: Ask) -> bool:
        return self.cpu_milli >= ask.cpu_milli and self.memory_mib >= ask.memory_mib and self.pods > 0

    def take(self, ask: Ask) -> None:
        self.cpu_milli -= ask.cpu_milli
        self.memory_mib -= ask.memory_mib
        self.pods -= 1


class Change(NamedTuple):
    """A version of a pod, and when watches deliver it."""

    at_s: float
    pod: Pod


class SharedCluster:
    """The API server, its watches and the kubelets.

    ``room``         free room of each node; ``refuses``: the store refuses a binding without room, so that no kubelet has to
    ``changes``      what watches deliver, in order; ``on_change`` is called for each
    ``placed``       UID → when the binding was stored that its kubelet accepted
    ``node_of``, ``asks``, ``since``   UID → its node, its requests, and when the first pod in its place was created
    """

    def __init__(self, agenda: Agenda, limits: Limits, room: Mapping[str, Room], *, refuses: bool) -> None:
        self.agenda, self.limits, self.room, self.refuses = agenda, limits, room, refuses
        self.changes: list[Change] = []
        self.on_change: Callable[[float], None] = lambda at_s: None
        self.asks: dict[str, Ask] = {}
        self.since: dict[str, float] = {}
        self.placed: dict[str, float] = {}
        self.node_of: dict[str, str] = {}
        self.conflicts = self.handed_over = self.writes = self.replaced = 0
        self._write_s = 1 / limits.writes_per_s
        self._free_at_s = 0.0
        self._created = 0
        #: The spec's identity → the spec, which keeps the identity, and the admitted pod.
        self._bodies: dict[int, tuple[Document, bytes]] = {}
        self._decode = msgspec.json.Decoder(Pod).decode
        self._store = Store(lambda: _EPOCH + agenda.now, Random(0), b"shards")
        self._store.follow(self._followed)

    # -- the API server ----------------------------------------------------------------------------------------------------

    def write(self, call: Callable[[], None]) -> None:
        """Queue a write that arrives now; ``call`` executes it."""
        self.agenda.at(self._busy_until(1), call)

    def burden(self, writes: int) -> None:
        """Queue writes whose content nothing here reads."""
        self._busy_until(writes)

    def _busy_until(self, writes: int) -> float:
        self.writes += writes
        self._free_at_s = max(self._free_at_s, self.agenda.now) + writes * self._write_s
        return self._free_at_s

    def _followed(self, kind: ServedKind, change: StoreChange) -> None:
        if kind is _PODS and not change.gone:
            at_s = self.agenda.now + self.limits.watch_delay_s
            self.changes.append(Change(at_s, self._decode(change.after.body)))
            self.on_change(at_s)

    # -- pods --------------------------------------------------------------------------------------------------------------

    def create(self, ask: Ask, since_s: float | None = None) -> None:
        """Store a pod, in place of an earlier one if ``since_s`` says when that was created."""
        self._created += 1
        uid = f"{self._created:08x}-0000-4000-8000-{crc32(b'%d' % self._created):012x}"
        document = self._admitted(ask)
        document["metadata"] |= {"name": ask.document["metadata"]["name"], "uid": uid}
        self._store.adopt(_PODS, document)
        self.asks[uid] = ask
        self.since[uid] = self.agenda.now if since_s is None else since_s

    def _admitted(self, ask: Ask) -> Document:
        """Return the pod as the store admits it. Copies share their spec, and one of them is admitted for all."""
        spec = ask.document["spec"]
        if id(spec) not in self._bodies:
            document: Document = msgspec.json.decode(msgspec.json.encode(ask.document))
            self._bodies[id(spec)] = spec, self._store.create(_PODS, "default", document, dry_run=True).body
        admitted: Document = msgspec.json.decode(self._bodies[id(spec)][1])
        return admitted

    def bind(self, pod: Pod, node: str, answer: Callable[[str | None], None]) -> None:
        """Bind a pod, and answer with the error, if any."""
        self.write(lambda: self._bind(pod, node, answer))

    def _bind(self, pod: Pod, node: str, answer: Callable[[str | None], None]) -> None:
        uid, error = pod.metadata.uid, None
        fits = self.room[node].fits(self.asks[uid])
        if self.refuses and not fits:
            self.conflicts += 1
            error = f"node {node} has no room for the pod"
        else:
            error = self._stored_binding(pod, node)
        if error is None:
            self.agenda.at(self.agenda.now + self.limits.watch_delay_s, lambda: self._admit(uid, pod.metadata.name))
            self._assign(uid, node, fits)
        self.agenda.at(self.agenda.now + self.limits.network_s, lambda: answer(error))

    def _stored_binding(self, pod: Pod, node: str) -> str | None:
        metadata = {"name": pod.metadata.name, "uid": pod.metadata.uid}
        try:
            bind(self._store, "default", pod.metadata.name, {"metadata": metadata, "target": {"kind": "Node", "name": node}})
        except ApiError as error:
            return str(error)
        return None

    def _assign(self, uid: str, node: str, fits: bool) -> None:
        self.burden(_EVENT_WRITES)
        if fits:
            self.room[node].take(self.asks[uid])
            self.placed[uid], self.node_of[uid] = self.agenda.now, node

    # -- kubelets and controllers ------------------------------------------------------------------------------------------

    def _admit(self, uid: str, name: str) -> None:
        """Let the kubelet start the pod, or refuse it for want of room, in the order of the bindings."""
        if uid in self.placed:
            self.burden(_KUBELET_WRITES)
            return
        self.conflicts += 1
        self.write(lambda: self._fail(uid, name))

    def _fail(self, uid: str, name: str) -> None:
        self._amend(name, lambda document: document["status"].update(phase="Failed", reason="OutOfcpu"))
        self.agenda.at(self.agenda.now + self.limits.watch_delay_s, lambda: self.write(lambda: self._replace(uid)))

    def _replace(self, uid: str) -> None:
        self.replaced += 1
        ask = self.asks.pop(uid)
        metadata = {**ask.document["metadata"], "name": f"again-{self.replaced}"}
        self.create(ask._replace(document={**ask.document, "metadata": metadata}), self.since[uid])

    # -- handing over ------------------------------------------------------------------------------------------------------

    def hand_over(self, pod: Pod, shard: int) -> None:
        """Give a pending pod to another scheduler, by annotations."""
        self.write(lambda: self._handed_over(pod, shard))

    def _handed_over(self, pod: Pod, shard: int) -> None:
        self.handed_over += 1
        more = {SHARD: str(shard), HOPS: str(int(pod.metadata.annotations.get(HOPS, "0")) + 1)}
        self._amend(pod.metadata.name, lambda document: document["metadata"].setdefault("annotations", {}).update(more))

    def _amend(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        record: Record = self._store.get(_PODS, "default", name)
        document = record.document()
        change(document)
        self._store.put(_PODS, record, document)
