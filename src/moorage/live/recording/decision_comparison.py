"""Moorage's own decision beside each decision of the cluster's scheduler, on the state before it.

An engine follows the cluster and never makes an attempt of its own. When a pod that waited has a node, or its status says that
it is unschedulable, the cycle decides on the pod as it was, before the change is applied.

The cluster's scheduler decides on what it knows: it has counted pods whose bindings are under way, and may not have seen the
last deletions and changes of nodes; and it writes what it decided later, in the order of its decisions. So a decision that
differs waits until the watches of pods and nodes have told all that happened before it. Resource versions order these changes,
in whichever order the watches told of them. Then the pods that were bound or deleted, nominations, and the nodes, claims and
volumes that changed are put back: first to right before the decision, then as far as for a decision before this one, then to
before each of the last 60 changes, and further in steps; and what happened right after it is counted, until the decisions agree
or nothing is left.

A list of pods or nodes after a broken watch does not tell what happened since the last change that the watch told. No outside
observer can know the state of the cluster then, so what differs around it counts apart, as what cannot be judged.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Node, Object, Pod
from moorage.api.devices import ResourceClaim
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.kept_failures import Failures
from moorage.core.cycle.search import feasible_nodes_to_find
from moorage.core.engine.facts import Gone, Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.what_if import Nominated
from moorage.errors import MoorageError
from moorage.framework.plugin_runner import Scores
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

# How often Moorage decides as the scheduler of the cluster does, by plugin, and the decisions that differ.

#: How many differences are kept in memory. The log has all.
_KEPT: Final = 50
_COUNTS: Final = ("bindings", "failures", "plugins", "uncompared")


class Match(Enum):
    """The result of a comparison."""

    SAME = "same"
    EQUAL_SCORE = "equal score"
    SAMPLED = "best of a sample"
    REORDERED = "same in another order"
    DIFFERENT = "different"


class ComparedDecision(Struct, frozen=True, rename="camel", omit_defaults=True):
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

    def facts(self) -> dict[str, Any]:
        """Return the comparison as plain data, without what is empty."""
        return dict(to_builtins(self))


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
        (self.bindings if found.node else self.failures)[found.verdict.value] += 1
        if found.verdict is Match.DIFFERENT:
            self.plugins.update(found.plugins)
            self.differences.append({"at": at, **found.facts()})

    @property
    def compared(self) -> int:
        return self.bindings.total() + self.failures.total()

    @property
    def share(self) -> float | None:
        """The share of decisions that agree; None before the first.

        Of those that were too many to look into each, as many count as different as of those that were looked into.
        """
        both, many = self.bindings + self.failures, self.uncompared[TOO_MANY]
        different, explained = both[Match.DIFFERENT.value], both[Match.REORDERED.value]
        among_many = many * different / (different + explained) if different else 0.0
        return 1 - (different + among_many) / (self.compared + many) if self.compared else None

    def go_on(self, facts: Mapping[str, Any], differences: Iterable[dict[str, Any]] = ()) -> None:
        """Count on from what an earlier recorder of the same log counted: its ``facts`` and kept differences."""
        for name in _COUNTS:
            getattr(self, name).update(facts.get(name, {}))
        self.differences.extend(differences)

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {"compared": self.compared, "share": self.share, **{name: dict(getattr(self, name)) for name in _COUNTS}}


#: How long changes may be seen in another order than the scheduler knew of them, before and after a decision.
_LATE_S: Final = 10.0
_SOON_S: Final = 1.0
#: How many changes are kept, differences wait, and of these are judged at a time; how many bindings of after it count.
_SHADOW_KEPT: Final = 5000
_WAITING: Final = 1000
_AT_ONCE: Final = 20
_MOST: Final = 8
#: How many states there must be time for before those of a difference are tried; on 5,000 nodes, how many in a second, and how
#: many after a pause. So a few differences are looked into, and many of them cost little.
_MOST_TRIES: Final = 200
_TRIES_PER_S: Final = 3
#: Of how many last changes the state before each is tried.
_EACH_OF: Final = 60
_TRIES_KEPT: Final = 500
_FAILURES_KEPT: Final = 5000
_UNORDERED: Final = "cannot be judged: a watch began again with a list, so the order of the changes before it is lost"
TOO_MANY: Final = "not judged: too many decisions differ at first to look into each"
_UNDER_WAY: Final = "cannot be judged: a new pod was deleted at that time, perhaps while its binding was under way"
_UNTOLD: Final = "cannot be judged: a watch was interrupted, and what happened before the decision is not known yet"


#: The kinds of which objects are put back, beside pods: what a decision reads and another decision changes.
_PUT_BACK: Final = (Node, ResourceClaim, PersistentVolumeClaim, PersistentVolume)
#: The node that a pod is nominated to, and the pod; None for none.
_Nomination = tuple[str, PodInfo] | None


class _Held(NamedTuple):
    """What the cluster had of a pod or an object: ``one``, None if the pod was on no node or there was no such object."""

    one: PodInfo | Object | None
    nomination: _Nomination = None


class _Change(NamedTuple):
    """A pod that was bound, nominated, changed or deleted, or an object. It happened between ``early`` and ``now``.

    ``before``: what was until then. ``binds``: it is a binding.
    """

    version: int
    early: float
    now: float
    key: str
    kind: type[Object]
    before: _Held
    binds: bool


class _Open(NamedTuple):
    """A difference that a state of another moment may explain: the pod as it waited, the decision's resource version.

    ``doubt``: why the order of the changes around it stays unknown; "" if the watches tell it, all until ``soon``.
    """

    found: ComparedDecision
    pod: PodInfo
    nominated: Nominated
    version: int
    at: int
    early: float
    soon: float
    doubt: str


_version_of: Final = attrgetter("version")


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
        #: The last changes, by resource version; and what those that are taken back while a difference is judged had made.
        self._changes: list[_Change] = []
        self._taken_back: list[_Held] = []
        #: UID → the nomination of a pod in the state of the past that is judged, where it is another than now.
        self._nominations: dict[str, _Nomination] = {}
        #: Whether any pod was ever nominated.
        self._has_nominated = False
        #: Resource versions later than all before them, and when a watch told of them.
        self._told: list[tuple[int, float]] = []
        #: Comparisons of failures on other states, which equal pods share, and what makes their keys, by profile.
        self._failures: dict[Hashable, ComparedDecision] = {}
        self._keys: dict[str, Failures] = {}
        #: The version of the state that a decision was last found to be made on: for failures, and for bindings.
        self._known = [0, 0]
        self._open: deque[_Open] = deque()
        #: Until when the watches had told everything, and until when a list leaves the order of changes unknown.
        self._sure = self._unordered_until = float("-inf")
        #: Up to which resource version.
        self._unordered_version = 0
        #: How many states may be tried now; below 0 after many differences.
        self._tries: float = _TRIES_KEPT
        #: When new pods were deleted, which the scheduler may have counted on a node.
        self._left = deque[float](maxlen=_WAITING)
        #: Facts that the engine could not take.
        self.faults = 0

    @property
    def pending(self) -> int:
        """The number of pods that wait for a node from the scheduler."""
        return len(self._waiting)

    def messages(self) -> Iterator[str]:
        """Yield why each pending pod that was tried is unschedulable."""
        return (message for message in self._waiting.values() if message)

    def lost_order(self, now: float, version: int) -> None:
        """Note that the next fact comes from a list of a version: what happened since the last news has no known order."""
        self._unordered_until, self._unordered_version = now + _LATE_S, max(self._unordered_version, version)
        self._open = deque(one if one.soon <= self._sure else one._replace(doubt=_UNORDERED) for one in self._open)

    def observe(
        self, fact: Seen | Gone, now: float, at: int, early: float | None = None, surely: float = float("inf"), *,
        compares: bool = True,
    ) -> None:  # fmt: skip
        """Compare a decision that a fact tells of, then apply the fact.

        ``at``: the time of the log before it; ``early``: when it happened at the earliest; ``surely``: if its watch is slow
        """
        obj, version = fact.obj, _version(fact.obj)
        passed = self._passed(version, now)
        early = min(now if early is None else early, passed if passed < now else surely)
        if isinstance(obj, Pod):
            key = obj.metadata.uid
            if isinstance(fact, Gone) or obj.status.phase in ENDED_PHASES:
                if self._waiting.pop(key, None) == "":
                    self._left.append(early)
            else:
                self._pod(obj, now, early, at, compares=compares)
        else:
            key = obj.key
        kind = type(obj)
        decides = isinstance(obj, (Pod, *_PUT_BACK))
        before = self._held(key, kind) if decides else _Held(None)
        try:
            self.scheduler.observe(fact, now)
            self.scheduler.take()
        except MoorageError:
            self.faults += 1
        after = self._held(key, kind) if decides else before
        self._has_nominated = self._has_nominated or before.nomination is not None
        if _counts_otherwise(before.one, after.one) or _named(before) != _named(after):
            version = version or (self._changes[-1].version if self._changes else 0)
            if (self._changes and version <= self._changes[-1].version) or len(self._failures) > _FAILURES_KEPT:
                self._failures.clear()
            binds = kind is Pod and before.one is None and after.one is not None
            insort(self._changes, _Change(version, early, now, key, kind, before, binds), key=_version_of)
            if len(self._changes) > _SHADOW_KEPT * 1.1:
                del self._changes[:-_SHADOW_KEPT]
        if not isinstance(obj, Pod | Node):
            self._failures.clear()

    def _passed(self, version: int, now: float) -> float:
        """Return when any watch first told of a version or a later one: it had happened by then, however late its own watch."""
        told = self._told
        if not told or version > told[-1][0]:
            told.append((version, now))
            if len(told) > _SHADOW_KEPT * 1.1:
                del told[:-_SHADOW_KEPT]
        return told[bisect_left(told, (version,))][1] if version else now

    def _held(self, key: str, kind: type[Object]) -> _Held:
        """Return a pod that is on a node, by its UID, or an object, by its name, as they are in the state that is judged."""
        cluster = self.scheduler.cluster
        if kind is Pod:
            nomination = self._nominations[key] if key in self._nominations else self._nominated_now(key)
            return _Held(cluster.pod(key), nomination)
        if kind is not Node:
            return _Held(cluster.objects(kind).get(key))
        row = cluster.table.row_of.get(key)
        return _Held(None if row is None else cluster.table.nodes[row])

    def _nominated_now(self, uid: str) -> _Nomination:
        queue = self.scheduler.queue
        node, queued = queue.nomination(uid), queue.get(uid)
        return None if node is None or queued is None else (node, queued.pod)

    def _nominated(self) -> Nominated:
        """Return the nominations of the state that is judged."""
        now = self.scheduler.queue.nominated
        if not self._nominations:
            return now
        found = {node: [pod for pod in pods if pod.uid not in self._nominations] for node, pods in now.items()}
        for nomination in self._nominations.values():
            if nomination is not None:
                node, pod = nomination
                found[node] = sorted([*found.get(node, ()), pod], key=lambda one: -one.priority)
        return found

    def _pod(self, pod: Pod, now: float, early: float, at: int, *, compares: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node:
            if pod.spec.scheduler_name in self.scheduler.profiles:
                before, message = self._waiting.get(uid), _reasons_of(pod)
                self._waiting[uid] = message
                if message and before is not None and message != before:
                    self._compare(pod, message, now, early, at, compares=compares)
        elif self._waiting.pop(uid, None) is not None:
            self._compare(pod, "", now, early, at, compares=compares)
        elif self.scheduler.cluster.pod(uid) is None and compares and pod.spec.scheduler_name in self.scheduler.profiles:
            self.agreement.uncompared["was never seen without a node"] += 1

    # -- comparing -----------------------------------------------------------------------------------------------------

    def _compare(self, pod: Pod, message: str, now: float, early: float, at: int, *, compares: bool) -> None:
        """Compare the node of a pod, or the reasons why it has none, with a decision on the state now."""
        queued = self.scheduler.queue.get(pod.metadata.uid)
        if not compares or queued is None:
            why = "the recorder was starting or behind" if not compares else "does not wait in the queue"
            self.agreement.uncompared[why] += 1
            return
        waited, nominated = queued.pod, self.scheduler.queue.nominated
        found = self._judged(waited, nominated, pod.spec.node_name, message)
        if found is None:
            self.agreement.uncompared["a plugin failed or the node is not known"] += 1
        elif found.verdict is not Match.DIFFERENT:
            self.agreement.count(found, at)
        elif len(self._open) >= _WAITING:
            self.agreement.uncompared[_UNTOLD] += 1
        else:
            version = _version(pod)
            doubt = "" if early >= self._unordered_until and version > self._unordered_version else _UNORDERED
            self._open.append(_Open(found, waited, nominated, version, at, early, now + _SOON_S, doubt))

    def _judged(self, pod: PodInfo, nominated: Nominated, node: str, message: str) -> ComparedDecision | None:
        """Return the comparison on the state as it is; None if there can be none."""
        scheduler = self.scheduler
        profile = scheduler.profiles[pod.spec.scheduler_name]
        decision = self._cycle.decide(profile, pod, scheduler.snapshot, nominated)
        if decision.error is not None:
            return None
        if message:
            return _failures_compared(pod, message, decision)
        percentage = self._percentages.get(pod.spec.scheduler_name, 0)
        return _bindings_compared(pod, node, decision, scheduler.snapshot.table, percentage)

    # -- states of other moments ---------------------------------------------------------------------------------------

    def settle(self, sure: float, version: float = float("inf")) -> bool:
        """Judge some differences again, if the watches have told all that happened until right after them.

        ``sure``, ``version``: until when, and until which resource version, they have told. Returns whether there are more.
        """
        if sure > self._sure:
            self._tries = min(self._tries + (sure - self._sure) * _TRIES_PER_S, _TRIES_KEPT)
        self._sure = sure
        due = list[_Open]()
        while (more := self._open and self._open[0].soon <= sure and self._open[0].version <= version) and len(due) < _AT_ONCE:
            due.append(self._open.popleft())
        due.sort(key=_version_of, reverse=True)  # the way back is then the shortest
        ended = [(case, self._explained(case)) for case in due]
        self._go_to(len(self._changes))
        for case, found in reversed(ended):
            doubt = case.doubt or (_UNTOLD if self._changes and case.version < self._changes[0].version else "")
            if any(abs(at - case.early) <= _SOON_S for at in self._left):
                doubt = doubt or _UNDER_WAY
            if found is None or (found.verdict is Match.DIFFERENT and doubt):
                self.agreement.uncompared[TOO_MANY if found is None else doubt] += 1
                continue
            self.agreement.count(found, case.at)
            if found.verdict is Match.DIFFERENT:
                self.on_difference(found, case.at)
        return bool(more)

    def end(self) -> None:
        """Judge what waits, at the end."""
        self._open = deque(one._replace(doubt=one.doubt or _UNTOLD) for one in self._open)
        while self.settle(float("inf")):
            pass

    def _explained(self, case: _Open) -> ComparedDecision | None:
        """Return the comparison on the first state on which the decisions agree; the first one if they agree on none.

        Returns None if there is no time to try all states.
        """
        changes, is_binding = self._changes, bool(case.found.node)
        last = bisect_left(changes, case.version, key=_version_of)
        oldest = last
        while oldest and changes[oldest - 1].now >= case.early - _LATE_S:
            oldest -= 1
        known = bisect_left(changes, self._known[is_binding], oldest, last, key=_version_of)
        cost = (1000 + len(self.scheduler.cluster.table)) / 6000
        has_time = self._tries >= _MOST_TRIES * cost
        for index, bound in self._states(range(oldest, last), known, is_binding=is_binding):
            added = [at for at in bound if self._counts(at, case)]
            key = self._failure_key(case, index, added)
            if key is not None and (equal := self._failures.get(key)) is not None:
                again = _failure_as(equal, case.found)
            elif not has_time and (index != last or added):
                return None
            else:
                again = self._on_state(case, index, added) or case.found
                self._tries -= cost if index != last or added else 0
                if key is not None and again is not case.found:
                    self._failures[key] = again
            if again.verdict is not Match.DIFFERENT:
                self._known[is_binding] = case.version if index == last else changes[index].version
                by = max(last, bound.stop) - index
                return replace(again, verdict=Match.REORDERED, reordered_by=by) if by else again
        return case.found

    def _states(self, before: range, known: int, *, is_binding: bool) -> Iterator[tuple[int, range]]:
        """Yield states that it may have decided on: the first change that it had not seen, and from there on known bindings."""
        last, outward = before.stop, _outward(before, known)
        mixed = [(index, range(index, last)) for index in outward if not self._is_own(index)]
        whole = [(index, range(0)) for index in outward]
        more = [(index, range(index, own + 1)) for index in (last, *outward[:_MOST]) for own in self._next_own(index)]
        yield from dict.fromkeys([(last, range(0)), *((*mixed, *more, *whole) if is_binding else (*whole, *more, *mixed))])

    def _is_own(self, index: int) -> bool:
        """Return whether a change is a binding, which the scheduler knew of before it was written."""
        return self._changes[index].binds

    def _next_own(self, index: int) -> Iterator[int]:
        """Yield the next bindings from an index on."""
        return islice(filter(self._is_own, range(index, len(self._changes))), _MOST)

    def _counts(self, index: int, case: _Open) -> bool:
        """Return whether a change is a binding that the scheduler may have known of before it was written."""
        change = self._changes[index]
        return self._is_own(index) and change.key != case.pod.uid and change.early <= case.soon

    def _failure_key(self, case: _Open, index: int, added: Sequence[int]) -> Hashable | None:
        """Return the key of a failure that equal pods share on a state; None if there is no such key."""
        nominates = self._has_nominated and any(one.before.nomination for one in self._changes[index:])
        if case.found.node or case.nominated or nominates:
            return None
        name, snapshot = case.pod.spec.scheduler_name, self.scheduler.snapshot
        if (keys := self._keys.get(name)) is None:
            keys = self._keys[name] = Failures(self.scheduler.profiles[name])
        if (pod := keys.key(case.pod, snapshot)) is None:
            return None
        return name, pod, self._changes[index - 1].version if index else 0, *(self._changes[at].key for at in added)

    def _on_state(self, case: _Open, index: int, added: Sequence[int]) -> ComparedDecision | None:
        """Return the comparison on the state before a change, with some later bindings."""
        self._go_to(index)
        changes, taken, placed = self._changes, self._taken_back, list[str]()
        for at in added:
            pod = taken[len(changes) - 1 - at].one
            if isinstance(pod, PodInfo):
                self.scheduler.cluster.place(pod, pod.spec.node_name)
                placed.append(changes[at].key)
        found = self._judged(case.pod, self._nominated(), case.found.node, case.found.message)
        for uid in reversed(placed):
            self.scheduler.cluster.remove_pod(uid)
        return found

    def _go_to(self, index: int) -> None:
        """Let the cluster be as it was before the change of an index, or as it is now for their number."""
        changes, taken = self._changes, self._taken_back
        while len(changes) - len(taken) > index:
            change = changes[-1 - len(taken)]
            taken.append(self._held(change.key, change.kind))
            self._put(change, change.before)
        while len(changes) - len(taken) < index:
            self._put(changes[-len(taken)], taken.pop())

    def _put(self, change: _Change, held: _Held) -> None:
        """Let the pod or object of a change be as it was held."""
        cluster, one = self.scheduler.cluster, held.one
        if change.kind is Pod:
            if held.nomination == self._nominated_now(change.key):
                self._nominations.pop(change.key, None)
            else:
                self._nominations[change.key] = held.nomination
        if isinstance(one, PodInfo):
            cluster.place(one, one.spec.node_name)
        elif isinstance(one, Node):
            cluster.set_node(one)
        elif one is not None:
            cluster.set_object(one)
        elif change.kind is Pod:
            cluster.remove_pod(change.key)
        elif change.kind is Node:
            cluster.remove_node(change.key)
        elif (there := cluster.objects(change.kind).get(change.key)) is not None:
            cluster.remove_object(there)


def _version(obj: Object) -> int:
    """Return the resource version, which orders the changes of all objects; 0 if it is no number."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _outward(before: range, known: int) -> list[int]:
    """Return indexes of changes in the order in which to try the states before them: the likely ones, then ever fewer."""
    far = (before.stop - _EACH_OF - one - one * one // 32 for one in range(1, 64))
    near = [known, known + 1, known - 1, known + 2, known - 2, *range(before.stop - 1, before.stop - 1 - _EACH_OF, -1), *far]
    return [one for one in dict.fromkeys(near) if one in before]


def _named(held: _Held) -> tuple[str, str] | None:
    """Return the nomination of a pod, by the names of node and pod."""
    return None if held.nomination is None else (held.nomination[0], held.nomination[1].uid)


def _reasons_of(pod: Pod) -> str:
    """Return the message of the condition that says that a pod is unschedulable; "" if there is none."""
    told = (one for one in pod.status.conditions if (one.type, one.status) == ("PodScheduled", "False"))
    return next((one.message for one in told if one.reason == "Unschedulable"), "")


def _counts_otherwise(before: PodInfo | Object | None, after: PodInfo | Object | None) -> bool:
    """Return whether a change decides about pods: of a node, more than a heartbeat; of a pod, more than its status.

    A pod that is being deleted counts otherwise, and every change of a claim or volume.
    """
    if isinstance(before, Node) and isinstance(after, Node):
        same = before.spec == after.spec and before.metadata.labels == after.metadata.labels
        return not same or before.status.allocatable != after.status.allocatable
    if isinstance(before, PodInfo) and isinstance(after, PodInfo):
        return before.label_class != after.label_class or before.spec != after.spec
    return before is not after


def _bindings_compared(
    pod: PodInfo, node: str, decision: Decision, table: NodeTable, percentage: int
) -> ComparedDecision | None:
    """Compare a binding with a decision; None if the node is not known."""
    row, ours = table.row_of.get(node), decision.node or ""
    found = ComparedDecision(pod.key, pod.uid, Match.SAME, node, ours)
    if ours == node or row is None:
        return found if ours == node else None
    status, scores = decision.status_of(row), decision.scores
    margin, plugins = decision.margin_over(row, table.row_of.get(ours))
    if scores is None or margin is None:
        why = ", ".join(status.reasons) if status is not None else ""
        return replace(found, verdict=Match.DIFFERENT, our_message=why or decision.message, plugins=plugins)
    if not margin:
        return replace(found, verdict=Match.EQUAL_SCORE)
    if _is_best_of_a_sample(scores, row, table, percentage):
        return replace(found, verdict=Match.SAMPLED, margin=margin)
    return replace(found, verdict=Match.DIFFERENT, plugins=plugins, margin=margin)


def _is_best_of_a_sample(scores: Scores, row: int, table: NodeTable, percentage: int) -> bool:
    """Return whether a row is the best of as many feasible rows in turn as kube-scheduler scores, from some start on.

    Source  schedule_one.go, findNodesThatPassFilters
    """
    wanted = feasible_nodes_to_find(percentage, len(table))
    place = np.full(len(table), -1, dtype=np.intp)
    place[scores.rows] = np.arange(len(scores.rows))
    turn, index = place[table.rows_in_turn()], place[row]
    turn = turn[turn >= 0]
    better = np.flatnonzero(scores.total[turn] > scores.total[index])
    own = int(np.flatnonzero(turn == index)[0])
    after = int(better[(better > own).argmax()]) if (better > own).any() else int(better[0]) + len(turn)
    before = int(better[better < own][-1]) if (better < own).any() else int(better[-1]) - len(turn)
    return wanted < len(turn) and after - before - 1 >= wanted


def _failures_compared(pod: PodInfo, message: str, decision: Decision) -> ComparedDecision:
    """Compare the reasons of a failure; what preemption found is compared only by the text as a whole."""
    if decision.node is not None:
        return ComparedDecision(pod.key, pod.uid, Match.DIFFERENT, ours=decision.node, message=message)
    found = ComparedDecision(pod.key, pod.uid, Match.SAME, message=message, our_message=decision.message)
    reasons = _other_reasons(found)
    return replace(found, verdict=Match.DIFFERENT, plugins=_plugins_of(reasons, decision)) if reasons else found


def _failure_as(known: ComparedDecision, found: ComparedDecision) -> ComparedDecision:
    """Return the comparison of a failure on a state for which that of an equal pod is known."""
    again = replace(found, verdict=Match.SAME, ours=known.ours, our_message=known.our_message, plugins=())
    return replace(again, verdict=Match.DIFFERENT) if again.ours or _other_reasons(again) else again


def _other_reasons(found: ComparedDecision) -> frozenset[str]:
    """Return the reasons that only one of the messages has."""
    return frozenset(reasons_in(found.message)) ^ frozenset(reasons_in(found.our_message))


def reasons_in(message: str) -> list[str]:
    """Return the parts of ``0/N nodes are available: …`` before what PostFilter says: the first, and each counted reason."""
    head, _, reasons = message.partition(". ")[0].rstrip(".").partition(": ")
    return [head, *(one.strip() for one in re.split(r", (?=[0-9]+ )", reasons) if one.strip())]


def _plugins_of(reasons: frozenset[str], decision: Decision) -> tuple[str, ...]:
    """Return the plugins that give these counted reasons; all that reject the pod if none does."""
    texts = {re.sub("^[0-9]+ ", "", one) for one in reasons}
    statuses = decision.verdicts.statuses if decision.verdicts is not None else []
    found = {one.plugin for one in statuses if one is not None and one.plugin and not texts.isdisjoint(one.reasons)}
    return tuple(sorted(found or decision.rejected_by))
