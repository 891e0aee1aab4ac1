"""The verdicts of every Filter plugin on every node for one pod.

kube-scheduler stops at the first plugin that refuses a node, and at the first PreFilter plugin that rejects the pod. Here every
plugin judges every node with its own state: a rejection by PreFilter counts as a refusal of all nodes, a narrowing as a refusal
of the nodes that it leaves out, and the other plugins still run. A plugin that raises refuses every node with an error.

Nothing is changed: nodes with nominated pods are judged twice, in a what-if, as kube-scheduler does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from moorage.api.core import Pod
from moorage.core.cycle.cycle import judge, status_of_left_out
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import Nominated, contenders, judge_with_nominated
from moorage.errors import RAISED, PluginError
from moorage.framework.explaining import Detail, explains, has_terms
from moorage.framework.plugin_runner import UNTOLD, ask, drained, failure_text, run_pre_filter, told_alone, verdicts_of_rejects
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Code, Hold, Narrow, Reject, Skip, Status, Verdicts
from moorage.state.cluster import ClusterState
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, Snapshot

# The names of the nodes of a table by row, and their order. Both are kept until a node is added or removed.

_Rows = npt.NDArray[np.intp]


class NamesByRow(NamedTuple):
    """``arrangement`` is that of the table's change log; ``places`` has the position of each row in the order of names.

    Shapes  places (rows,)
    """

    arrangement: int
    names: Sequence[str]
    places: _Rows

    def in_order(self, rows: _Rows) -> _Rows:
        """Return these rows in the order of their names."""
        return rows[np.argsort(self.places[rows])]


_KEPT: Final[WeakKeyDictionary[NodeTable, NamesByRow]] = WeakKeyDictionary()


def row_names(table: NodeTable) -> NamesByRow:
    """Return the names of the nodes of a table, which must not be changed."""
    kept = _KEPT.get(table)
    if kept is None or kept.arrangement != table.changes.arrangement:
        names = [node.metadata.name for node in table.nodes]
        places = np.empty(len(names), dtype=np.intp)
        places[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        kept = _KEPT[table] = NamesByRow(table.changes.arrangement, names, places)
    return kept


#: Answers of PreFilter after which Filter of the same plugin passes all nodes: it skipped, rejected the pod or raised.
_PASSING: Final = (Skip, Hold, PluginError)


class Stage(Enum):
    """The stage of a refusal. ``NOMINATED``: the node is refused only because of pods that are nominated to it."""

    PRE_FILTER = "preFilter"
    FILTER = "filter"
    NOMINATED = "nominated"
    EXTENDER = "extender"


class Constraint(NamedTuple):
    """One term of a plugin: a condition that can refuse a node by itself."""

    plugin: str
    term: str


@dataclass(frozen=True)
class Judgement:
    """The verdicts of one plugin on all nodes at one stage. ``skips``: its PreFilter returned ``SKIP``, so it passes them all.

    ``plugin`` is None for a stage that belongs to no single plugin. ``rejects`` has the refusals of Filter; ``given`` the
    verdicts of any other stage.
    """

    name: str
    stage: Stage
    nodes: NodeView
    plugin: Any = None
    state: Any = None
    skips: bool = False
    rejects: Sequence[Reject] = ()
    given: Verdicts | None = None

    @cached_property
    def verdicts(self) -> Verdicts:
        """The status of each row."""
        return verdicts_of_rejects(self.name, self.rejects, self.nodes) if self.given is None else self.given

    @cached_property
    def refused(self) -> BoolArray:
        """The rows that the plugin refuses; shape (rows,)."""
        return np.not_equal(self.given.ids, 0) if self.given is not None else self._any(one.rows for one in self.rejects)

    @property
    def refuses_any(self) -> bool:
        """Whether the plugin refuses any row."""
        return (self.given is not None or len(self.rejects) > 0) and bool(self.refused.any())

    @cached_property
    def unresolvable(self) -> BoolArray:
        """The rows that the plugin refuses and where eviction cannot help; shape (rows,)."""
        if self.given is not None:
            hopeless = [status is not None and status.code is not Code.UNSCHEDULABLE for status in self.given.statuses]
            return np.array(hopeless)[self.given.ids]
        return self._any(one.rows & np.asarray(one.unresolvable | one.error) for one in self.rejects)

    def _any(self, masks: Iterable[BoolArray]) -> BoolArray:
        found = list(masks)
        if not found:
            return self.nodes.false()
        return found[0] if len(found) == 1 else np.logical_or.reduce(found)


@dataclass(frozen=True)
class EveryVerdict:
    """All judgements on one pod, in running order: PreFilter, then Filter, then the nominated pods.

    ``found`` are the results of PreFilter as kube-scheduler runs it; None if a plugin raised there.
    """

    pod: PodInfo
    profile: Profile
    snapshot: Snapshot
    judgements: tuple[Judgement, ...]
    found: PreFiltered | None

    @cached_property
    def names(self) -> Sequence[str]:
        """The node names, by row."""
        return row_names(self.snapshot.table).names

    @cached_property
    def refusing(self) -> tuple[Judgement, ...]:
        """The judgements that refuse any node."""
        return tuple(one for one in self.judgements if one.refuses_any)

    @cached_property
    def feasible(self) -> BoolArray:
        """The rows that nothing refuses; shape (rows,)."""
        return self.open_without(())

    def open_without(self, ignored: Container[str]) -> BoolArray:
        """Return the rows that nothing refuses but plugins of these names."""
        open_rows = np.ones(len(self.snapshot.table), dtype=bool)
        for one in self.refusing:
            if one.name not in ignored:
                open_rows &= ~one.refused
        return open_rows

    def statuses(self, row: int) -> list[Status]:
        """Return the status of each plugin that refuses a row, in running order."""
        found = (one.verdicts.status(row) for one in self.refusing)
        return [status for status in found if status is not None]

    def first(self, row: int) -> Status | None:
        """Return the status that kube-scheduler would report for a row, by the first plugin that refuses it."""
        return next(iter(self.statuses(row)), None)

    @cached_property
    def kinds(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The kinds of rows, which are rows with equal refusals: the first row of each kind, and the kind of each row."""
        kind: npt.NDArray[np.intp] = np.zeros(len(self.snapshot.table), dtype=np.intp)
        first: npt.NDArray[np.intp] = np.zeros(min(len(kind), 1), dtype=np.intp)
        for one in self.refusing:
            both = kind * len(one.verdicts.statuses) + one.verdicts.ids
            _, first, kind = np.unique(both, return_index=True, return_inverse=True)
        return first, kind

    @cached_property
    def constraints(self) -> Mapping[Constraint, BoolArray]:
        """The rows that each constraint refuses, in running order; only constraints that refuse any."""
        masks: dict[Constraint, BoolArray] = {}
        for one in self.refusing:
            for name, rows in self._terms(one):
                if rows.any():
                    key = Constraint(one.name, name)
                    masks[key] = masks[key] | rows if key in masks else rows
        return masks

    def _terms(self, one: Judgement) -> Iterable[tuple[str, BoolArray]]:
        """Return the terms of a plugin; its reasons if it names none, or if its terms do not cover exactly the refused rows.

        The rows that PreFilter leaves out are among those that the terms refuse.
        """
        if (
            one.stage in {Stage.FILTER, Stage.PRE_FILTER}
            and has_terms(one.plugin)
            and not one.verdicts.rows_with(Code.ERROR).size
        ):
            try:
                terms = list(one.plugin.terms(one.state, self.pod, self.snapshot.nodes))
            except RAISED:  # an explanation must not fail where the decision did not
                terms = []
            if one.stage is Stage.PRE_FILTER:
                terms = [(name, rows) for name, rows in terms if rows.any() and not (rows & ~one.refused).any()]
            if terms and np.array_equal(np.logical_or.reduce([rows for _, rows in terms]), one.refused):
                return terms
        return _by_reason(one.verdicts)

    def why(self, one: Judgement, row: int) -> Detail | None:
        """Return why a plugin refuses a row, in words and numbers; None if the plugin gives no details."""
        if one.stage is not Stage.FILTER or not explains(one.plugin):
            return None
        try:
            return one.plugin.why(one.state, self.pod, self.snapshot.nodes.at(row))
        except RAISED as error:  # an explanation must not fail where the decision did not
            return Detail(f"{one.name} failed in why: {failure_text(error)}")


