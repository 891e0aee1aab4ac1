"""Moorage's own decision beside each decision of the cluster's scheduler, on the state before it.

An engine follows the cluster and never makes an attempt of its own. When a pod that waited has a node, or its status says that
it is unschedulable, the cycle decides on the pod as it was, before the change is applied.

The cluster's scheduler decides on what it knows: it has counted pods whose bindings are under way, and may not have seen the
last deletions and changes of nodes; and it writes what it decided later, in the order of its decisions. So if the decisions
differ, the pods that were bound or deleted before, and the nodes that changed, are put back: first as far as for the decision
before this one, then more and less. What happens right after is counted too, until the decisions agree or nothing is left.
A list of pods or nodes after a broken watch does not tell in which order they changed; what differs around it counts as not
compared. So does what differs before a watch that was interrupted tells of a change with a lower resource version than the
decision.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import feasible_nodes_to_find
from moorage.core.engine.facts import Gone, Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import MoorageError
from moorage.framework.plugin_runner import Scores
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["ComparedDecision", "Match", "Shadow", "reasons_in"]


# -- agreement ---------------------------------------------------------------------------------------------------------
# How often Moorage decides as the scheduler of the cluster does, by plugin, and the decisions that differ.

#: How many differences are kept in memory. The log has all.
_KEPT: Final = 50


class Match(Enum):
    """The result of a comparison."""

    SAME = "same"
    EQUAL_SCORE = "equal score"
    SAMPLED = "best of a sample"
    REORDERED = "same in another order"
    DIFFERENT = "different"

    @property
    def agrees(self) -> bool:
        return self is not Match.DIFFERENT


class ComparedDecision(Struct, frozen=True):
    """A decision of the cluster's scheduler beside that of Moorage on the state before it.

    ``node`` and ``ours`` are the nodes chosen, "" for none; ``message`` and ``our_message`` the reasons of a failure.
    ``plugins`` made the difference. ``reordered_by``: how many other pods were moved before or after this one.
    """

    pod: str
    uid: str
    verdict: Match
    node: str = ""
    ours: str = ""
    message: str = ""
    our_message: str = ""
    plugins: tuple[str, ...] = ()
    margin: int = 0
    reordered_by: int = 0

    @property
    def is_binding(self) -> bool:
        return bool(self.node)

    def facts(self) -> dict[str, Any]:
        """Return the comparison as plain data, without what is empty."""
        values = {
            "pod": self.pod, "uid": self.uid, "verdict": self.verdict.value, "node": self.node, "ours": self.ours,
            "message": self.message, "ourMessage": self.our_message, "plugins": list(self.plugins), "margin": self.margin,
        }  # fmt: skip
        return {name: value for name, value in values.items() if value}


class Agreement:
    """Counts comparisons. ``uncompared`` counts decisions that were not compared, by the reason."""

    def __init__(self) -> None:
        self.bindings: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        #: Plugins that made a difference → in how many comparisons.
        self.plugins: Counter[str] = Counter()
        self.uncompared: Counter[str] = Counter()
        self.differences: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def count(self, found: ComparedDecision, at: int) -> None:
        """Count a comparison made at a time of the log."""
        (self.bindings if found.is_binding else self.failures)[found.verdict.value] += 1
        if not found.verdict.agrees:
            self.plugins.update(found.plugins)
            self.differences.append({"at": at, **found.facts()})

    @property
    def compared(self) -> int:
        return self.bindings.total() + self.failures.total()

    @property
    def share(self) -> float | None:
        """The share of decisions that agree; None before the first."""
        different = self.bindings[Match.DIFFERENT.value] + self.failures[Match.DIFFERENT.value]
        return 1 - different / self.compared if self.compared else None

    def go_on(self, facts: Mapping[str, Any], differences: Iterable[dict[str, Any]] = ()) -> None:
        """Count on from what an earlier recorder of the same log counted: its ``facts`` and kept differences."""
        for name in ("bindings", "failures", "plugins", "uncompared"):
            getattr(self, name).update(facts.get(name, {}))
        self.differences.extend(differences)

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "compared": self.compared, "share": self.share, "bindings": dict(self.bindings), "failures": dict(self.failures),
            "plugins": dict(self.plugins), "uncompared": dict(self.uncompared),
        }  # fmt: skip


# -- shadow ------------------------------------------------------------------------------------------------------------

#: How long bindings and deletions may be seen in another order than the scheduler knew of them, before and after a decision.
_LATE_S: Final = 10.0
_SOON_S: Final = 1.0
#: How long a difference waits for changes of before the decision, of which an interrupted watch tells late: it is begun again
#: after a minute at most. And how many differences wait.
_INTERRUPTED_S: Final = 90.0
_WAITING: Final = 200
_UNORDERED: Final = "the order of changes before it is not known: a watch was interrupted"
#: How many are kept, and how many states of the cluster are tried for a decision.
_SHADOW_KEPT: Final = 500
_MOST: Final = 8


class _Move(NamedTuple):
    """A pod that was bound, changed or deleted: as it was before and after, None if on no node. Or a node that changed."""

    now: float
    before: PodInfo | Node | None
    after: PodInfo | Node | None

    @property
    def key(self) -> str:
        """The UID of the pod, or the name of the node."""
        one = self.before or self.after
        return one.name if isinstance(one, Node) else (one or _nobody).uid


class _Open(NamedTuple):
    """A difference that changes which are seen later may explain: the pod as it waited, the decision's resource version."""

    found: ComparedDecision
    pod: PodInfo
    version: int
    at: int
    soon: float
    until: float
    moves: tuple[_Move, ...]


