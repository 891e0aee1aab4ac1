"""Extenders: HTTP services that filter, score, preempt and bind in addition to the plugins.

This module builds the requests and applies the replies; it does no HTTP. An attempt that calls extenders is an ``Asking``
generator: it yields questions to send at the same time, and receives their answers in the same order.

A failed extender is skipped if it is ignorable. A failure to prioritize is always skipped.

Source  kube-scheduler 1.36, extender.go; schedule_one.go, findNodesThatPassExtenders and prioritizeNodes;
        framework/preemption/preemption.go, callExtenders
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from moorage.api.core import Container
from moorage.core.extenders.wire import (
    EXTENDER,
    ExtenderError,
    FilterReply,
    MetaVictims,
    Whole,
    bind_args,
    node_args,
    partial,
    preempt_args,
    read_filter_reply,
    read_preempt_reply,
    read_priorities,
    shown,
)
from moorage.core.preemption.candidates import Candidate
from moorage.core.preemption.reprieve import Victims
from moorage.framework.effects import Question
from moorage.framework.plugin_runner import MAX_SCORE, Scores
from moorage.framework.verdicts import Code, Status, Verdicts
from moorage.state.table import NodeTable
from moorage.state.view import IntArray, PodInfo, Snapshot

T = TypeVar("T")

#: Extenders score up to 10, plugins up to 100.
_SCALE: Final = MAX_SCORE // 10
#: The largest absolute value of a weighted score, so that no sum of them overflows 64 bits.
_MOST: Final = 2**55
#: The status of a node that an extender leaves out without a reason.
_LEFT_OUT: Final = Status(Code.UNRESOLVABLE, EXTENDER, ())

_Rows: TypeAlias = npt.NDArray[np.intp]


class ExtenderAnswer(NamedTuple):
    """The body of a reply, or the error of the call."""

    body: bytes = b""
    error: str | None = None


Asking: TypeAlias = Generator[tuple[Question, ...], tuple[ExtenderAnswer, ...], T]


class HTTPExtender(Struct, frozen=True):
    """One extender. ``number`` is its place in the configuration; an empty verb is not called.

    ``managed``: the extender is called only for pods that request one of these resources; empty: for all pods. ``replaces``:
    the nodes in its reply replace ours for scoring (see ``moorage.core.extenders.nodes``). ``binds_without``: if it is
    ignorable and cannot bind, the Bind plugins do.
    """

    number: int
    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 1
    timeout_s: float = 5.0
    node_cache_capable: bool = False
    ignorable: bool = False
    managed: frozenset[str] = frozenset()
    replaces: bool = True
    binds_without: bool = True

    @property
    def shown(self) -> str:
        """The URL with its password masked."""
        return shown(self.url)

    def is_interested(self, pod: PodInfo) -> bool:
        if not self.managed:
            return True
        return any(map(self._manages, (*pod.spec.containers, *pod.spec.init_containers)))

    def _manages(self, container: Container) -> bool:
        resources = container.resources
        return not (self.managed.isdisjoint(resources.requests) and self.managed.isdisjoint(resources.limits))

    def question(self, verb: str, body: bytes) -> Question:
        return Question(self.number, verb, f"{self.url.rstrip('/')}/{verb}", body, self.timeout_s)

    def to_bind(self, pod: PodInfo, node: str) -> Question:
        return self.question(self.bind_verb, bind_args(pod.pod, node))


def in_order(extenders: Iterable[HTTPExtender]) -> tuple[HTTPExtender, ...]:
    """Return extenders in the order they are called: ignorable ones last."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def binder_of(extenders: Iterable[HTTPExtender], pod: PodInfo) -> HTTPExtender | None:
    """Return the first extender that binds the pod; None if none does."""
    return next((one for one in extenders if one.bind_verb and one.is_interested(pod)), None)