def verdicts_now(scheduler: Scheduler, pod: Pod) -> EveryVerdict:
    """Return all judgements on a pod in the present state, by the profile of its scheduler."""
    profile = scheduler.profiles[pod.spec.scheduler_name]
    return verdicts_of_all(profile, PodInfo(pod), scheduler.snapshot, scheduler.queue.nominated)


def free_amount(nodes: NodeView, resource: str) -> IntArray:
    """Return the free amount of a resource on each row, or of ``pods``: how many more pods the nodes allow."""
    if resource == "pods":
        return nodes.allowed_pods - nodes.pod_count
    return nodes.allocatable(resource) - nodes.requested(resource)


def _by_reason(verdicts: Verdicts) -> Iterator[tuple[str, BoolArray]]:
    rows: dict[str, BoolArray] = {}
    for known, status in enumerate(verdicts.statuses):
        mask = verdicts.ids == known
        for reason in (status.reasons or ("left out without a reason",)) if status is not None else ():
            rows[reason] = rows[reason] | mask if reason in rows else mask
    yield from rows.items()


def verdicts_of_all(profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None = None) -> EveryVerdict:
    """Return the verdicts of every Filter plugin of a profile on every node for ``pod``, which is not on any node."""
    found = _as_kube_scheduler(profile, pod, snapshot)
    judged = EveryVerdict(pod, profile, snapshot, tuple(judgements_of(profile, pod, snapshot, found)), found)
    crowded = _crowded(judged, nominated or {})
    return judged if crowded is None else replace(judged, judgements=(*judged.judgements, crowded))