_nobody: Final = PodInfo(Pod())


class Shadow:
    """Follows a cluster with an engine, and compares decisions.

    ``percentages``: the share of nodes that the cluster's scheduler scores, by profile; 0: its own choice
    ``on_difference`` gets each difference and the time of the log of the state before it.
    """

    def __init__(self, scheduler: Scheduler, percentages: Mapping[str, int]) -> None:
        self.scheduler, self._percentages = scheduler, percentages
        self.on_difference: Callable[[ComparedDecision, int], None] = lambda found, at: None
        self.agreement = Agreement()
        self._cycle = Cycle(scheduler.cycle.seed, always_score=True, by_class=False)
        #: Pods that wait for a node from this scheduler, by UID, with the last reasons that their status gave.
        self._waiting: dict[str, str] = {}
        self._recent: deque[_Move] = deque(maxlen=_SHADOW_KEPT)
        #: How many moves there were, and how many of them the scheduler knew of at its last decision that agrees.
        self._moves = self._known = 0
        self._open: list[_Open] = []
        #: When a list last told of changes of pods without their order.
        self._unordered_at = float("-inf")
        #: Facts that the engine could not take.
        self.faults = 0

    @property
    def pending(self) -> int:
        """The number of pods that wait for a node from the scheduler."""
        return len(self._waiting)

    def messages(self) -> Iterator[str]:
        """Yield why each pending pod that was tried is unschedulable."""
        return (message for message in self._waiting.values() if message)

    def lost_order(self, now: float) -> None:
        """Note that the next fact comes from a list: what happened before it is known, but not in which order."""
        self._unordered_at = now
        if self._open:
            self.agreement.uncompared[_UNORDERED] += len(self._open)
            self._open.clear()

    def observe(self, fact: Seen | Gone, now: float, at: int, *, compares: bool = True) -> None:
        """Compare a decision that a fact tells of, then apply the fact. ``at``: the time of the log before it."""
        pod = fact.obj
        placed = None
        node = _node_named(self.scheduler, pod.name) if isinstance(fact, Seen) and isinstance(pod, Node) else None
        if isinstance(pod, Pod):
            placed = self.scheduler.cluster.pod(pod.metadata.uid)
            if isinstance(fact, Gone) or pod.status.phase in ENDED_PHASES:
                self._waiting.pop(pod.metadata.uid, None)
            else:
                self._pod(pod, placed, now, at, compares=compares)
        try:
            self.scheduler.observe(fact, now)
            self.scheduler.take()
        except MoorageError:
            self.faults += 1
        if isinstance(pod, Pod):
            after = self.scheduler.cluster.pod(pod.metadata.uid)
            if _counts_otherwise(placed, after):
                self._moved(_Move(now, placed, after), _version(pod))
        elif node is not None and isinstance(pod, Node) and _differ(node, pod):
            self._moved(_Move(now, node, pod), _version(pod))
        if self._open and self._open[0].until < now:
            self.settle(now)

    def _pod(self, pod: Pod, placed: PodInfo | None, now: float, at: int, *, compares: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node:
            if pod.spec.scheduler_name in self.scheduler.profiles:
                before, message = self._waiting.get(uid), _reasons_of(pod)
                self._waiting[uid] = message
                if message and before is not None and message != before:
                    self._compare(pod, message, now, at, compares=compares)
        elif self._waiting.pop(uid, None) is not None:
            self._compare(pod, "", now, at, compares=compares)
        elif placed is None and compares and pod.spec.scheduler_name in self.scheduler.profiles:
            self.agreement.uncompared["was never seen without a node"] += 1

    # -- comparing -----------------------------------------------------------------------------------------------------

    def _compare(self, pod: Pod, message: str, now: float, at: int, *, compares: bool) -> None:
        """Compare the node of a pod, or the reasons why it has none, with a decision on the state now."""
        queued = self.scheduler.queue.get(pod.metadata.uid)
        if not compares or queued is None:
            self.agreement.uncompared[
                "the recorder was starting or behind" if not compares else "does not wait in the queue"
            ] += 1
            return
        waited, node = queued.pod, pod.spec.node_name
        found = self._judged(waited, node, message)
        if found is None:
            self.agreement.uncompared["a plugin failed or the node is not known"] += 1
            return
        if not found.verdict.agrees:
            earlier = self._undone(waited, found, now)
            if earlier is None and now - self._unordered_at < _LATE_S:
                self.agreement.uncompared[_UNORDERED] += 1
                return
            if earlier is None:
                self._open.append(_Open(found, waited, _version(pod), at, now + _SOON_S, now + _INTERRUPTED_S, ()))
                if len(self._open) > _WAITING:
                    self._different(self._open.pop(0))
                return
            found = earlier
        self.agreement.count(found, at)

    def _judged(self, pod: PodInfo, node: str, message: str) -> ComparedDecision | None:
        """Return the comparison on the state as it is; None if there can be none."""
        scheduler = self.scheduler
        profile = scheduler.profiles[pod.spec.scheduler_name]
        decision = self._cycle.decide(profile, pod, scheduler.snapshot, scheduler.queue.nominated)
        if decision.error is not None:
            return None
        if message:
            return _failures_compared(pod, message, decision)
        return _bindings_compared(
            pod, node, decision, scheduler.snapshot.table, self._percentages.get(pod.spec.scheduler_name, 0)
        )

    def _undone(self, pod: PodInfo, found: ComparedDecision, now: float) -> ComparedDecision | None:
        """Take back the last bindings, deletions and changes of nodes until the decisions agree; None if they never do."""
        depths = _depths(self._moves - self._known)
        undone, agreed = list[_Move](), None
        for depth in depths:
            while len(undone) < depth and (move := self._undoable(len(undone), now)) is not None:
                _put(self.scheduler, move.key, move.before)
                undone.append(move)
            while len(undone) > depth:
                move = undone.pop()
                _put(self.scheduler, move.key, move.after)
            if len(undone) < depth:
                continue
            again = self._judged(pod, found.node, found.message)
            if again is not None and again.verdict.agrees:
                agreed, self._known = _reordered(again, depth), self._moves - depth
                break
        for move in reversed(undone):
            _put(self.scheduler, move.key, move.after)
        return agreed

    def _undoable(self, depth: int, now: float) -> _Move | None:
        """Return the move before the last ``depth``, if it is recent and what it moved is as it left it."""
        if depth >= len(self._recent):
            return None
        move = self._recent[-1 - depth]
        is_node = isinstance(move.after, Node)
        held = _node_named(self.scheduler, move.key) if is_node else self.scheduler.cluster.pod(move.key)
        return move if move.now >= now - _LATE_S and held is move.after else None

    def _moved(self, move: _Move, version: int) -> None:
        """Note that a pod was bound or deleted or a node changed, and look at open differences again with what came since."""
        self._recent.append(move)
        self._moves += 1
        still = []
        for before in self._open:
            case, again = before, None
            if move.after is not None and move.key != case.pod.uid and len(case.moves) < _MOST and move.now <= case.soon:
                case = before._replace(moves=(*before.moves, move))
                again = self._with_later(case)
            if again is not None:
                self.agreement.count(again, case.at)
            elif 0 < version < case.version:
                self.agreement.uncompared[_UNORDERED] += 1
            else:
                still.append(case)
        self._open = still

    def _with_later(self, case: _Open) -> ComparedDecision | None:
        """Return the comparison on a state with pods that were bound after the pod, but without the pod itself."""
        placed = self.scheduler.cluster.pod(case.pod.uid)
        if placed is not None:
            _put(self.scheduler, case.pod.uid, None)
        again = self._judged(case.pod, case.found.node, case.found.message)
        if placed is not None:
            _put(self.scheduler, case.pod.uid, placed)
        return _reordered(again, len(case.moves)) if again is not None and again.verdict.agrees else None

    def settle(self, now: float) -> None:
        """Count the differences that nothing has explained in time."""
        due, self._open = [one for one in self._open if one.until < now], [one for one in self._open if one.until >= now]
        for case in due:
            self._different(case)

    def _different(self, case: _Open) -> None:
        self.agreement.count(case.found, case.at)
        self.on_difference(case.found, case.at)


def _version(obj: Pod | Node) -> int:
    """Return the resource version, which orders the changes of all objects; 0 if it is no number."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _depths(likely: int) -> list[int]:
    """Return how many moves to take back, in the order in which to try: about as many as is likely, and few."""
    near = [likely, likely - 1, likely + 1, 1, likely - 2, likely + 2, 2, 3, likely - 3, 4, 5, 6, 7, 8]
    return [one for one in dict.fromkeys(near) if one > 0][:_MOST]


def _reasons_of(pod: Pod) -> str:
    """Return the message of the condition that says that a pod is unschedulable; "" if there is none."""
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable":
            return one.message
    return ""


def _put(scheduler: Scheduler, uid: str, one: PodInfo | Node | None) -> None:
    """Let a pod be on the node that it names, or on none; let a node be as this one."""
    if one is None:
        scheduler.cluster.remove_pod(uid)
    elif isinstance(one, Node):
        scheduler.cluster.set_node(one)
    else:
        scheduler.cluster.place(one, one.spec.node_name)


def _counts_otherwise(before: PodInfo | None, after: PodInfo | None) -> bool:
    """Return whether a pod was bound or deleted, or selectors count it otherwise: its labels changed, or its deletion began."""
    if before is None or after is None:
        return before is not after
    return before.label_class != after.label_class


def _node_named(scheduler: Scheduler, name: str) -> Node | None:
    table = scheduler.cluster.table
    row = table.row_of.get(name)
    return None if row is None else table.nodes[row]


def _differ(before: Node, after: Node) -> bool:
    """Return whether a node changed in what decides about pods, not only by a heartbeat."""
    if before.spec != after.spec or before.metadata.labels != after.metadata.labels:
        return True
    return before.status.allocatable != after.status.allocatable


def _reordered(found: ComparedDecision, by: int) -> ComparedDecision:
    return ComparedDecision(found.pod, found.uid, Match.REORDERED, found.node, found.ours, found.message, reordered_by=by)


def _bindings_compared(
    pod: PodInfo, node: str, decision: Decision, table: NodeTable, percentage: int
) -> ComparedDecision | None:
    """Compare a binding with a decision; None if the node is not known."""
    row, ours = table.row_of.get(node), decision.node or ""
    if ours == node:
        return ComparedDecision(pod.key, pod.uid, Match.SAME, node, ours)
    if row is None:
        return None
    status, scores = decision.status_of(row), decision.scores
    at = [] if scores is None else np.flatnonzero(scores.rows == row).tolist()
    if scores is None or not at:
        plugins = (status.plugin,) if status is not None and status.plugin else decision.rejected_by
        why = ", ".join(status.reasons) if status is not None else ""
        return ComparedDecision(
            pod.key, pod.uid, Match.DIFFERENT, node, ours, our_message=why or decision.message, plugins=plugins
        )
    index = at[0]
    margin = int(scores.total.max() - scores.total[index])
    if not margin:
        return ComparedDecision(pod.key, pod.uid, Match.EQUAL_SCORE, node, ours)
    if _is_best_of_a_sample(scores, index, table, percentage):
        return ComparedDecision(pod.key, pod.uid, Match.SAMPLED, node, ours, margin=margin)
    best = int(np.flatnonzero(scores.rows == table.row_of[ours])[0])
    plugins = tuple(sorted(name for name, final in scores.final.items() if final[best] > final[index]))
    return ComparedDecision(pod.key, pod.uid, Match.DIFFERENT, node, ours, plugins=plugins, margin=margin)


def _is_best_of_a_sample(scores: Scores, index: int, table: NodeTable, percentage: int) -> bool:
    """Return whether a row is the best of as many feasible rows in turn as kube-scheduler scores, from some start on.

    Source  schedule_one.go, findNodesThatPassFilters
    """
    wanted = feasible_nodes_to_find(percentage, len(table))
    place = np.full(len(table), -1, dtype=np.intp)
    place[scores.rows] = np.arange(len(scores.rows))
    turn = place[table.rows_in_turn()]
    turn = turn[turn >= 0]
    better = np.flatnonzero(scores.total[turn] > scores.total[index])
    own = int(np.flatnonzero(turn == index)[0])
    after = int(better[(better > own).argmax()]) if (better > own).any() else int(better[0]) + len(turn)
    before = int(better[better < own][-1]) if (better < own).any() else int(better[-1]) - len(turn)
    return wanted < len(turn) and after - before - 1 >= wanted


def _failures_compared(pod: PodInfo, message: str, decision: Decision) -> ComparedDecision:
    """Compare the reasons of a failure; what preemption found is compared only by the text as a whole."""
    ours = decision.message
    if decision.node is not None:
        return ComparedDecision(pod.key, pod.uid, Match.DIFFERENT, ours=decision.node, message=message)
    theirs, own = frozenset(reasons_in(message)), frozenset(reasons_in(ours))
    if theirs == own:
        return ComparedDecision(pod.key, pod.uid, Match.SAME, message=message, our_message=ours)
    plugins = _plugins_of(theirs ^ own, decision)
    return ComparedDecision(pod.key, pod.uid, Match.DIFFERENT, message=message, our_message=ours, plugins=plugins)


def reasons_in(message: str) -> list[str]:
    """Return the parts of ``0/N nodes are available: …`` before what PostFilter says: the first, and each counted reason."""
    head, _, reasons = message.partition(". ")[0].rstrip(".").partition(": ")
    return [head, *(one.strip() for one in re.split(r", (?=[0-9]+ )", reasons) if one.strip())]


def _plugins_of(reasons: frozenset[str], decision: Decision) -> tuple[str, ...]:
    """Return the plugins that give these counted reasons; all that reject the pod if none does."""
    texts = {one.partition(" ")[2] for one in reasons}
    statuses = decision.verdicts.statuses if decision.verdicts is not None else []
    found = {one.plugin for one in statuses if one is not None and one.plugin and not texts.isdisjoint(one.reasons)}
    return tuple(sorted(found or decision.rejected_by))