def without_asking(attempt: Asking[T]) -> T:
    """Run an attempt that calls no extender."""
    try:
        next(attempt)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("an attempt without extenders called one")


@dataclass
class Consultation:
    """The extenders interested in a pod, in order. ``done_without`` collects the errors of those that were skipped."""

    pod: PodInfo
    extenders: Sequence[HTTPExtender] = ()
    whole: Whole = partial
    done_without: list[ExtenderError] = field(default_factory=list)
    #: True once an extender's reply has replaced the nodes to score.
    bare: bool = False

    @classmethod
    def of(cls, pod: PodInfo, extenders: Iterable[HTTPExtender], whole: Whole) -> Consultation:
        """Return the consultation for a pod. ``whole`` returns an object's full JSON."""
        return cls(pod, [one for one in extenders if one.is_interested(pod)], whole)

    @property
    def decides(self) -> bool:
        """True if an extender filters or scores nodes for the pod."""
        return any(one.filter_verb or one.prioritize_verb for one in self.extenders)

    def _pass_over(self, extender: HTTPExtender, verb: str, error: ExtenderError) -> None:
        self.done_without.append(ExtenderError(f"extender {extender.shown} failed in {verb} and was skipped: {error}"))

    def _about_nodes(self, extender: HTTPExtender, table: NodeTable, rows: _Rows) -> bytes:
        nodes = [table.nodes[row] for row in rows.tolist()]
        names = (node.name for node in nodes)
        return node_args(self.pod.pod, nodes, names, by_name=extender.node_cache_capable, whole=self.whole)

    def filter(self, rows: _Rows, snapshot: Snapshot, verdicts: Verdicts) -> Asking[_Rows]:
        """Return the feasible rows that pass all extenders; the others get a status in ``verdicts``.

        Raises  ExtenderError
        """
        noted: dict[int, Status] = {}
        for extender in self.extenders:
            if not len(rows):
                break
            if not extender.filter_verb:
                continue
            table = snapshot.table
            question = extender.question(extender.filter_verb, self._about_nodes(extender, table, rows))
            (answer,) = yield (question,)
            try:
                reply = read_filter_reply(_body(answer))
                passed = _passed(extender, reply, rows, table)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                self._pass_over(extender, "filter", error)
                continue
            self.bare = self.bare or (extender.replaces and not _goes_by_names(extender, reply))
            noted |= _statuses(reply, table)
            for row in np.setdiff1d(rows, passed).tolist():
                verdicts.refuse(row, noted.get(row, _LEFT_OUT))
            for row, status in noted.items():
                if verdicts.ids[row]:
                    verdicts.refuse(row, status)
            rows = passed
        return rows

    def prioritize(self, scores: Scores, snapshot: Snapshot) -> Asking[Scores]:
        """Return the scores with the extenders' scores added. All extenders are called at once; one that fails adds none."""
        asked = [one for one in self.extenders if one.prioritize_verb]
        if not asked:
            return scores
        table = snapshot.table
        answers = yield tuple(one.question(one.prioritize_verb, self._about_nodes(one, table, scores.rows)) for one in asked)
        total, raw, final, weights = scores.total, dict(scores.raw), dict(scores.final), dict(scores.weights)
        at_of = {table.nodes[row].name: at for at, row in enumerate(scores.rows.tolist())}
        for extender, answer in zip(asked, answers, strict=True):
            try:
                given = _given(extender, read_priorities(_body(answer)), at_of)
            except ExtenderError as error:
                self._pass_over(extender, "prioritize", error)
                continue
            name = f"{EXTENDER} {extender.shown}"
            raw[name], final[name], weights[name] = given, given * _SCALE * extender.weight, extender.weight
            total = total + final[name]
        return Scores(scores.rows, total, raw, final, weights)

    def preempt(self, candidates: Sequence[Candidate], snapshot: Snapshot) -> Asking[list[Candidate]]:
        """Return the candidates for preemption that all extenders keep, with the victims they keep or name.

        Raises  ExtenderError
        """
        left = {one.row: one for one in candidates}
        for extender in self.extenders:
            if not left:
                break
            if not extender.preempt_verb:
                continue
            table = snapshot.table
            victims = {
                table.nodes[row].name: ([pod.pod for pod in one.victims.pods], one.victims.violations)
                for row, one in left.items()
            }
            body = preempt_args(self.pod.pod, victims, by_uid=extender.node_cache_capable, whole=self.whole)
            (answer,) = yield (extender.question(extender.preempt_verb, body),)
            try:
                named = _named_victims(extender, read_preempt_reply(_body(answer)), table)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                self._pass_over(extender, "preempt", error)
                continue
            # The candidates that stay keep their order, because the first of equals is chosen.
            order = [*(row for row in left if row in named), *(row for row in named if row not in left)]
            left = {row: named[row] for row in order}
        return list(left.values())