def judgements_of(profile: Profile, pod: PodInfo, snapshot: Snapshot, found: PreFiltered | None = None) -> Iterator[Judgement]:
    """Yield the verdicts of each plugin with its own state: first PreFilter's, then Filter's, each in running order.

    ``found`` are the results of PreFilter as kube-scheduler runs it; the message for narrowed nodes depends on them.
    """
    asked = {step.name: _ask(step, pod, snapshot) for step in profile.at("preFilter")}
    yield from _before_filter(profile, asked, found, snapshot)
    yield from (_filtered(step, asked, pod, snapshot.nodes) for step in profile.at("filter"))


def is_accepted(profile: Profile, pod: PodInfo, snapshot: Snapshot, row: int) -> bool:
    """Return whether no judgement of ``judgements_of`` refuses a row. Filter judges this row alone."""
    asked = {step.name: _ask(step, pod, snapshot) for step in profile.at("preFilter")}
    if any(one.refused[row] for one in _before_filter(profile, asked, None, snapshot)):
        return False
    node = snapshot.nodes.at(row)
    steps = (step for step in profile.at("filter") if not isinstance(asked.get(step.name), _PASSING))
    return all(_lets_in(step, _state_of(step, asked, pod), node) for step in steps)


@contextmanager
def off_its_node(cluster: ClusterState, uid: str, node: str = "") -> Iterator[None]:
    """Remove a pod from its node while the block runs, so that its own usage does not count against it.

    ``node``  where it is if the cluster does not know; a pod that is on no node stays there
    """
    table = cluster.table
    row = table.row_of.get(cluster.node_of(uid) or node)
    held = None if row is None else table.pods[row].get(uid)
    if row is None or held is None:
        yield
        return
    with table.what_if(row):
        table.remove_pod(row, held)
        yield


def engine_view(
    profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None = None
) -> tuple[PreFiltered, Verdicts]:
    """Return the results of PreFilter and the status of each row as kube-scheduler computes them, over all nodes.

    Raises  PluginError if a plugin raises
    """
    found = run_pre_filter(profile, pod, snapshot)
    verdicts = Verdicts(len(snapshot.table))
    if found.refused is not None:
        verdicts.pre_filter = found.refused
        verdicts.refuse(np.arange(len(verdicts)), found.refused)
        return found, verdicts
    asked = FilterInput(profile, found, pod)
    if found.nodes is None:
        judge(asked, snapshot.nodes, verdicts, nominated or {})
        return found, verdicts
    named = snapshot.nodes.named(found.nodes)
    verdicts.refuse(np.flatnonzero(~named), status_of_left_out(profile, found))
    judge(asked, NodeView(snapshot, np.flatnonzero(named)), verdicts, nominated or {})
    return found, verdicts


def _ask(step: Step, pod: PodInfo, snapshot: Snapshot) -> Any:
    """Run one PreFilter plugin and return its answer, or the PluginError that it ended with."""
    try:
        return ask(step, "preFilter", pod, snapshot)
    except PluginError as error:
        return error


