"""What-ifs: run Filter over nodes as if some pods were removed and others added.

A what-if changes the node table itself for the length of a ``with`` block and restores it afterwards. It calls ``add_pod`` and
``remove_pod`` of plugins whose PreFilter state depends on other pods. Preemption uses what-ifs, and so does Filter on a node
with nominated pods.

Within one what-if most plugins run only once: a taint does not depend on the other pods of the node. If every active plugin
reads only sums over pods, or ignores the pods that move, ``ManyNodes`` tries many nodes at once by changing their columns
instead of moving pods; so do ``judge_nominated`` and preemption for nodes with nominated pods, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.core.preemption.filter_input import FilterInput
from moorage.framework.plugin_runner import UNTOLD, ask, drained, run_filter, shifted, told_alone
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import Status, Verdicts
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

T = TypeVar("T")

#: Node name → pods nominated to it, most important first.
Nominated = Mapping[str, Sequence[PodInfo]]


def contenders(nominated: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
    """Return the nominated pods that ``pod`` must leave room for: other pods of the same or a higher priority."""
    return [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]


class Fewer(NamedTuple):
    """The plugins that have to run again while pods move on a node that the pod has fitted.

    ``rest`` is the profile without the Filter plugins that do not read pods. Once the pod has fitted, only ``rest`` runs.
    If it is None, all plugins run every time.

    Pods that are ``ignored`` by all plugins except those that read sums only leave the sums of the node, and nothing else.
    ``summing`` is the profile with the Filter plugins that read sums: once the pod has fitted, only they run after such a pod
    was added.
    """

    rest: Profile | None = None
    summing: Profile | None = None
    ignored: Callable[[PodInfo], bool] | None = None


_ALL_AGAIN: Final = Fewer()


class OneNode:
    """One node with pods added and removed, until the block ends."""

    def __init__(
        self, asked: FilterInput, snapshot: Snapshot, row: int, nominated: Sequence[PodInfo], fewer: Fewer = _ALL_AGAIN
    ) -> None:
        self._profile = asked.profile
        self._found = asked.found
        self._pod = asked.pod
        self._snapshot = snapshot
        self._row = row
        self._nominated = contenders(nominated, asked.pod)
        self._rest, self._summing, self._ignored = fewer
        #: The ignored pods that are out of the sums.
        self._out: dict[str, PodInfo] = {}
        #: True while only sums have changed since the pod last fitted.
        self._fitted = False
        self._view = NodeView(snapshot, np.array([row], dtype=np.intp))
        self._block = snapshot.table.what_if(row)

    def __enter__(self) -> OneNode:
        self._block.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pod in self._out.values():
            self._snapshot.table.account(self._row, pod, 1)
        self._block.__exit__(kind, error, trace)

    @property
    def node(self) -> NodeInfo:
        return NodeInfo(self._snapshot.table, self._row)

    def add(self, pod: PodInfo) -> None:
        """Add a pod to the node."""
        if self._out.pop(pod.uid, None) is not None:
            self._snapshot.table.account(self._row, pod, 1)
            return
        self._fitted = False
        self._snapshot.table.add_pod(self._row, pod)
        self._found = shifted(self._profile, self._found, self._pod, [("add_pod", pod)], self.node)

    def remove(self, pod: PodInfo) -> None:
        """Remove a pod from the node."""
        if self._ignored is not None and self._ignored(pod):
            self._out[pod.uid] = pod
            self._snapshot.table.account(self._row, pod, -1)
            return
        self._fitted = False
        self._snapshot.table.remove_pod(self._row, pod)
        self._found = shifted(self._profile, self._found, self._pod, [("remove_pod", pod)], self.node)

    def miss(self, row: int, pod: PodInfo, *, back: bool = False) -> None:
        """Tell the plugins whose state depends on pods of other nodes that a pod of another row is gone, or is ``back``.

        The other row does not change.
        """
        if self._ignored is None or not self._ignored(pod):
            self._fitted = False
            change = "add_pod" if back else "remove_pod"
            self._found = shifted(self._profile, self._found, self._pod, [(change, pod)], NodeInfo(self._snapshot.table, row))

    def refused_by(self) -> Status | None:
        """Filter the node as it is now, first with its contending nominated pods, then without. Return None if the pod fits."""
        status = self._crowded(OneNode.refused_by) or self._judge()
        if status is None and self._rest is not None:
            self._profile = self._rest
            self._fitted = True
        return status

    def fits(self) -> bool:
        """Return whether ``refused_by`` would be None; faster."""
        if self._crowded(lambda node: not node.fits()):
            return False
        profile = self._summing if self._fitted and self._summing is not None else self._profile
        node = self.node
        for step in profile.at("filter"):
            if step.name not in self._found.skipped:
                state = self._found.state_of(step, self._pod)
                hold = told_alone(step, state, node)
                if hold is UNTOLD:
                    if any(one.rows[0] for one in drained(step, state, self._view)):
                        return False
                elif hold is not None:
                    return False
        self._fitted = True
        return True

    def _crowded(self, ask: Callable[[OneNode], T]) -> T | None:
        """Call ``ask`` with the contending nominated pods added to the node; None if there are none."""
        if not self._nominated:
            return None
        with OneNode(FilterInput(self._profile, self._found, self._pod), self._snapshot, self._row, ()) as crowded:
            present = self._snapshot.table.pods[self._row]
            for other in self._nominated:
                if other.uid not in present:
                    crowded.add(other)
            return ask(crowded)

    def _judge(self) -> Status | None:
        verdicts = Verdicts(len(self._snapshot.table))
        run_filter(self._profile, self._found, self._pod, self._view, verdicts)
        return verdicts.status(self._row)


class ManyNodes:
    """Several nodes with changed sums over their pods, until the block ends. The pods themselves do not move.

    The columns that may change are the number of pods, then each resource's requests. ``rivals`` are the sums of the nominated
    pods that the pod must leave room for, per node; None if there are none.

    Shapes  rows (n,); rivals (n, 1 + resources)
    """

    def __init__(
        self, asked: FilterInput, snapshot: Snapshot, rows: npt.NDArray[np.intp], rest: Profile, rivals: IntArray | None = None
    ) -> None:
        self._profile = asked.profile
        self._found = asked.found
        self._pod = asked.pod
        self._snapshot = snapshot
        self._rows = rows
        self._rest = rest
        self._rivals = rivals
        table = snapshot.table
        self.resources = table.resources_requested
        self._sums = [table.pod_count, *map(table.requested, self.resources)]
        self._before: list[IntArray] = []

    def __enter__(self) -> ManyNodes:
        self._before = [column.data[self._rows] for column in self._sums]
        return self

    def __exit__(self, *exc: object) -> None:
        for column, before in zip(self._sums, self._before, strict=True):
            column.data[self._rows] = before

    def shift(self, at: npt.NDArray[np.intp], amounts: IntArray) -> None:
        """Add to the sums of some of the nodes.

        Shapes  at (n,): distinct positions among the rows; amounts (n, 1 + resources)
        """
        rows = self._rows[at]
        for column, amount in zip(self._sums, amounts.T, strict=True):
            column.data[rows] += amount

    def verdicts(self, at: npt.NDArray[np.intp]) -> Verdicts:
        """Filter some of the nodes as they are now, first with their rivals, then without."""
        verdicts = Verdicts(len(self._snapshot.table))
        crowded = self._crowded(at)
        if len(crowded):
            with self._with_rivals(crowded):
                self._filter(crowded, verdicts)
            at = at[verdicts.ids[self._rows[at]] == 0]
        self._filter(at, verdicts)
        return verdicts

    def crowded_verdicts(self) -> Verdicts:
        """Filter all nodes as they are now with their rivals, and not without."""
        verdicts = Verdicts(len(self._snapshot.table))
        every = np.arange(len(self._rows))
        with self._with_rivals(every):
            self._filter(every, verdicts)
        return verdicts

    def fits(self, at: npt.NDArray[np.intp]) -> BoolArray:
        """Return whether the pod still fits on some of the nodes, all of which it has fitted before; shape of ``at``."""
        fitting = self._fitting(at)
        crowded = self._crowded(at)
        if len(crowded):
            with self._with_rivals(crowded):
                fitting[self._has_rivals[at]] &= self._fitting(crowded)
        return fitting

    def _fitting(self, at: npt.NDArray[np.intp]) -> BoolArray:
        view = NodeView(self._snapshot, self._rows[at])
        fitting = np.ones(len(at), dtype=bool)
        for step in self._rest.at("filter"):
            if step.name not in self._found.skipped:
                for reject in drained(step, self._found.state_of(step, self._pod), view):
                    fitting &= ~reject.rows
        return fitting

    def _filter(self, at: npt.NDArray[np.intp], verdicts: Verdicts) -> None:
        run_filter(self._profile, self._found, self._pod, NodeView(self._snapshot, self._rows[at]), verdicts)

    @cached_property
    def _has_rivals(self) -> BoolArray:
        if self._rivals is None:
            return np.zeros(len(self._rows), dtype=bool)
        some: BoolArray = np.any(self._rivals != 0, axis=1)
        return some

    def _crowded(self, at: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return at[self._has_rivals[at]]

    @contextmanager
    def _with_rivals(self, at: npt.NDArray[np.intp]) -> Iterator[None]:
        assert self._rivals is not None
        self.shift(at, self._rivals[at])
        try:
            yield
        finally:
            self.shift(at, -self._rivals[at])


def judge_nominated(asked: FilterInput, nodes: NodeView, verdicts: Verdicts, nominated: Nominated) -> None:
    """Filter the rows of a view that have contending nominated pods again, with those pods added.

    ``verdicts`` holds the results of Filter without them.

    Source  framework/runtime/framework.go, RunFilterPluginsWithNominatedPods
    """
    snapshot = nodes.snapshot
    attempt = FailedAttempt(asked, snapshot, verdicts, nominated)
    rows = attempt.contended_among(nodes)
    if not len(rows):
        return
    many = attempt.what_ifs(rows) if len(rows) > 1 else None
    if many is not None:
        with many:
            crowded = many.crowded_verdicts()
        ids = crowded.ids[rows]
        for number in np.unique(ids[ids != 0]).tolist():
            status = crowded.statuses[number]
            assert status is not None
            verdicts.refuse(rows[ids == number], status)
        return
    for row in rows.tolist():
        status = judge_with_nominated(asked, snapshot, row, attempt.nominated(row))
        if status is None:
            verdicts.accept(row)
        else:
            verdicts.refuse(row, status)


def judge_with_nominated(asked: FilterInput, snapshot: Snapshot, row: int, nominated: Sequence[PodInfo]) -> Status | None:
    """Filter one row that has nominated pods.

    Source  framework/runtime/framework.go, RunFilterPluginsWithNominatedPods
    """
    with OneNode(asked, snapshot, row, nominated) as node:
        return node.refused_by()


class FailedAttempt:
    """A failed attempt, as PostFilter plugins receive it: the pod, the snapshot, the verdicts, and what-ifs."""

    def __init__(
        self, asked: FilterInput, snapshot: Snapshot, verdicts: Verdicts, nominated: Nominated, *, consults: bool = False
    ) -> None:
        self.pod = asked.pod
        self.snapshot = snapshot
        self.verdicts = verdicts
        self.found = asked.found
        self.consults = consults
        self._asked = asked
        self._profile = asked.profile
        self._nominated = nominated

    def what_if(self, row: int) -> OneNode:
        """Open a what-if on one row; use it as a context manager."""
        ignored = None if any(step.reuse.ignores is None for step in self._following) else self._is_ignored
        asked = FilterInput(self._moving, self.found, self.pod)
        return OneNode(asked, self.snapshot, row, self.nominated(row), Fewer(self._rest, self._summing, ignored))

    def _is_ignored(self, other: PodInfo) -> bool:
        """Return whether a pod is of lower priority, and all plugins that follow pods ignore it."""
        if other.priority >= self.pod.priority:
            return False
        return all(
            ask(_ignoring(step), "ignores", self.found.state_of(step, self.pod), self.pod, other) for step in self._following
        )

    def what_ifs(self, rows: npt.NDArray[np.intp]) -> ManyNodes | None:
        """Open what-ifs on many rows at once; None if a plugin has to see the pods themselves.

        Only pods of lower priority may move, on rows where they are ``ignored``.
        """
        if any(step.reuse.ignores is None for step in self._following):
            return None
        if self._following and not self.contended.isdisjoint(rows.tolist()):
            return None
        rivals: IntArray | None = None
        if self.contended:
            rivals = self._rivals(rows)
            if rivals is None:
                return None
        return ManyNodes(self._asked, self.snapshot, rows, self._summing, rivals)

    def ignored(self, rows: npt.NDArray[np.intp]) -> BoolArray:
        """Return a mask of the rows on which all plugins that follow pods ignore the pods that may move; shape of ``rows``.

        Pods of lower priority move, and the nominated pods that the pod must leave room for.
        """
        if not self._following:
            return np.ones(len(rows), dtype=bool)
        found = self._certainly_ignored(rows)
        for at in np.flatnonzero(~found).tolist():
            lesser = [o for o in self.snapshot.table.pods[rows[at]].values() if o.priority < self.pod.priority]
            found[at] = all(map(self._is_ignored, lesser))
        if self.contended:
            found &= np.array([row not in self.contended for row in rows.tolist()], dtype=bool)
        return found

    def _certainly_ignored(self, rows: npt.NDArray[np.intp]) -> BoolArray:
        """Return a mask of the rows whose pods are all ignored, as far as the plugins can tell at once; shape of ``rows``."""
        found, view = np.ones(len(rows), dtype=bool), NodeView(self.snapshot, rows)
        for step in self._following:
            found &= ask(_ignoring_all(step), "ignores", self.found.state_of(step, self.pod), self.pod, view)
        return found

    def _rivals(self, rows: npt.NDArray[np.intp]) -> IntArray | None:
        """Return the sums of the contending nominated pods of each row; None if one requests a resource without a column.

        Shapes  rows (n,); result (n, 1 + resources)
        """
        if self._followed is not None:
            if any(row in self._followed.uncounted for row in rows.tolist()) if self._followed.uncounted else False:
                return None
            return self._followed.sums[rows]
        table = self.snapshot.table
        columns = {name: number for number, name in enumerate(table.resources_requested, 1)}
        sums = np.zeros((len(rows), 1 + len(columns)), dtype=np.int64)
        for position, row in enumerate(rows.tolist()):
            if row not in self.contended:
                continue
            present = table.pods[row]
            for other in contenders(self.nominated(row), self.pod):
                if other.uid in present:
                    continue
                sums[position, 0] += 1
                for name, amount in other.requests.items():
                    if name in columns:
                        sums[position, columns[name]] += amount
                    elif amount:
                        return None
        return sums

    def nominated(self, row: int) -> tuple[PodInfo, ...]:
        """Return the pods nominated to the row's node, most important first."""
        return tuple(self._nominated.get(self.snapshot.table.nodes[row].name, ()))

    @cached_property
    def _followed(self) -> Contended | None:
        return self.snapshot.index(ContendedRows).of(self.pod, self._nominated)

    def contended_among(self, nodes: NodeView) -> npt.NDArray[np.intp]:
        """Return the rows of a view with nominated pods that the pod must leave room for."""
        rows = nodes.row_numbers
        if self._followed is not None:
            return rows[self._followed.rows[rows]]
        return rows[nodes.holding(self.contended)] if self.contended else rows[:0]

    @cached_property
    def contended(self) -> frozenset[int]:
        """The rows with nominated pods that the pod must leave room for."""
        if self._followed is not None:
            return frozenset(np.flatnonzero(self._followed.rows).tolist())
        row_of = self.snapshot.table.row_of
        return frozenset(
            row_of[name] for name, pods in self._nominated.items() if name in row_of and contenders(pods, self.pod)
        )

    def _looks_at_pods(self, step: Step) -> bool:
        """Return whether a Filter plugin's verdict may change when pods move.

        A plugin that signs pods may read more than nodes for a pod that it does not sign.
        """
        if step.reuse.scope is not Scope.NODE:
            return True
        if step.reuse.signature is None or step.name in self.found.skipped:
            return False
        return ask(Step(step.name, step.plugin, step.reuse.signature), "signature", self.pod) is None

    @cached_property
    def _moving(self) -> Profile:
        """The profile with only those PreFilter plugins that implement ``add_pod`` or ``remove_pod``."""
        steps = tuple(s for s in self._profile.at("preFilter") if s.name in self.found.states and _follows_pods(s))
        return self._profile.only("preFilter", steps)

    @cached_property
    def _following(self) -> tuple[Step, ...]:
        """The Filter plugins that read more of the placed pods than sums."""
        steps = self._rest.at("filter")
        return tuple(s for s in steps if s.name not in self.found.skipped and s.reuse.scope is not Scope.USAGE)

    @cached_property
    def _summing(self) -> Profile:
        """``_rest`` without ``_following``, whose verdicts stay the same where they ignore the pods that move."""
        following = {step.name for step in self._following}
        summing = tuple(step for step in self._rest.at("filter") if step.name not in following)
        return self._rest.only("filter", summing)

    @cached_property
    def _rest(self) -> Profile:
        """``_moving`` without the Filter plugins that do not read pods."""
        looking = tuple(step for step in self._profile.at("filter") if self._looks_at_pods(step))
        return self._moving.only("filter", looking)