def _body(answer: ExtenderAnswer) -> bytes:
    if answer.error is not None:
        raise ExtenderError(answer.error)
    return answer.body


def _goes_by_names(extender: HTTPExtender, reply: FilterReply) -> bool:
    return extender.node_cache_capable and reply.names is not None


def _passed(extender: HTTPExtender, reply: FilterReply, rows: _Rows, table: NodeTable) -> _Rows:
    """Return the rows whose nodes the reply lists as passing, sorted.

    Raises  ExtenderError for a node that was not in the request
    """
    names = reply.names if _goes_by_names(extender, reply) else reply.nodes
    offered = {table.nodes[row].name: row for row in rows.tolist()}
    for name in names or ():
        if name not in offered:
            text = f'extender "{extender.shown}" claims a filtered node "{name}" which is not found in the input node list'
            raise ExtenderError(text)
    return np.array(sorted({offered[name] for name in names or ()}), dtype=np.intp)


def _statuses(reply: FilterReply, table: NodeTable) -> dict[int, Status]:
    """Return the statuses of the nodes that fail by a reply; unresolvable ones take precedence."""
    statuses: dict[int, Status] = {}
    for code, said in ((Code.UNSCHEDULABLE, reply.failed), (Code.UNRESOLVABLE, reply.unresolvable)):
        for name, text in said.items():
            row = table.row_of.get(name)
            if row is not None:
                statuses[row] = Status(code, EXTENDER, (text,))
    return statuses


def _given(extender: HTTPExtender, priorities: Iterable[tuple[str, int]], at_of: dict[str, int]) -> IntArray:
    """Return the scores that an extender gave to the requested nodes; several scores for one node are added."""
    given = [0] * len(at_of)
    for name, score in priorities:
        at = at_of.get(name)
        if at is not None:
            given[at] += score
    if given and max(map(abs, given)) * _SCALE * extender.weight > _MOST:
        raise ExtenderError(f"the score {max(given, key=abs)} is far too large; scores are in the range [0, 10]")
    return np.array(given, dtype=np.int64)


def _named_victims(extender: HTTPExtender, reply: dict[str, MetaVictims], table: NodeTable) -> dict[int, Candidate]:
    found: dict[int, Candidate] = {}
    for name, named in reply.items():
        row = table.row_of.get(name)
        if row is None:
            raise ExtenderError(f'nodeinfo not found for node name "{name}"')
        on_node = table.pods[row]
        uids = dict.fromkeys(named.uids)
        for uid in uids:
            if uid not in on_node:
                raise ExtenderError(
                    f"extender: {extender.shown} claims to preempt pod (UID: &{{{uid}}}) on node: {name},"
                    " but the pod is not found on that node"
                )
        if uids:
            pods = tuple(on_node[uid] for uid in uids)
            found[row] = Candidate(row, Victims(pods, pods[: max(0, named.violations)]))
        elif not extender.ignorable:
            raise ExtenderError(f'expected at least one victim pod on node "{name}"')
    return found
