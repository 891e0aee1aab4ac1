"""Columns: the answers of some plugins for one key, an entry for each row, asked again only for rows that changed.

A key is what the plugins read of a pod (their signature), so pods that differ elsewhere share the column. A column of plugins
that read only nodes follows the log of updated nodes; one of plugins that read the pods of a row follows the log of all rows.
The total of a pod is the sum of its columns: ``REFUSED`` is so low that the sum is negative wherever one of them refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.judges import Judges, Steps
from moorage.core.cycle.removed_rows import NewRows, new_rows
from moorage.framework.plugin_runner import MAX_SCORE, are_in_range, ask, normalized, refused_rows, refuses, scored
from moorage.framework.profile import Step
from moorage.state.change_log import RowLog
from moorage.state.columns import has_any
from moorage.state.distinct_rooms import RoomRows
from moorage.state.table import NodeTable
from moorage.state.usage import SomeUsage, Usage
from moorage.state.view import BoolArray, FewRows, IntArray, NodeView, PodInfo, Snapshot, domain_ids

#: Stands in for the score of a refused row. Sums of columns with it are negative and do not overflow.
REFUSED: Final = -(1 << 52)
#: Up to this many changed rows are judged one by one; more are judged as columns.
FEW: Final = 8
#: If more rows changed than one in so many, all are judged.
_MANY: Final = 3
#: A column that is further behind than this is computed again where nodes were added or removed.
_FEW_CHANGES: Final = 256
#: Entries in all columns of a profile together, at 8 bytes each; and the most columns.
_ENTRIES_KEPT: Final = 2_000_000
_COLUMNS_KEPT: Final = 4096
#: So many rows with the highest raw score are looked at before all rows are.
_TOPS: Final = 16
#: A column with at most one entry in so many that is not 0 keeps these alone.
_SPARSE: Final = 8
#: Clusters of more nodes than this are judged by one node of each distinct room, where few rooms differ.
_MANY_ROWS: Final = 8192


def has_many_rows(table: NodeTable) -> bool:
    """Return whether rows are judged by their rooms, where that is less work."""
    return len(table) > _MANY_ROWS


class Varying:
    """Raw scores, one per row, of a plugin whose final scores depend on the highest raw score of a feasible row."""

    __slots__ = ("_scaled", "_top", "raw", "state", "step", "weight")

    def __init__(self, step: Step, state: Any, raw: IntArray, weight: int) -> None:
        self.step, self.state, self.raw, self.weight = step, state, raw, weight
        self.changed()

    def changed(self) -> None:
        """Forget what was derived from the raw scores."""
        #: The highest raw score of feasible rows → the final scores.
        self._scaled: dict[int, IntArray | None] = {}
        self._top: tuple[int, npt.NDArray[np.intp]] | None = None

    def highest(self, totals: IntArray) -> int:
        """Return the highest raw score of the rows whose total is not negative. There must be one."""
        if self._top is None:
            top = self.raw.item(self.raw.argmax())
            self._top = top, (self.raw == top).nonzero()[0][:_TOPS]
        top, rows = self._top
        some = totals[rows]
        if some.item(some.argmax()) >= 0:
            return top
        raw = self.raw[totals >= 0]
        return int(raw[raw.argmax()])

    def reaches(self, highest: int, totals: IntArray, closed: Mapping[str, BoolArray], nodes: NodeView) -> bool:
        """Return whether one of the first rows with the ``highest`` raw score is neither refused nor in a closed domain."""
        if self._top is None or self._top[0] != highest:
            return False
        rows = self._top[1]
        is_open: BoolArray = totals[rows] >= 0
        for key, domains in closed.items():
            is_open &= ~domains[domain_ids(nodes, key)[rows]]
        return has_any(is_open)

    def scaled(self, highest: int) -> IntArray | None:
        """Return the final scores of all rows where ``highest`` is the highest raw score; None if one is out of range."""
        if highest not in self._scaled:
            scores = normalized(self.step, self.state, np.minimum(self.raw, highest))
            self._scaled[highest] = scores * self.weight if are_in_range(scores) else None
        return self._scaled[highest]

    def on(self, rows: Callable[[IntArray], IntArray]) -> Varying:
        """Return the scores on other rows."""
        return Varying(self.step, self.state, rows(self.raw), self.weight)


class FewWorths(NamedTuple):
    """The rows with worths other than 0, in rising order, and these worths."""

    rows: npt.NDArray[np.intp]
    worths: IntArray

    def spread(self, size: int) -> IntArray:
        """Return the worths of all rows."""
        worths = np.zeros(size, dtype=np.int64)
        worths[self.rows] = self.worths
        return worths


class OfRooms(NamedTuple):
    """The worth of each distinct room, while no row changes."""

    rooms: RoomRows
    worths: IntArray

    @property
    def feasible(self) -> int:
        """The number of rows that are not refused."""
        return int(self.rooms.held[self.worths >= 0].sum())

    def first_best(self, table: NodeTable, start: int) -> int:
        """Return the row with the highest worth; where several share it, the first at or after ``start`` on the ring."""
        worths = np.where(self.rooms.held > 0, self.worths, REFUSED)
        return table.distinct_rooms.first(worths == worths[worths.argmax()], start)


class KeyColumn:
    """The answers of some plugins for one key. Only the column writes to its arrays.

    ``worths``      the weighted sum of the scores of each row, without the scores of plugins that score all rows alike; None: 0
                    everywhere but in ``few``. ``REFUSED`` where a plugin refuses the row, if plugins read the pods of a row
    ``closed``      the rows that plugins refuse which read only nodes; None for none
    ``few``         the worths of a column of plugins that read only nodes if few rows have any
    ``varying``     scores that are not in the sum
    ``found``       the answers of PreFilter
    ``of_rooms``    worths of distinct rooms, which ``spread`` writes to ``worths``
    ``is_sound``    False if a score is out of range: the caller then takes the full path, which reports the error
    """

    worths: IntArray | None
    few: FewWorths | None = None
    closed: BoolArray | None = None
    _dense: IntArray | None = None

    def __init__(self, steps: Steps, pod: PodInfo, snapshot: Snapshot) -> None:
        table = snapshot.table
        self.steps, self._reads_pods = steps, steps.reads_pods
        #: The pod that it was made for.
        self.first = pod
        self._others = () if steps.reads_pods else steps.others
        self._note(table)
        self._judge_by(Judges(steps, pod, snapshot))
        self.is_sound = True
        self.of_rooms: OfRooms | None = None
        self.varying: list[Varying] = []
        #: Score plugins whose raw scores are all equal, with that score.
        self._alike: dict[str, tuple[Step, int]] = {}
        self._fill(pod, snapshot)

    def _note(self, table: NodeTable) -> None:
        """Note up to where the answers are current."""
        changes, self._size = table.changes, len(table)
        self.nodes_seen, self.arrangement, self.position = changes.nodes, changes.arrangement, self._log(table).position
        self._versions = [version(table) for version in self._others]
        #: False once a change was found that the column cannot follow.
        self._is_current = True

    def _log(self, table: NodeTable) -> RowLog:
        return table.changes if self._reads_pods else table.changes.updates

    def _judge_by(self, judges: Judges) -> None:
        self.found, self._states, self.plan, self._rule = judges.found, judges.states, judges.plan, judges.rule

    # -- all rows -----------------------------------------------------------------------------------------------------

    def _fill(self, pod: PodInfo, snapshot: Snapshot) -> None:
        """Judge all rows."""
        nodes, plan = snapshot.nodes, self.plan
        self.plain = plan.plain
        if self._reads_pods:
            self.varying = [self._varying(step, weight, pod, nodes) for step, weight in plan.scaled]
            distinct = self._distinct_rooms(snapshot)
            if distinct is None:
                self._use(self._judged(nodes, pod))
            else:
                self.of_rooms = OfRooms(distinct, self._judged(FewRows(snapshot, distinct.rows), pod))
            return
        self.plain = []
        total: IntArray | None = None
        for step, weight in (*plan.plain, *plan.scaled):
            state = self._states.get(step.name, pod)
            raw = scored(step, state, nodes)
            if not len(raw) or raw.item(raw.argmax()) == raw.item(raw.argmin()):
                scores = normalized(step, state, raw[:1])
                self.is_sound = self.is_sound and are_in_range(scores)
                self._alike[step.name] = step, int(raw[0]) if len(raw) else 0
            elif step.normalize is None:
                self.plain.append((step, weight))
                self.is_sound = self.is_sound and are_in_range(raw)
                total = raw.astype(np.int64) * weight if total is None else total + raw * weight
            else:
                self.varying.append(Varying(step, state, raw.astype(np.int64), weight))
        refused = self._refused(nodes, pod)
        self.closed = refused if refused is not None and np.count_nonzero(refused) else None
        if total is not None and np.count_nonzero(total) * _SPARSE <= len(total):
            rows = total.nonzero()[0]
            self.few = FewWorths(rows, total[rows]) if len(rows) else None
            total = None
        self._use(total)

    def _use(self, worths: IntArray | None) -> None:
        self.worths = worths
        if worths is not None:
            self.cells: memoryview = worths.data

    def spread(self) -> None:
        """Give each row the worth of its room, if the rooms were judged in place of the rows."""
        if self.of_rooms is not None:
            self._use(self.of_rooms.worths.take(self.of_rooms.rooms.which))
            self.of_rooms = None

    def _distinct_rooms(self, snapshot: Snapshot) -> RoomRows | None:
        """Return a row for each distinct room if judging these is less work than judging all rows."""
        table = snapshot.table
        if not has_many_rows(table) or not self.plan.by_room or self.found.narrowed is not None or table.rows_in_what_ifs:
            return None
        return table.distinct_rooms.find()

    def _varying(self, step: Step, weight: int, pod: PodInfo, view: NodeView) -> Varying:
        state = self._states.get(step.name, pod)
        return Varying(step, state, scored(step, state, view).astype(np.int64), weight)

    def _judged(self, view: NodeView, pod: PodInfo) -> IntArray:
        """Return the worths of the rows of a view, ``REFUSED`` where a plugin refuses the row."""
        usage = None if self._rule is None else view.usage()
        if self._rule is not None and usage is not None:
            worths, refused = self._rule.rows(usage)
            if self.found.narrowed is not None:
                left_out = ~view.take(self.found.narrowed)
                refused = left_out if refused is None else refused | left_out
        else:
            worths, refused = self._worths(view, pod), self._refused(view, pod)
        if refused is not None:
            np.putmask(worths, refused, REFUSED)
        return worths

    def _worths(self, view: NodeView, pod: PodInfo) -> IntArray:
        """Return the weighted sums of the scores of the rows of a view."""
        total: IntArray | None = None
        for step, weight in self.plain:
            scores = scored(step, self._states.get(step.name, pod), view).astype(np.int64, copy=len(self.plain) == 1)
            self.is_sound = self.is_sound and are_in_range(scores)
            weighted = scores if weight == 1 else scores * weight
            total = weighted if total is None else total + weighted
        return np.zeros(len(view), dtype=np.int64) if total is None else total

    def _refused(self, view: NodeView, pod: PodInfo) -> BoolArray | None:
        """Return the rows of a view that a Filter plugin refuses or that PreFilter left out; None for none."""
        refused: BoolArray | None = None if self.found.narrowed is None else ~view.take(self.found.narrowed)
        for step in self.plan.filters:
            rows = refused_rows(step, self.found.states.get(step.name, pod), view)
            refused = rows if refused is None else refused if rows is None else refused | rows
        return refused

    @property
    def entries(self) -> int:
        """The number of entries in all arrays."""
        few = 0 if self.few is None else 2 * len(self.few.rows)
        mask = 0 if self.closed is None else 1 + self._size // 8
        return few + mask + self._size * ((self.worths is not None) + 2 * len(self.varying))

    def dense(self) -> IntArray | None:
        """Return the worths of all rows, ``REFUSED`` where one is refused; None: 0 everywhere. Only the column changes them."""
        if self.closed is None:
            return self._scores()
        if self._dense is None:
            scores = self._scores()
            self._dense = np.zeros(self._size, dtype=np.int64) if scores is None else scores.copy()
            np.putmask(self._dense, self.closed, REFUSED)
        return self._dense

    def _scores(self) -> IntArray | None:
        return self.worths if self.few is None else self.few.spread(self._size)

    @property
    def names(self) -> frozenset[str]:
        """The plugins."""
        return frozenset(step.name for step in (*self.steps.pre_filter, *self.steps.filter, *self.steps.score))

    def differs(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether the plugins now give other answers for a pod."""
        now = KeyColumn(self.steps, pod, snapshot)
        now.spread()
        self.spread()
        none = np.zeros(self._size, dtype=np.int64)
        mine, its = (none if (worths := one.dense()) is None else worths for one in (self, now))
        return (
            not self.found.agrees_with(now.found)
            or [alike[1] for alike in self._alike.values()] != [alike[1] for alike in now._alike.values()]
            or not np.array_equal(mine, its)
            or [one.raw.tobytes() for one in self.varying] != [one.raw.tobytes() for one in now.varying]
        )

    # -- one row ------------------------------------------------------------------------------------------------------

    def at(self, row: int, pod: PodInfo, snapshot: Snapshot) -> int:
        """Judge one row by what it is now, for plugins that read the pods of a row."""
        if self._rule is not None and self.found.narrowed is None:
            worth = self._rule.row(row, snapshot.table)
            if worth is not None:
                return worth if worth >= 0 else REFUSED
        return self._one(row, pod, snapshot)

    def _one(self, row: int, pod: PodInfo, snapshot: Snapshot) -> int:
        """Run the plugins on one row."""
        node, nodes = snapshot.nodes.one(row), snapshot.nodes
        narrowed = self.found.narrowed
        if narrowed is not None and not narrowed[row]:
            return REFUSED
        for step in self.plan.filters:
            if refuses(step, step.single, self.found.states.get(step.name, pod), node, nodes):
                return REFUSED
        worth = 0
        for step, weight in self.plain:
            state = self._states.get(step.name, pod)
            if step.single is None:
                score = int(scored(step, state, nodes.at(row))[0])
            else:
                score = int(ask(step.single, "score", state, node))
            if not 0 <= score <= MAX_SCORE:
                self.is_sound = False
            worth += score * weight
        return worth

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def follow(self, pod: PodInfo, snapshot: Snapshot, rows: npt.NDArray[np.intp] | None = None) -> bool:
        """Judge the rows that changed. Return False if the column must be computed again.

        ``rows``: those that changed in all since ``position``, if the caller has them
        """
        table = snapshot.table
        changes = table.changes
        are_updated = changes.nodes != self.nodes_seen
        if not self._is_current or (
            are_updated and (changes.arrangement != self.arrangement or not self._ask_again(pod, snapshot))
        ):
            return False
        log = changes if self._reads_pods else changes.updates
        behind = log.position - self.position
        if not behind:
            self.nodes_seen = changes.nodes
            return True
        self._is_current = False  # also if a plugin raises
        if behind == 1 and self._reads_pods and not self.varying and self.worths is not None:
            row = log.last
            if row < self._size:  # otherwise the row is gone
                worth = None if self._rule is None else self._rule.row(row, table)
                if worth is None or self.found.narrowed is not None:
                    worth = self.at(row, pod, snapshot)
                self.cells[row] = worth if worth >= 0 else REFUSED
            self._is_current = True
        else:
            rows = log.many_since(self.position, len(table)) if rows is None else rows
            if rows is None or len(rows) * _MANY > len(table) > FEW * _MANY:
                self._is_current = self._judge_all_again(snapshot)
            else:
                self._is_current = self._judge_again(rows, pod, snapshot)
        self.position = log.position
        self.nodes_seen = changes.nodes if self._is_current else -1
        return self._is_current

    def _ask_again(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Run PreFilter and PreScore again after nodes were updated. Return False if they answer otherwise than before."""
        if self._others and [version(snapshot.table) for version in self._others] != self._versions:
            return False
        if self._rule is not None or not (self.steps.pre_filter or self.steps.pre_score):
            return True  # plugins with a rule answer in the same way whatever the nodes are
        judges, plan = Judges(self.steps, pod, snapshot), self.plan
        if not judges.found.agrees_with(self.found):
            return False
        self._judge_by(judges)
        return self.plan is plan

    def _judge_all_again(self, snapshot: Snapshot) -> bool:
        """Judge all rows again. Return False if the column must be made again."""
        usage = snapshot.nodes.usage()
        if self._rule is None or self.worths is None or self.found.narrowed is not None or usage is None:
            return False
        self._rule_on(usage, slice(None))
        return True

    def _rule_on(self, usage: Usage | SomeUsage, rows: npt.NDArray[np.intp] | slice) -> None:
        """Judge rows by the rule of all plugins."""
        assert self._rule is not None
        assert self.worths is not None
        worths, refused = self._rule.rows(usage)
        if refused is not None:
            np.putmask(worths, refused, REFUSED)
        self.worths[rows] = worths

    def _judge_again(self, rows: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge some rows again, which may be listed twice. Return False if scores that were equal no longer are."""
        plan = self.plan
        if not len(rows) or not (plan.filters or plan.plain or plan.scaled or self.found.narrowed is not None):
            return True
        if self._reads_pods and not self.varying and len(rows) <= FEW:
            for row in dict.fromkeys(rows.tolist()):
                self.cells[row] = self.at(row, pod, snapshot)
            return True
        usage = None if self._rule is None or self.worths is None or self.found.narrowed is not None else snapshot.nodes.usage()
        if self._rule is not None and self.worths is not None and isinstance(usage, Usage):
            self._rule_on(usage.of(rows), rows)
            return True
        view = FewRows(snapshot, rows)
        for step, alike in self._alike.values():
            raw = scored(step, self._states.get(step.name, pod), view)
            if not bool((raw == alike).all()):
                return False
        for one in self.varying:
            one.raw[rows] = scored(one.step, self._states.get(one.step.name, pod), view)
            one.changed()
        if not self._reads_pods:
            return self._judge_nodes_again(rows, view, pod)
        assert self.worths is not None
        self.worths[rows] = self._judged(view, pod)
        return True

    def _judge_nodes_again(self, rows: npt.NDArray[np.intp], view: NodeView, pod: PodInfo) -> bool:
        """Do so for plugins that read only nodes."""
        worths, refused = self._worths(view, pod), self._refused(view, pod)
        if self.closed is None and refused is not None and refused.item(refused.argmax()):
            self._dense = self.worths  # without refusals, beside the worths that sheets have
            if self.worths is None:
                return False
            self._use(self.worths.copy())
            self.closed = np.zeros(self._size, dtype=bool)
        if self.closed is not None:
            self.closed[rows] = False if refused is None else refused
        if self.worths is not None:
            self.worths[rows] = worths
        elif not bool((worths == (0 if self.few is None else self.few.spread(self._size)[rows])).all()):
            return False
        if self._dense is not None:
            self._dense[rows] = worths if refused is None else np.where(refused, REFUSED, worths)
        return True

    def derived(self, pod: PodInfo, snapshot: Snapshot) -> KeyColumn | None:
        """Return the column for the rows after an open transaction added or removed nodes; None if it must be computed again.

        This column keeps its answers for when the transaction is rolled back.
        """
        table = snapshot.table
        can_follow = self._is_current and self.found.narrowed is None
        rows = new_rows(table.changes, self.arrangement, self._size) if can_follow else None
        if rows is None or [version(table) for version in self._others] != self._versions:
            return None
        changed = self._changed(rows, table)
        if changed is None or len(changed) > _FEW_CHANGES:
            return None
        made = KeyColumn.__new__(KeyColumn)
        made.__dict__.update(self.__dict__)
        made._note(table)
        worths, made.few, made._dense = self._scores(), None, None
        made._use(None if worths is None else rows.of(worths))
        made.closed = None if self.closed is None else rows.of(self.closed)
        made.varying = [one.on(rows.of) for one in self.varying]
        if changed:
            again = np.array(sorted(changed), dtype=np.intp)
            if not made._ask_again(pod, snapshot) or not made._judge_again(again, pod, snapshot):
                return None
        return made

    def _changed(self, rows: NewRows, table: NodeTable) -> set[int] | None:
        if self._reads_pods:
            return rows.changed(table.changes, self.position)
        return rows.updated(table.changes.updates, self.position)


class Columns:
    """The columns of one profile. Those that were not used for long are dropped when there are many."""

    def __init__(self) -> None:
        #: Columns used lately, and those used before them, which move to the first when they are used again.
        self.kept: dict[Hashable, KeyColumn] = {}
        self._before: dict[Hashable, KeyColumn] = {}
        self._entries = 0
        #: Columns for the rows after an open transaction added or removed nodes, with those that they are derived from.
        self._derived: dict[Hashable, tuple[KeyColumn, KeyColumn]] = {}
        self._derived_for = -1

    def of(self, key: Hashable, steps: Steps, pod: PodInfo, snapshot: Snapshot, *, keep: bool = True) -> KeyColumn:
        """Return the column of a key, up to date."""
        changes = snapshot.table.changes
        column = self.kept.get(key)
        if column is None:
            column = self._before.pop(key, None)
        if column is not None and column.arrangement != changes.arrangement:
            derived = self._derive(key, column, pod, snapshot)
            if derived is not None and changes.is_rearranged:
                self._keep(key, column)
                return derived
            column = derived
        if column is None or not column.follow(pod, snapshot):
            keep = keep or column is not None
            column = KeyColumn(steps, pod, snapshot)
        if keep:
            column.spread()
            self._keep(key, column)
        return column

    def _keep(self, key: Hashable, column: KeyColumn) -> None:
        if self.kept.get(key) is column:
            return
        self._entries += column.entries
        if 2 * self._entries > _ENTRIES_KEPT or 2 * len(self.kept) >= _COLUMNS_KEPT:
            self._before, self.kept, self._entries = self.kept, {}, column.entries
        self.kept[key] = column

    def _derive(self, key: Hashable, column: KeyColumn, pod: PodInfo, snapshot: Snapshot) -> KeyColumn | None:
        arrangement = snapshot.table.changes.arrangement
        if self._derived_for != arrangement:
            self._derived.clear()
            self._derived_for = arrangement
        made = self._derived.pop(key, None)
        if made is None or made[0] is not column or not made[1].follow(pod, snapshot):
            derived = column.derived(pod, snapshot)
            if derived is None:
                return None
            made = column, derived
        self._derived[key] = made
        return made[1]
