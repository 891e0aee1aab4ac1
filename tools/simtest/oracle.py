"""The oracle: check a recording against the invariants of scheduling.

        S1  a pod is bound once, and stays on its node
        S2  no node is overcommitted, unless another client caused it
        S3  each bind was valid by what its scheduler had seen
        S4  no bind is sent after the lease expired
        S5  no invalid pod is bound: terminating, ended, gated, or of another scheduler
        S6  victims have lower priority, are marked before they are deleted, and are deleted once, with their grace period
        S7  every Reserve is followed by PostBind or by Unreserve of all plugins
        S9  a scheduler's memory does not grow without load
        S13 no pod of a gang is bound before enough of its pods had nodes
        S14 to S17  volumes and devices, see ``holdings_oracle``
        S18 lists, see ``lists_oracle``
        L2  after all faults, no pod is pending that fits somewhere, nor a gang whose pods would

It reads only the ``Recording``: neither the scheduler's memory nor its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tools.simtest import oracle_rules
from tools.simtest.held_objects import holds_any
from tools.simtest.holdings_oracle import Holdings
from tools.simtest.lists_oracle import Lists
from tools.simtest.recording import (
    HELD,
    AttemptRecord,
    Called,
    Entry,
    Listed,
    Lost,
    MemoryRecord,
    Observed,
    RequestRecord,
    WriteRecord,
)
from tools.simtest.recording_index import choices_that_came_true, has, holds, reserving_plugins

__all__ = ["Terms", "judge"]

Document = dict[str, Any]


@dataclass(frozen=True)
class Terms:
    """The conditions of a run.

    ``settled``   the run ended without faults, so that everything has completed
    ``calm``      no request was executed after its sender had given up
    ``schedulers``  the names of the tested schedulers
    ``renew_s``   how long a renewed lease allows its holder to act
    """

    settled: bool = True
    calm: bool = True
    schedulers: tuple[str, ...] = ("default-scheduler",)
    renew_s: float = 10.0


@dataclass
class _View:
    """The state of one scheduler: the objects that it has seen, and the pods that it assumed."""

    nodes: dict[str, Document] = field(default_factory=dict)
    pods: dict[str, Document] = field(default_factory=dict)
    #: Decisions that led to a bind, and all decisions that were not undone yet.
    assumed: dict[str, str] = field(default_factory=dict)
    hoped: dict[str, str] = field(default_factory=dict)

    def placed(self, assumed: dict[str, str]) -> list[tuple[Document, str]]:
        held = []
        for uid, pod in self.pods.items():
            node = pod["spec"].get("nodeName") or assumed.get(uid)
            if node and not oracle_rules.is_over(pod):
                held.append((pod, node))
        return held


class _Choice(NamedTuple):
    """A decision: why it was wrong by what its scheduler had seen ("" for a valid one).

    ``pods`` by UID and ``nodes`` by name are what it could know: the objects that it had seen, and those in its lists.
    """

    reason: str
    pods: dict[str, Document]
    nodes: dict[str, Document]


def judge(entries: Iterable[Entry], terms: Terms = Terms()) -> list[str]:
    """Return every broken invariant, with time and objects."""
    entries = list(entries)
    judgement = _Judgement(entries, terms)
    for number, entry in enumerate(entries):
        judgement.read(number, entry)
    return judgement.close()


class _Judgement:
    def __init__(self, entries: list[Entry], terms: Terms) -> None:
        self.terms = terms
        self.broken: list[str] = []
        self._nodes: dict[str, Document] = {}
        self._pods: dict[str, Document] = {}
        self._versions: dict[tuple[str, str, int], Document] = {}
        self._bound: dict[str, str] = {}
        self._views: dict[str, _View] = {}
        self._unseen: dict[str, list[WriteRecord]] = {}
        self._choices: dict[tuple[str, str, str], _Choice] = {}
        self._leases: dict[str, list[float]] = {}
        self._reserved: dict[tuple[str, str], list[Called]] = {}
        self._wanted_gone: dict[str, list[tuple[str, str]]] = {}
        self._marked: set[str] = set()
        self._deletes: dict[tuple[str, str], int] = {}
        self._writers = {entry.actor for entry in entries if isinstance(entry, Observed)}
        self._bound_by: dict[str, str] = {}
        self._groups: dict[str, Document] = {}
        self._holdings = Holdings(self._say)
        self._lists = Lists(entries, self._say)
        self._newest = 0
        #: Group → its pods that were ever bound, had a successful attempt, or were reserved together with enough others.
        self._had_places: dict[str, set[str]] = {}
        self._weights: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._came_true = choices_that_came_true(entries)
        self._plugins = reserving_plugins(entries)
        self._last_renewals(entries)

    def _last_renewals(self, entries: list[Entry]) -> None:
        for entry in entries:
            if (
                isinstance(entry, RequestRecord)
                and "/leases" in entry.path
                and entry.code in {200, 201}
                and entry.holder == entry.actor
            ):
                self._leases.setdefault(entry.actor, []).append(entry.at_s)

    def _say(self, rule: str, at_s: float, text: str) -> None:
        self.broken.append(f"{rule}: at {at_s:.3f}: {text}")

    def read(self, number: int, entry: Entry) -> None:
        match entry:
            case WriteRecord():
                self._written(entry)
            case Lost():
                self._lost(entry)
            case RequestRecord():
                self._asked(entry)
            case Listed():
                self._lists.listed(entry)
            case Observed():
                self._lists.observed(entry)
                self._took_in(entry)
            case AttemptRecord():
                self._lists.tried(number, entry)
                self._tried(number, entry)
            case Called():
                self._called(entry)
            case MemoryRecord():
                self._weights.setdefault((entry.actor, entry.what), []).append((entry.at_s, entry.count))

    # -- the API --------------------------------------------------------------------------------------------------------

    def _written(self, entry: WriteRecord) -> None:
        self._newest = max(self._newest, entry.version)
        if entry.kind == "PodGroup":
            if entry.change == "DELETED":
                self._groups.pop(entry.key, None)
            else:
                self._groups[entry.key] = entry.document
        if entry.kind not in {"Pod", "Node", *HELD}:
            return
        self._versions[entry.kind, entry.uid, entry.version] = entry.document
        if entry.kind in HELD:
            self._holdings.written(entry, ours=entry.actor in self._writers)
            return
        if entry.kind == "Node":
            if entry.change == "DELETED":
                self._nodes.pop(entry.key, None)
            else:
                self._nodes[entry.key] = entry.document
            return
        before = self._pods.get(entry.uid)
        if entry.change == "DELETED":
            self._pods.pop(entry.uid, None)
            return
        self._pods[entry.uid] = entry.document
        if entry.actor in self._writers and "DisruptionTarget" in str(entry.document["status"].get("conditions")):
            self._marked.add(entry.uid)
        self._check_place(entry, before)

    def _lost(self, entry: Lost) -> None:
        """Restore the state without the lost writes. A scheduler that saw them is judged by its view until that changes."""
        self._nodes = {node["metadata"]["name"]: node for node in entry.nodes}
        self._pods = {pod["metadata"]["uid"]: pod for pod in entry.pods}
        self._bound = {uid: pod["spec"]["nodeName"] for uid, pod in self._pods.items() if pod["spec"].get("nodeName")}
        self._bound_by = {uid: actor for uid, actor in self._bound_by.items() if uid in self._bound}
        self._holdings.lost(entry)
        self._lists.lost(entry, self._newest)

    def _check_place(self, entry: WriteRecord, before: Document | None) -> None:
        """Check S1, and for binds of the tested schedulers S2, S3 and S5."""
        node = entry.document["spec"].get("nodeName", "")
        was = self._bound.get(entry.uid, "")
        if was and node != was:
            self._say("S1", entry.at_s, f"{entry.key} moved from {was} to {node or 'no node'}")
        if not node or was:
            return
        self._bound[entry.uid] = node
        self._bound_by[entry.uid] = entry.actor
        self._had_places.setdefault(oracle_rules.group_of(entry.document), set()).add(entry.uid)
        if entry.actor in self._writers and before is not None:
            self._check_bind(entry, before, node)

    def _check_bind(self, entry: WriteRecord, before: Document, node: str) -> None:
        choice = self._choices.get((entry.actor, entry.uid, node))
        if before["spec"]["schedulerName"] not in self.terms.schedulers:
            self._say("S5", entry.at_s, f"{entry.key} belongs to another scheduler")
        if before["metadata"].get("deletionTimestamp") or before["spec"].get("schedulingGates"):
            self._say("S5", entry.at_s, f"{entry.key} was terminating or gated when it was bound")
        if choice is None:
            self._say("S3", entry.at_s, f"{entry.key} was bound to {node}, without a decision of {entry.actor}")
            return
        group = oracle_rules.group_of(entry.document)
        least, had = oracle_rules.least_of(self._groups.get(group)), len(self._had_places[group])
        if had < least:
            self._say("S13", entry.at_s, f"{entry.key} was bound when {had} of the required {least} pods of its gang had nodes")
        if choice.reason and self.terms.calm:
            self._say("S3", entry.at_s, f"{entry.key} was bound to {node} against what {entry.actor} saw: {choice.reason}")
        self._check_room(entry, node, choice)
        self._holdings.bound(entry, node, self._nodes, calm=self.terms.calm)

    def _check_room(self, entry: WriteRecord, node: str, choice: _Choice) -> None:
        """Check S2: the node is not overcommitted, unless something changed that the scheduler could not know."""
        held = self._nodes.get(node)
        if held is None:
            return
        here = [pod for pod in self._pods.values() if pod["spec"].get("nodeName") == node and not oracle_rules.is_over(pod)]
        what = oracle_rules.crowds(entry.document, held, [pod for pod in here if pod["metadata"]["uid"] != entry.uid])
        if not what or not self.terms.calm:
            return
        if choice.nodes.get(node) == held and not any(self._is_news(pod, choice, entry.actor) for pod in here):
            self._say("S2", entry.at_s, f"{node} has {what} since {entry.key} was bound to it")

    def _is_news(self, pod: Document, choice: _Choice, actor: str) -> bool:
        """Return True for a placed pod that a scheduler could not know; it knows its own binds without a watch event."""
        uid = pod["metadata"]["uid"]
        known = choice.pods.get(uid)
        if known is None or oracle_rules.is_over(known):
            return True
        return known != pod and self._bound_by.get(uid) != actor

    # -- requests -------------------------------------------------------------------------------------------------------

    def _asked(self, entry: RequestRecord) -> None:
        if entry.actor not in self._writers:
            return
        if entry.path.endswith("/binding") and self._leases.get(entry.actor) is not None:
            renewals = [at for at in self._leases[entry.actor] if at <= entry.at_s]
            if not renewals or entry.at_s > max(renewals) + self.terms.renew_s:
                self._say("S4", entry.at_s, f"{entry.actor} sent {entry.path} after its lease had expired")
        if entry.method == "DELETE" and "/pods/" in entry.path and entry.code == 200:
            self._check_victim(entry)

    def _check_victim(self, entry: RequestRecord) -> None:
        """Check S6."""
        if entry.uid not in self._marked:
            self._say("S6", entry.at_s, f"{entry.path} was deleted before it was marked")
        if entry.grace_given:
            self._say("S6", entry.at_s, f"{entry.path} was deleted with another grace period than its own")
        if not self._wanted_gone.get(entry.uid):
            self._say("S6", entry.at_s, f"{entry.path} was deleted, but no preemptor selected it")
        for preemptor, _ in set(self._wanted_gone.get(entry.uid, ())):
            self._deletes[entry.uid, preemptor] = self._deletes.get((entry.uid, preemptor), 0) + 1
        asked_for = len(self._wanted_gone.get(entry.uid, ()))
        if max((count for (uid, _), count in self._deletes.items() if uid == entry.uid), default=0) > asked_for:
            self._say("S6", entry.at_s, f"{entry.path} was deleted more often than it was selected")

    # -- the schedulers -------------------------------------------------------------------------------------------------

    def _view(self, actor: str) -> _View:
        return self._views.setdefault(actor, _View())

    def _took_in(self, entry: Observed) -> None:
        view = self._view(entry.actor)
        document = self._versions.get((entry.kind, entry.uid, entry.version))
        if entry.kind in HELD and (entry.gone or document is not None):
            self._holdings.seen_by(entry.actor).put(entry.kind, entry.key, None if entry.gone else document)
        elif entry.kind == "Node" and entry.gone:
            view.nodes.pop(entry.key, None)
        elif entry.kind == "Node" and document is not None:
            view.nodes[entry.key] = document
        if entry.kind == "Pod":
            self._took_in_pod(entry, view, document)
        else:
            self._holdings.look(entry.actor, view.nodes)

    def _took_in_pod(self, entry: Observed, view: _View, document: Document | None) -> None:
        for uid in [uid for uid, pod in view.pods.items() if _key(pod) == entry.key and uid != entry.uid and not entry.gone]:
            del view.pods[uid]
        if entry.gone:
            view.pods.pop(entry.uid, None)
            view.assumed.pop(entry.uid, None)
            view.hoped.pop(entry.uid, None)
        elif document is not None:
            view.pods[entry.uid] = document

    def _tried(self, number: int, entry: AttemptRecord) -> None:
        view = self._view(entry.actor)
        for victim in entry.victims:
            self._check_choice_of_victim(entry, victim, view)
            view.hoped.pop(victim, None)  # a victim that is not bound yet releases its node immediately
        if not entry.node:
            if not entry.victims:
                view.assumed.pop(entry.uid, None)
            return
        pod = view.pods.get(entry.uid)
        node = view.nodes.get(entry.node)
        if pod is None or node is None:
            reason = "it had not seen the pod or the node"
        else:
            # A pod whose attempt failed later may have made this decision possible, but cannot make it wrong.
            reason = oracle_rules.fits_beside(pod, node, view.nodes, view.placed(view.assumed))
            reason = reason and oracle_rules.fits_beside(pod, node, view.nodes, view.placed(view.hoped))
            reason = reason or self._holdings.seen_by(entry.actor).lacks(pod, node)
            self._holdings.chose(entry.actor, pod, entry.node, view.nodes)
        self._choices[entry.actor, entry.uid, entry.node] = self._choice(reason, entry.actor, view)
        if pod is not None:
            self._had_places.setdefault(oracle_rules.group_of(pod), set()).add(entry.uid)
        # Later decisions are judged only by decisions that led to a bind.
        view.hoped[entry.uid] = entry.node
        if number in self._came_true:
            view.assumed[entry.uid] = entry.node

    def _choice(self, reason: str, actor: str, view: _View) -> _Choice:
        pods, nodes = dict(view.pods), dict(view.nodes)
        for uid, (kind, version) in self._lists.waiting(actor).items():
            document = self._versions.get((kind, uid, version))
            if document is not None and kind == "Pod":
                pods[uid] = document
            elif document is not None and kind == "Node":
                nodes[document["metadata"]["name"]] = document
        return _Choice(reason, pods, nodes)

    def _check_choice_of_victim(self, entry: AttemptRecord, victim: str, view: _View) -> None:
        mine, its = view.pods.get(entry.uid), view.pods.get(victim)
        if mine is None or its is None:
            return
        self._wanted_gone.setdefault(victim, []).append((entry.uid, entry.actor))
        if min(self._priorities(its)) >= max(self._priorities(mine)):
            self._say("S6", entry.at_s, f"{_key(mine)} preempts {_key(its)}, whose priority is not lower")
        if mine["spec"].get("preemptionPolicy") == "Never":
            self._say("S6", entry.at_s, f"{_key(mine)} preempts {_key(its)}, but its preemptionPolicy is Never")

    def _priorities(self, pod: Document) -> list[int]:
        """Return the priorities that may apply to a pod: its own, and that of its group."""
        group = self._groups.get(oracle_rules.group_of(pod))
        given = None if group is None else group["spec"].get("priority")
        return [oracle_rules.priority_of(pod), *([] if given is None else [int(given)])]

    def _called(self, entry: Called) -> None:
        """Check S7: Reserve opens an attempt; PostBind or Unreserve of all plugins closes it."""
        calls = self._reserved.setdefault((entry.actor, entry.uid), [])
        if entry.point == "unreserve":
            self._view(entry.actor).hoped.pop(entry.uid, None)
        if entry.point == "reserve" and (any(one.point != "reserve" for one in calls) or has(calls, entry)):
            self._close_attempt(calls)
            calls.clear()
        calls.append(entry)
        if holds(calls, self._plugins):
            self._holds_a_place(entry)

    def _holds_a_place(self, entry: Called) -> None:
        """Record for S13 that a gang had nodes: enough of its pods were reserved at once, even if Permit fails later.

        The pods that waited at Permit are admitted by then, in kube-scheduler too.
        """
        pods = self._view(entry.actor).pods
        pod = pods.get(entry.uid)
        group = oracle_rules.group_of(pod) if pod is not None else ""
        if not group:
            return
        mates = {uid for uid, other in pods.items() if oracle_rules.group_of(other) == group}
        there = {uid for uid in mates if uid in self._bound or holds(self._reserved.get((entry.actor, uid), []), self._plugins)}
        if len(there) >= oracle_rules.least_of(self._groups.get(group)):
            self._had_places.setdefault(group, set()).update(there)

    def _close_attempt(self, calls: list[Called]) -> None:
        undone = tuple(one.plugin for one in calls if one.point == "unreserve")
        bound = tuple(one.plugin for one in calls if one.point == "post_bind")
        if (undone, bound) not in {(tuple(reversed(self._plugins)), ()), ((), self._plugins)}:
            reserved = [one.plugin for one in calls if one.point == "reserve"]
            text = f"{calls[-1].uid}: Reserve of {reserved}, Unreserve of {undone}, PostBind of {bound}"
            self._say("S7", calls[-1].at_s, text)

    # -- the end --------------------------------------------------------------------------------------------------------

    def close(self) -> list[str]:
        for calls in self._reserved.values():
            if any(one.point != "reserve" for one in calls):  # otherwise the scheduler was stopped in between
                self._close_attempt(calls)
        if self.terms.settled:
            self._check_waiting()
        self._check_weights()
        return self.broken

    def _check_weights(self) -> None:
        """Check S9: the maximum of the last third exceeds that of the first third by at most a tenth."""
        for (actor, what), weights in self._weights.items():
            third = max(1, len(weights) // 3)
            first, last = (max(count for _, count in part) for part in (weights[:third], weights[-third:]))
            if last > first * 1.1:
                self._say("S9", weights[-1][0], f"{actor} had {first} {what} at first, and {last} at the end")

    def _check_waiting(self) -> None:
        """Check L2: no pending pod fits on a node, or could preempt others."""
        alive = [pod for pod in self._pods.values() if not oracle_rules.is_over(pod)]
        waiting = [pod for pod in alive if self._is_ours_to_place(pod)]
        placed = [(pod, pod["spec"]["nodeName"]) for pod in alive if pod["spec"].get("nodeName")]
        self._check_gangs(waiting, placed)
        for pod in waiting:
            if oracle_rules.group_of(pod):
                continue
            promised = [
                (other, other["status"]["nominatedNodeName"])
                for other in waiting
                if other["status"].get("nominatedNodeName") and oracle_rules.priority_of(other) >= oracle_rules.priority_of(pod)
            ]
            for name, node in self._nodes.items():
                if self._holdings.truth.lacks(pod, node):
                    continue
                if not oracle_rules.fits_beside(pod, node, self._nodes, [*placed, *promised]):
                    self._say("L2", float("inf"), f"{_key(pod)} is pending, but fits on {name}")
                    break
                if self._could_preempt(pod, node, placed, promised):
                    self._say("L2", float("inf"), f"{_key(pod)} is pending, but could preempt pods on {name}")
                    break

    def _check_gangs(self, waiting: list[Document], placed: list[tuple[Document, str]]) -> None:
        """Check L2 for gangs, whose pods are equal: place the pending ones one after the other."""
        for key, group in self._groups.items():
            mine = [pod for pod in waiting if oracle_rules.group_of(pod) == key]
            there = [(pod, on) for pod, on in placed if oracle_rules.group_of(pod) == key]
            if len({oracle_rules.priority_of(pod) for pod in mine}) > 1 or oracle_rules.keeps_together(group):
                continue
            held = list(placed)
            for pod in mine:
                fits = (
                    name for name, node in self._nodes.items() if not oracle_rules.fits_beside(pod, node, self._nodes, held)
                )
                if (name := next(fits, None)) is not None:
                    held.append((pod, name))
            found = len(held) - len(placed)
            if found and found + len(there) >= oracle_rules.least_of(group):
                self._say(
                    "L2", float("inf"), f"{len(mine)} pods of {key} are pending, but {found} fit in addition to {len(there)}"
                )

    def _could_preempt(
        self, pod: Document, node: Document, placed: list[tuple[Document, str]], promised: list[tuple[Document, str]]
    ) -> bool:
        # Neither a new volume nor a new neighbor wakes a pod that Fit rejected everywhere, in kube-scheduler as here, although
        # preemption might succeed then. Pods that depend on either are not judged.
        if pod["spec"].get("preemptionPolicy") == "Never" or oracle_rules.fits_alone(pod, node):
            return False
        if holds_any(pod) or oracle_rules.needs_neighbors(pod):
            return False
        mine, name = oracle_rules.priority_of(pod), node["metadata"]["name"]
        staying = [(other, on) for other, on in placed if on != name or oracle_rules.priority_of(other) >= mine]
        if any(other["metadata"].get("deletionTimestamp") for other, on in placed if on == name):
            return False
        return not oracle_rules.fits_beside(pod, node, self._nodes, [*staying, *promised])

    def _is_ours_to_place(self, pod: Document) -> bool:
        spec, metadata = pod["spec"], pod["metadata"]
        free = not spec.get("nodeName") and not spec.get("schedulingGates") and not metadata.get("deletionTimestamp")
        return free and spec["schedulerName"] in self.terms.schedulers


def _key(pod: Document) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