def _as_kube_scheduler(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> PreFiltered | None:
    try:
        return run_pre_filter(profile, pod, snapshot)
    except PluginError:
        return None


def _before_filter(
    profile: Profile, asked: Mapping[str, Any], found: PreFiltered | None, snapshot: Snapshot
) -> Iterator[Judgement]:
    """Yield the judgements of PreFilter plugins that reject the pod, raise, or narrow the nodes."""
    for step in profile.at("preFilter"):
        answer = asked[step.name]
        if isinstance(answer, Hold):
            yield _on_all(step, Stage.PRE_FILTER, Status(answer.code, step.name, answer.reasons), snapshot)
        elif isinstance(answer, PluginError):
            yield _on_all(step, Stage.PRE_FILTER, _error(step, answer), snapshot)
        elif isinstance(answer, Narrow):
            verdicts = Verdicts(len(snapshot.table))
            others = np.flatnonzero(~snapshot.nodes.named(answer.nodes))
            verdicts.refuse(others, Status(Code.UNRESOLVABLE, step.name, (_narrowed(step.name, found),)))
            yield Judgement(step.name, Stage.PRE_FILTER, snapshot.nodes, step.plugin, answer.state, given=verdicts)


def _narrowed(plugin: str, found: PreFiltered | None) -> str:
    """Return kube-scheduler's reason for nodes that PreFilter plugins leave out."""
    if found is not None and found.refused is not None and not found.refused.plugin:
        return found.refused.message
    together = found.narrowed_by if found is not None and plugin in found.narrowed_by else (plugin,)
    return f"node(s) didn't satisfy plugin(s) [{' '.join(together)}]"


def _on_all(step: Step, stage: Stage, status: Status, snapshot: Snapshot, state: Any = None) -> Judgement:
    verdicts = Verdicts(len(snapshot.table))
    verdicts.refuse(np.arange(len(verdicts)), status)
    return Judgement(step.name, stage, snapshot.nodes, step.plugin, state, given=verdicts)


def _error(step: Step, error: PluginError) -> Status:
    return Status(Code.ERROR, step.name, (str(error),))


def _filtered(step: Step, asked: Mapping[str, Any], pod: PodInfo, nodes: NodeView) -> Judgement:
    """Run one Filter plugin alone over a view. It passes them all if its PreFilter skipped, rejected the pod or raised."""
    answer = asked.get(step.name)
    if isinstance(answer, _PASSING):
        return Judgement(step.name, Stage.FILTER, nodes, step.plugin, skips=isinstance(answer, Skip))
    state = answer.state if isinstance(answer, Narrow) else answer
    try:
        rejects = drained(step, _state_of(step, asked, pod), nodes)
    except PluginError as error:
        return _on_all(step, Stage.FILTER, _error(step, error), nodes.snapshot, state)
    return Judgement(step.name, Stage.FILTER, nodes, step.plugin, state, rejects=rejects)


def _state_of(step: Step, asked: Mapping[str, Any], pod: PodInfo) -> Any:
    """Return what a plugin's Filter receives: the state of its PreFilter; the pod if it has none."""
    answer = asked.get(step.name, pod)
    return answer.state if isinstance(answer, Narrow) else answer


def _lets_in(step: Step, state: Any, node: NodeView) -> bool:
    """Return whether one plugin accepts the node of a view with a single row."""
    hold = told_alone(step, state, node.first)
    if hold is not UNTOLD:
        return hold is None
    try:
        return not any(one.rows[0] for one in drained(step, state, node))
    except PluginError:
        return False


def _crowded(judged: EveryVerdict, nominated: Mapping[str, Sequence[PodInfo]]) -> Judgement | None:
    """Judge the nodes that are refused only with their nominated pods added; None if there are none."""
    table, found, pod = judged.snapshot.table, judged.found, judged.pod
    if found is None or found.refused is not None:
        return None
    verdicts = Verdicts(len(table))
    for name, pods in nominated.items():
        row = table.row_of.get(name)
        if row is not None and judged.feasible[row] and contenders(pods, pod):
            status = judge_with_nominated(FilterInput(judged.profile, found, pod), judged.snapshot, row, pods)
            if status is not None:
                verdicts.refuse(row, status)
    return Judgement("", Stage.NOMINATED, judged.snapshot.nodes, given=verdicts) if verdicts.ids.any() else None
