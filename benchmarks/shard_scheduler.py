"""One of several schedulers that share a cluster, in virtual time: the shipped engine, and what its process would spend.

The process does one thing at a time. A turn reads what watches and answers delivered, makes one attempt, and sends what
follows from it; then it is busy for as long as that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from zlib import crc32

from benchmarks.shard_world import HOPS, SHARD, Agenda, Change, SharedCluster
from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_scheduler
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Done, Gone, Phase, Seen, Work
from moorage.core.engine.outbox import Decided
from moorage.framework.effects import BindPod
from moorage.live.runtime.loop import USUAL

__all__ = ["SHARINGS", "Costs", "Shard", "Sharing"]

#: The name of a way to share → what it does.
SHARINGS = {
    "one": "one scheduler",
    "pods": "pods by hash; every scheduler sees all nodes and pods",
    "nodes": "nodes and pods by hash; a pod that does not fit goes to the next scheduler",
    "pools": "a pool of nodes and a scheduler name for each scheduler",
}


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU time of a scheduler's process, in microseconds.

    ``read_us``    decode an event of a watch, or take note of an own pod's
    ``place_us``   count a pod that another scheduler placed
    ``decide_us``  queue, decision and assumed pod
    ``write_us``   send a binding with its event, or a failure, and read the answers
    """

    read_us: float
    place_us: float
    decide_us: float
    write_us: float


#: Status updates of a placed pod that a kubelet sends. Watches deliver them to every scheduler.
_UPDATES = 2


@dataclass(frozen=True, slots=True)
class Sharing:
    """How ``count`` schedulers share a cluster: see ``SHARINGS``."""

    name: str
    count: int

    @property
    def hands_over(self) -> bool:
        return self.name == "nodes"

    def sees(self, index: int, node: str) -> bool:
        """Return whether a scheduler follows a node and its pods."""
        return self.name != "nodes" or crc32(node.encode()) % self.count == index

    def home(self, pod: Pod) -> int:
        """Return the scheduler that a pending pod belongs to."""
        if self.name == "pools":
            return int(pod.spec.scheduler_name.rpartition("-")[2])
        held = pod.metadata.annotations.get(SHARD) if self.hands_over else None
        return crc32(pod.metadata.uid.encode()) % self.count if held is None else int(held)

    def configuration(self, index: int) -> bytes | None:
        """Return the configuration document of a scheduler; None for the default."""
        if self.name != "pools":
            return None
        head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        return f"{head}profiles:\n- schedulerName: pool-{index}\n".encode()


