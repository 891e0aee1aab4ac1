"""The outcome of a drain, as values for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from moorage.api.core import ENDED_PHASES, Object, ReplicationController
from moorage.api.workloads import ReplicaSet, StatefulSet
from moorage.laboratory.drain.drain_run import DrainRun, NodeTurn
from moorage.laboratory.drain.kubectl_filters import DrainVerdict, refusals_as_kubectl
from moorage.laboratory.drain.virtual_drain import DENIED, TWO_BUDGETS, Evicting
from moorage.report.drain_report import DrainedNode, DrainedPod, RefusedPod
from moorage.simulator.owners import controller_of, controller_title
from moorage.simulator.pod_records import PodRecord, State

_OWNERS: Final[Mapping[str, type[Object]]] = {
    "ReplicaSet": ReplicaSet, "ReplicationController": ReplicationController, "StatefulSet": StatefulSet,
}  # fmt: skip


class DrainOutcome(NamedTuple):
    """The fields of ``DrainReport`` that follow from a run, and the controllers of evicted pods that are not in the input."""

    fields: Mapping[str, Any]
    absent_owners: list[str]


@dataclass
class DrainFindings:
    """Reads the outcome of a drain while its transaction is open."""

    run: DrainRun

    def __post_init__(self) -> None:
        #: All evictions by the UID of their pod: a replacement may be evicted again.
        self._evictions = {one.uid: one for turn in self.run.turns for one in turn.evictions}

    def outcome(self) -> DrainOutcome:
        """Return all that a report says of the run."""
        return DrainOutcome(self._fields(), self._absent_owners())

    def _fields(self) -> Mapping[str, Any]:
        pods = tuple(one for turn in self.run.turns for one in self._pods(turn))
        return {
            "possible": len(self.run.turns) == len(self.run.nodes) and all(turn.drained for turn in self.run.turns),
            "refused": tuple(RefusedPod(one.pod.key, one.rule, one.text) for turn in self.run.turns for one in turn.refused),
            "evicted": tuple(one.pod.key for one in self._evictions.values() if one.evicted_s is not None),
            "pods": pods,
            "pending": self.pending(),
            "preempted": self._preempted(),
            "deadlock": self._is_deadlock(),
            "nodes": self.nodes(),
            "ready_seconds": self._ready_s(),
        }

    def nodes(self) -> tuple[DrainedNode, ...]:
        """Return the nodes in the order of the drain; those that kubectl did not reach come last."""
        had = {turn.name for turn in self.run.turns}
        return (*map(self._node, self.run.turns), *(DrainedNode(name, False) for name in self.run.nodes if name not in had))

    def pending(self) -> tuple[str, ...]:
        """Return the pods that are pending now and were not before."""
        pending = self.run.course.simulation.pending_pods()
        return tuple(pod.key for pod in pending if pod.metadata.uid not in self.run.pending_before)

    def waited(self) -> int:
        """Return how many evictions had to wait for a budget."""
        return sum(_waited(one) for one in self._evictions.values())

    def never(self) -> int:
        """Return how many pods kubectl refuses to evict or never manages to evict."""
        return sum(one.failed for one in self._evictions.values()) + sum(len(turn.refused) for turn in self.run.turns)

    def _since(self, time_s: float | None) -> float | None:
        return None if time_s is None else round(time_s - self.run.begun_s, 6)

    def _node(self, turn: NodeTurn) -> DrainedNode:
        limit_s = self.run.course.rules.timeout_s
        errors = (*refusals_as_kubectl(turn.verdicts), *(_error(one, limit_s) for one in turn.evictions if one.failed))
        return DrainedNode(turn.name, turn.drained, self._since(turn.begin_s), self._since(turn.done_s), errors)

    def _preempted(self) -> tuple[str, ...]:
        victims = self.run.course.simulation.victims
        return tuple(
            record.pod.key
            for uid, record in victims.items()
            if record.state == State.PREEMPTED and uid not in self.run.victims_before
        )

    # -- pods ------------------------------------------------------------------------------------------------------------

    def _pods(self, turn: NodeTurn) -> Iterator[DrainedPod]:
        evictions = {one.uid: one for one in turn.evictions}
        for verdict in turn.verdicts:
            eviction = evictions.get(verdict.pod.metadata.uid)
            if eviction is not None:
                yield self._evicted(eviction)
            else:
                yield _kept(verdict, turn)

    def _evicted(self, one: Evicting) -> DrainedPod:
        common: dict[str, Any] = {
            "pod": one.pod.key, "origin": one.node, "budget": one.budget or None,
            "evicted_seconds": self._since(one.evicted_s), "gone_seconds": self._since(one.gone_s),
        }  # fmt: skip
        if one.evicted_s is None:
            return DrainedPod(outcome="never", node=one.node, why=self._why_never(one), **common)
        if not one.replacement:
            ended = one.pod.status.phase in ENDED_PHASES
            leaving = one.pod.metadata.deletion_timestamp is not None
            why = f"its phase is {one.pod.status.phase}" if ended else "it was leaving already" if leaving else _why_lost(one)
            why = f"{one.why}; {why}" if one.failed else why
            outcome = "finished" if ended or leaving else "lost"
            return DrainedPod(outcome=outcome, at=self._since(one.gone_s), why=why, **common)  # type: ignore[arg-type]
        return self._replaced(one, common)

    def _replaced(self, one: Evicting, common: dict[str, Any]) -> DrainedPod:
        record = self._last(one.replacement)
        if record is None:
            why = f"no profile has the name {one.pod.spec.scheduler_name}"
            return DrainedPod(outcome="pending", why=why, **common)
        common["replacement"] = record.pod.key
        if record.state != State.PLACED:
            return DrainedPod(outcome="pending", why=record.message or None, **common)
        placed = self._since(record.placed_s)
        waited = _waited(one)
        return DrainedPod(
            outcome="waits" if waited else "moves", node=record.node, at=self._since(one.evicted_s) if waited else placed,
            why=one.why or None, placed_seconds=placed, **common,
        )  # fmt: skip

    def _last(self, uid: str) -> PodRecord | None:
        """Return the last replacement of a pod, after all further evictions and preemptions."""
        simulation = self.run.course.simulation
        for _ in range(100):
            again = self._evictions.get(uid)
            record = simulation.records.get(uid)
            if again is not None and again.replacement:
                uid = again.replacement
            elif record is not None and record.replaced:
                then = simulation.pod_named(f"{record.pod.namespace}/{record.replaced}")
                if then is None:
                    break
                uid = then.metadata.uid
            else:
                break
        return simulation.records.get(uid)

    def _why_never(self, one: Evicting) -> str:
        """Return why a pod is never evicted, with the pending pods that its budget needs."""
        waiting = self._pending_of(one)
        return one.why + (f"; {', '.join(waiting)} {'is' if len(waiting) == 1 else 'are'} pending" if waiting else "")

    def _pending_of(self, one: Evicting) -> list[str]:
        """Return the pending pods that the budgets of a pod cover."""
        budgets = self.run.course.book.covering(one.pod)
        pods = self.run.course.simulation.pods.values()
        return [pod.key for pod in pods if not pod.spec.node_name and any(budget.covers(pod) for budget in budgets)]

    def _is_deadlock(self) -> bool:
        """Return True if all waiting evictions wait for budgets that only a pending pod can restore."""
        blocked = [one for one in self._evictions.values() if one.failed and one.evicted_s is None]
        course = self.run.course
        course.gather()
        for one in blocked:
            budgets = course.book.covering(one.pod)
            if len(budgets) != 1 or course.figures(budgets[0]).slack + len(self._pending_of(one)) <= 0:
                return False
            if not self._pending_of(one):
                return False
        return bool(blocked)

    def _absent_owners(self) -> list[str]:
        """Return the controllers of evicted pods that are missing in the input, of the kinds that the scheduler reads."""
        cluster = self.run.course.simulation.scheduler.cluster
        known = {obj.metadata.uid for kind in _OWNERS.values() for obj in cluster.objects(kind).values()}
        owners = [controller_of(one.pod.metadata) for one in self._evictions.values() if one.replacement]
        missing = [one for one in owners if one is not None and one.kind in _OWNERS and one.uid not in known]
        return list(dict.fromkeys(f"{one.kind}/{one.name}" for one in missing))

    def _ready_s(self) -> float | None:
        """Return when the last replacement is ready."""
        course = self.run.course
        records = [self._last(one.replacement) for one in self._evictions.values() if one.replacement]
        placed = [record.placed_s for record in records if record is not None and record.placed_s is not None]
        return self._since(max(placed) + course.rules.ready_after_s) if placed else None


def _waited(one: Evicting) -> bool:
    return one.evicted_s is not None and one.evicted_s > one.asked_s


def _why_lost(one: Evicting) -> str:
    title = controller_title(one.pod.metadata)
    return f"nothing is known of its controller {title} that would replace it" if title else "it has no controller"


def _kept(verdict: DrainVerdict, turn: NodeTurn) -> DrainedPod:
    pod = verdict.pod.key
    if verdict.action == "refuse":
        return DrainedPod(pod, "refused", turn.name, why=verdict.text, origin=turn.name)
    why = {"DaemonSet": "DaemonSet", "mirror": "mirror pod", "terminating": "it has been leaving for too long"}
    return DrainedPod(pod, "stays", turn.name, why=why.get(verdict.rule, "kubectl refuses another pod"), origin=turn.name)


def _error(one: Evicting, timeout_s: float) -> str:
    """Return kubectl's message for a pod that it cannot drain."""
    pod = one.pod
    late = f"global timeout reached: {timeout_s:g}s"
    if one.evicted_s is not None:
        return f'error when waiting for pod "{pod.name}" in namespace "{pod.namespace}" to terminate: {late}'
    where = f'error when evicting pods/"{pod.name}" -n "{pod.namespace}"'
    if one.why == TWO_BUDGETS:
        return f"{where}: {TWO_BUDGETS}"
    return f"{where}: {late}" if timeout_s > 0 else f"{where} (will retry after 5s): {DENIED}"