def _ignoring(step: Step) -> Step:
    """Return a plugin's ``Reuse.ignores`` as a step; if it declares none, a step that returns False."""
    return Step(step.name, step.plugin, step.reuse.ignores or (lambda state, pod, other: False))


def _ignoring_all(step: Step) -> Step:
    """Return a plugin's ``Reuse.ignores_all`` as a step; if it declares none, a step that knows no row."""
    return Step(step.name, step.plugin, step.reuse.ignores_all or (lambda state, pod, nodes: nodes.false()))


def _follows_pods(step: Step) -> bool:
    return step.add_pod is not None or step.remove_pod is not None


#: The most priorities whose rows are kept up to date; more are rare, and each takes memory in proportion to the nodes.
_PRIORITIES: Final = 8


class Contended(NamedTuple):
    """The nominated pods that a pod must leave room for, summed by row.

    ``rows`` marks the rows with such pods. ``sums`` are their sums on each row: the number of pods, then each resource.
    ``uncounted`` are rows where such a pod requests a resource without a column; their sums are incomplete.

    Shapes  rows (rows,); sums (rows, 1 + resources)
    """

    rows: BoolArray
    sums: IntArray
    uncounted: frozenset[int]


class ContendedRows:
    """The contended rows of one cluster, for pods of several priorities."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.table
        self._followed: dict[int, _Followed] = {}

    def of(self, pod: PodInfo, nominated: Mapping[str, Sequence[PodInfo]]) -> Contended | None:
        """Return the rows for a pod; None if they cannot be followed: the mapping may change, or a what-if is open."""
        table = self._table
        if not isinstance(nominated, MappingProxyType) or table.rows_in_what_ifs:
            return None
        followed = self._followed.pop(pod.priority, None)
        if followed is None or followed.version != _version(table):
            followed = _Followed(table, pod.priority)
        self._followed[pod.priority] = followed
        while len(self._followed) > _PRIORITIES:
            del self._followed[next(iter(self._followed))]
        followed.follow(nominated)
        return followed.without(pod.uid)


def _version(table: NodeTable) -> tuple[int, tuple[str, ...]]:
    return table.changes.layout, table.resources_requested


class _Followed:
    """The contended rows for pods of one priority, while no node is added or removed and no resource becomes known."""

    def __init__(self, table: NodeTable, priority: int) -> None:
        self.version = _version(table)
        self._table = table
        self._priority = priority
        self._columns = {name: number for number, name in enumerate(table.resources_requested, 1)}
        self._nominated: Mapping[str, Sequence[PodInfo]] = {}
        self._position = table.changes.position
        self._row_of: dict[str, int] = {}
        self._rows: BoolArray = np.zeros(len(table), dtype=bool)
        self._sums: IntArray = np.zeros((len(table), 1 + len(self._columns)), dtype=np.int64)
        self._uncounted: set[int] = set()

    def follow(self, nominated: Mapping[str, Sequence[PodInfo]]) -> None:
        """Take in the nominations and rows that changed since the last call."""
        table, before = self._table, self._nominated
        changed = table.changes.since(self._position)
        self._position = table.changes.position
        rows = set(np.flatnonzero(self._rows).tolist() if changed is None else (row for row in changed if self._rows[row]))
        if nominated is not before:
            names = [name for name, pods in nominated.items() if before.get(name) is not pods]
            names += [name for name in before if name not in nominated]
            for pod in (pod for name in names for pod in before.get(name, ())):
                self._row_of.pop(pod.uid, None)
            rows |= {table.row_of[name] for name in names if name in table.row_of}
            self._nominated = nominated
        for row in rows:
            self._set(row, self._sums, self._rows, self._uncounted)

    def _set(self, row: int, sums: IntArray, rows: BoolArray, uncounted: set[int], but: str = "") -> None:
        """Compute one row again, without the nomination of the pod with the UID ``but``."""
        nominated = self._nominated.get(self._table.nodes[row].name, ())
        contenders = [pod for pod in nominated if pod.priority >= self._priority and pod.uid != but]
        present = self._table.pods[row]
        rows[row] = bool(contenders)
        sums[row] = 0
        uncounted.discard(row)
        for pod in contenders:
            self._row_of[pod.uid] = row
            if pod.uid in present:
                continue
            sums[row, 0] += 1
            for name, amount in pod.requests.items():
                if name in self._columns:
                    sums[row, self._columns[name]] += amount
                elif amount:
                    uncounted.add(row)

    def without(self, uid: str) -> Contended:
        """Return the rows for a pod, without its own nomination."""
        row = self._row_of.get(uid)
        if row is None:
            return Contended(self._rows, self._sums, frozenset(self._uncounted))
        rows, sums, uncounted = self._rows.copy(), self._sums.copy(), set(self._uncounted)
        self._set(row, sums, rows, uncounted, but=uid)
        return Contended(rows, sums, frozenset(uncounted))