class Shard:
    """A scheduler with its own engine. Call ``wake`` when a watch will deliver something.

    ``busy_s``: virtual seconds of work; ``attempts``: decisions.
    """

    def __init__(self, index: int, sharing: Sharing, cluster: SharedCluster, costs: Costs) -> None:
        self.index, self.busy_s, self.attempts = index, 0.0, 0
        loaded = load_source(ConfigSource(sharing.configuration(index)))
        self.scheduler, _ = build_scheduler(loaded, Cycle(index))
        self._sharing, self._cluster, self._costs = sharing, cluster, costs
        self._agenda: Agenda = cluster.agenda
        self._read = self._in_flight = 0
        self._answers: list[Done] = []
        self._mine: set[str] = set()
        self._moving: set[str] = set()
        self._free_at_s = 0.0
        self._turn_at_s: float | None = None

    def load(self, objects: Iterable[Node | Pod]) -> None:
        """Take note of the nodes and placed pods that exist from the start."""
        for obj in objects:
            node = obj.name if isinstance(obj, Node) else obj.spec.node_name
            if self._sharing.sees(self.index, node):
                self.scheduler.observe(Seen(obj), 0.0)

    # -- turns -------------------------------------------------------------------------------------------------------------

    def wake(self, at_s: float) -> None:
        """Make a turn at this time, or when the process is free after it."""
        at_s = max(at_s, self._free_at_s)
        if self._turn_at_s is None or at_s < self._turn_at_s:
            self._turn_at_s = at_s
            self._agenda.at(at_s, lambda: self._turn(at_s))

    def _turn(self, at_s: float) -> None:
        if self._turn_at_s != at_s:
            return  # an earlier one took its place
        self._turn_at_s = None
        now = self._agenda.now
        spent_us = self._take_in(now)
        attempted = self._in_flight < USUAL.in_flight and self.scheduler.step(now)
        if attempted:
            self.attempts += 1
            spent_us += self._costs.decide_us
        spent_us = self._deliver(now, spent_us)
        self.busy_s += spent_us / 1e6
        self._free_at_s = now + spent_us / 1e6
        self._plan(attempted)

    def _plan(self, attempted: bool) -> None:
        if attempted or self._answers:
            self.wake(self._free_at_s)
        if self._read < len(self._cluster.changes):
            self.wake(self._cluster.changes[self._read].at_s)
        due_s = self.scheduler.next_deadline()
        if due_s is not None and self._in_flight < USUAL.in_flight:
            self.wake(due_s)

    # -- what arrives ------------------------------------------------------------------------------------------------------

    def _take_in(self, now: float) -> float:
        answers, self._answers = self._answers, []
        for answer in answers:
            self._in_flight -= 1
            self.scheduler.observe(answer, now)
        changes, spent_us = self._cluster.changes, 0.0
        while self._read < len(changes) and changes[self._read].at_s <= now:
            spent_us += self._apply(changes[self._read], now)
            self._read += 1
        return spent_us

    def _apply(self, change: Change, now: float) -> float:
        pod, costs = change.pod, self._costs
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node:
            self._pending(pod, now)
            return costs.read_us
        mine = uid in self._mine
        self._mine.discard(uid)
        self._moving.discard(uid)
        if mine or self._sharing.sees(self.index, node):
            self.scheduler.observe(Seen(pod), now)
            foreign_us = 0.0 if mine or pod.status.phase in ENDED_PHASES else costs.place_us
            return (1 + _UPDATES) * costs.read_us + foreign_us
        return (1 + _UPDATES) * costs.read_us

    def _pending(self, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        if self._sharing.home(pod) == self.index:
            self._mine.add(uid)
            self.scheduler.observe(Seen(pod), now)
        elif uid in self._mine:
            self._mine.discard(uid)
            self._moving.discard(uid)
            self.scheduler.observe(Gone(pod), now)

    # -- what leaves -------------------------------------------------------------------------------------------------------

    def _deliver(self, now: float, spent_us: float) -> float:
        for output in self.scheduler.take():
            if isinstance(output, Work) and output.phase is Phase.BIND:
                spent_us += self._costs.write_us
                self._send(output, now + spent_us / 1e6)
            elif isinstance(output, Work) and output.phase.is_answered:
                raise ValueError(f"no workload here leads to {output.phase}")
            elif isinstance(output, Decided) and output.decision.node is None:
                spent_us += self._costs.write_us
                self._report(output.decision.pod.pod, now + spent_us / 1e6)
        return spent_us

    def _send(self, work: Work, at_s: float) -> None:
        (effect,) = work.effects
        assert isinstance(effect, BindPod)
        pod, node = effect.pod.pod, effect.node
        self._in_flight += 1

        def answer(error: str | None) -> None:
            self._answers.append(Done(work.ticket, error, -1 if error is None else 0))
            self.wake(self._agenda.now)

        self._agenda.at(at_s + self._cluster.limits.network_s, lambda: self._cluster.bind(pod, node, answer))

    def _report(self, pod: Pod, at_s: float) -> None:
        """Hand over a pod that fits on none of our nodes; write why, if no other scheduler is left."""
        uid, arrives_s = pod.metadata.uid, at_s + self._cluster.limits.network_s
        left = self._sharing.hands_over and int(pod.metadata.annotations.get(HOPS, "0")) < self._sharing.count - 1
        send: Callable[[], None]
        if not left:
            send = lambda: self._cluster.burden(2)  # noqa: E731
        elif uid in self._moving:
            return
        else:
            self._moving.add(uid)
            send = lambda: self._cluster.hand_over(pod, (self.index + 1) % self._sharing.count)  # noqa: E731
        self._agenda.at(arrives_s, send)
