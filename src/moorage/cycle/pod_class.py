"""One pod class: the cached verdicts and scores of every row, and how a pod of the class is decided with them.

When a pod is placed, one row changes: the next pod of the class runs the plugins on that row only, then takes the best row.
Plugins that read more (other pods' topology, volumes) run for every pod, on columns, and their answers are combined with the
cached ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from moorage.cycle.cached_scores import KeptScores
from moorage.cycle.class_answers import Feasible, Quick, SplitSteps
from moorage.cycle.domain_verdicts import ByDomain, DomainScoring
from moorage.cycle.first_look import Look, look_again, look_at
from moorage.cycle.joined_rooms import DistinctScores
from moorage.cycle.node_verdicts import FEW, NodePart, ask_pre_filters, both
from moorage.cycle.nominated_rows import NominatedRows, Rivals
from moorage.cycle.removed_rows import NewRows, new_rows
from moorage.cycle.room_scores import REFUSED_ROOM, RoomScores
from moorage.cycle.row_judge import RowJudge
from moorage.cycle.ties import draw, ring_position
from moorage.cycle.what_if import Nominated, judge_with_nominated
from moorage.framework.plugin_runner import ask, check_range, normalized, refused_rows, scored
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile
from moorage.framework.verdicts import SKIP
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import FewRows, NodeView

__all__ = ["CachedClass", "looks_left"]

#: Tables of so many rows are judged row by row where a room's verdict stands for its rows.
_SMALL_TABLE = 16
#: A class that comes back after more changes than this is judged once more without arrays: it may come back as late again.
_LONG_AWAY = 64
#: So many decisions of a class are looks, if the pods of the class are far between.
_LOOKS = 2
#: A look at so many distinct rooms costs as much as following one change of a row.
_ROOMS_FOR_A_CHANGE = 8
#: The most distinct rooms that a class without arrays looks at where it does not follow changes.
_MOST_ROOMS = 2048
#: A class that is further behind than this many changes is computed again where nodes were added or removed.
_FEW_CHANGES = 256
#: Answers about rooms with nominated pods that one class caches.
_CROWDED_KEPT = 4096


def looks_left(behind: int | None) -> int:
    """Return how many looks a new class may take.

    ``behind``: how many changes there were since a first look without the class; None if there was none
    """
    if behind is None:
        return _LOOKS
    return _LOOKS - 1 if behind > _LONG_AWAY else 0


class CachedClass:
    """The cached verdicts and scores of one class. Arrays have one entry per row of the table.

    Many classes have a single pod. So if all plugins read only sums, the first pod is decided by one look at the rows, and the
    next one makes the arrays, unless it comes long after.
    """

    def __init__(
        self, profile: Profile, steps: SplitSteps, part: NodePart, by_domain: ByDomain, pod: PodInfo, snapshot: Snapshot,
        before: CachedClass | None = None, looks: int = 0,
    ) -> None:  # fmt: skip
        """``before``: the same class as it was cached before nodes changed in a way that it could not follow.

        ``looks``: how many decisions of a new class may be looks
        """
        changes = snapshot.table.changes
        self._profile = profile
        self._by_domain = by_domain
        self._asked = steps.asked
        self._pre_filters = steps.on_rows.steps.pre_filter
        self._part = part
        found = self._own = ask_pre_filters(self._pre_filters, pod, snapshot)
        self._states: dict[str, Any] = {**part.states, **found.states}
        self._skips = frozenset(part.skipped | found.skipped | steps.idle)
        self._refused = part.refused or found.refused
        #: False once a change of nodes was found that the class cannot follow.
        self._is_current = True
        #: True once a second pod of the class has been decided.
        self.asked_again = False
        self._nodes_seen, self._arrangement = changes.nodes, changes.arrangement
        self._updates_seen = changes.updates.position
        self._position = changes.position
        self._narrowed = both(part.narrowed, found.narrowed)
        self._judge = RowJudge(steps.on_rows, frozenset(found.skipped), self._states, pod, snapshot)
        self._judge.is_sound = part.is_sound
        #: The PreFilter results that all pods of the class share; None if a plugin runs for each of them.
        asks_none = steps.asks_none and self._narrowed is None
        self._found_by_all = PreFiltered(self._states, self._skips) if asks_none else None
        #: The look for the next decision, if the class has no arrays.
        self._look: Look | None = None
        #: The scores of the distinct rooms, if looks read them.
        self._distinct: DistinctScores | None = None
        self._has_arrays = False
        #: How many more looks the class may take before it has arrays.
        self._looks_left = (looks if before is None else before.looks_after(snapshot)) if asks_none else 0
        looked_again = before is not None and before._distinct is not None and not before._has_arrays
        if not self._take_look(pod, snapshot, _MOST_ROOMS if looked_again else 0):
            self._fill(pod, snapshot)

    def looks_after(self, snapshot: Snapshot) -> int:
        """Return how many looks the class may take after a change of nodes; fewer if it could follow it with arrays."""
        changes = snapshot.table.changes
        return self._looks_left if changes.is_rearranged or self._arrangement == changes.arrangement else _LOOKS

    def _take_look(self, pod: PodInfo, snapshot: Snapshot, most_rooms: int) -> bool:
        """Judge the rows for one decision. Return False if the class should have arrays.

        ``most_rooms``: if there are more distinct rooms, only the first looks are worth it
        """
        position = snapshot.table.changes.position
        if self._looks_left:
            self._looks_left -= 1
            self._look = look_at(self._judge, self._part, pod, snapshot)
        elif most_rooms and self._found_by_all is not None and self._part.is_plain and self._judge.plan.by_room:
            if self._distinct is None:
                self._distinct = self._judge.distinct_scores(pod)
            if self._distinct is not None:
                self._look = look_again(self._judge, self._distinct, pod, snapshot, most_rooms)
        if self._look is not None:
            self._position = position
        return self._look is not None

    def _fill(self, pod: PodInfo, snapshot: Snapshot) -> None:
        """Judge all rows, from now on in arrays."""
        self._look, self._has_arrays, self._position = None, True, snapshot.table.changes.position
        self._scores = KeptScores(self._part, self._judge)
        self._rows: npt.NDArray[np.intp] | None = None
        #: The scores by room; None if a plugin reads more than sums.
        self._rooms: RoomScores | None = self._judge.room_scores(pod) if self._judge.plan.by_room else None
        #: (room, requests of the nominated pods) → whether the pod fits there.
        self._crowded: dict[Hashable, bool] = {}
        self._nominated_rows: NominatedRows | None = None
        narrowed = self._own.narrowed
        #: The array of the part itself, which changes with it, unless PreFilter left fewer rows here.
        self._nodes_allow = self._part.allowed if narrowed is None else self._part.allowed & narrowed
        self.allowed: BoolArray = self._nodes_allow.copy()
        self._nodes_allow_cells, self._allowed_cells = self._nodes_allow.data, self.allowed.data
        if self._rooms is None:
            self._judge.close(self.allowed, pod, snapshot.nodes)
            self._scores.score_all(pod, snapshot.nodes, self.allowed)
        else:
            worths = self._judge.of_all(pod, snapshot, self._rooms)
            self.allowed &= worths >= 0
            self._scores.take_worths(worths, self.allowed, snapshot.table)
        self._count = int(np.count_nonzero(self.allowed))

    @property
    def arrangement(self) -> int:
        """The arrangement of nodes that the class is computed for (see ``ChangeLog``)."""
        return self._arrangement

    def derived(self, pod: PodInfo, snapshot: Snapshot) -> CachedClass | None:
        """Return the class for the rows after an open transaction added or removed nodes; None: compute it again.

        This class keeps its answers for when the transaction is rolled back.
        """
        changes = snapshot.table.changes
        if not self._has_arrays or self._refused or self._narrowed is not None or not self._is_current:
            return None
        rows = new_rows(changes, self._arrangement, len(self.allowed))
        if rows is None or changes.behind(self._position) > _FEW_CHANGES:
            return None
        self._catch_up(rows, pod, snapshot)
        changed = rows.changed(changes, self._position)
        part = None if changed is None else self._part.derived(rows, pod, snapshot)
        if changed is None or part is None:
            return None
        made = CachedClass.__new__(CachedClass)
        made.__dict__.update(self.__dict__)
        made._part, made._arrangement = part, changes.arrangement
        made._nodes_seen = -1  # so plugins are asked before they judge
        made._position, made._updates_seen = changes.position, changes.updates.position
        made.allowed, made._nodes_allow = rows.of(self.allowed), part.allowed
        made._nodes_allow_cells, made._allowed_cells = made._nodes_allow.data, made.allowed.data
        made._rows, made._nominated_rows = None, None
        made._count = int(np.count_nonzero(made.allowed))
        if changed and not self._knows_rooms(changed, snapshot) and not made._prepare_again(pod, snapshot):
            return None
        scores = self._scores.derived(rows, part, made._judge, made.allowed, snapshot.table)
        if scores is None:
            return None
        made._scores = scores
        for row in changed:
            made._judge_row(row, pod, snapshot)
        return made

    def _catch_up(self, new: NewRows, pod: PodInfo, snapshot: Snapshot) -> None:
        """Judge rows that changed before the nodes were added or removed: the next derived class need not then."""
        begin, updates, rows = new.settled(snapshot.table.changes, self._position, len(self.allowed))
        if rows and self._knows_rooms(rows, snapshot) and self._part.catch_up(updates, pod, snapshot):
            for row in rows:
                self._judge_row(row, pod, snapshot)
            self._position, self._rows = begin, None

    def _prepare_again(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Run PreFilter and PreScore for new rows. Return False if they answer otherwise than before."""
        own = ask_pre_filters(self._pre_filters, pod, snapshot)
        if not own.agrees_with(self._own.skipped, None, refused=False):
            return False
        self._own, self._states = own, {**self._part.states, **own.states}
        if self._found_by_all is not None:
            self._found_by_all = PreFiltered(self._states, self._skips)
        judge = self._judge.derived(self._states, pod, snapshot)
        if judge is None:
            return False
        self._judge, self._nodes_seen = judge, snapshot.table.changes.nodes
        return True

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge the rows that changed since the last pod of the class. False: the class must be computed again."""
        changes = snapshot.table.changes
        if not self._has_arrays:
            self.asked_again = True
            behind = changes.behind(self._position) if changes.nodes == self._nodes_seen else 0
            if behind > _LONG_AWAY and self._take_look(pod, snapshot, _ROOMS_FOR_A_CHANGE * behind):
                return True
            return self.follows(pod, snapshot)
        if changes.nodes != self._nodes_seen and not self.follows(pod, snapshot, lazily=True):
            return False
        behind = changes.position - self._position
        if behind == 1 and changes.last < len(self.allowed):  # otherwise the row is gone
            self._position, self._rows = changes.position, None
            self._judge_row(changes.last, pod, snapshot)
        elif behind and not self._follow_rows(behind, pod, snapshot):
            return False
        self.asked_again = True
        return True

    def follows(self, pod: PodInfo, snapshot: Snapshot, *, lazily: bool = False) -> bool:
        """Follow the updates of nodes. False: the class must be computed again. ``lazily``: see ``_follow_nodes``."""
        changes = snapshot.table.changes
        if changes.nodes != self._nodes_seen:
            if self._arrangement != changes.arrangement:
                return False
            self._is_current = self._is_current and self._has_arrays and self._follow_nodes(pod, snapshot, lazily=lazily)
        if self._is_current and not self._has_arrays:
            self._fill(pod, snapshot)
        return self._is_current

    def _follow_rows(self, behind: int, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge the rows of the last ``behind`` changes. Return False if the change log no longer has them."""
        changes, position = snapshot.table.changes, self._position
        self._position, self._rows = changes.position, None
        if behind > FEW and (self._rooms is None or len(self.allowed) > _SMALL_TABLE):
            rows = changes.many_since(position, len(self.allowed))
            if rows is None:
                return False
            if len(rows) > FEW:
                self._judge_rows(rows, pod, snapshot)
                return True
            few: list[int] | None = rows.tolist()
        else:
            few = changes.since(position)
        if few is None:
            return False
        for row in dict.fromkeys(few):
            if row < len(self.allowed):
                self._judge_row(row, pod, snapshot)
        return True

    def _follow_nodes(self, pod: PodInfo, snapshot: Snapshot, *, lazily: bool) -> bool:
        """Update the answers of plugins that read only nodes, for updated nodes. False: the class must be computed again.

        ``lazily``: the other plugins are not asked again while the rooms of all changed rows are known
        """
        changes, narrowed = snapshot.table.changes, self._own.narrowed
        updated = changes.updates.since(self._updates_seen)
        if updated is None or not self._part.follow(pod, snapshot):
            return False
        self._scores.follow_nodes(snapshot.table)
        if lazily and narrowed is None and self._knows_rooms_since(snapshot):
            self._updates_seen = changes.updates.position
            return True
        if not self._ask_again(pod, snapshot):
            return False
        if narrowed is not None:
            self._nodes_allow[updated] = self._part.allowed[updated] & narrowed[updated]
        self._updates_seen = changes.updates.position
        return True

    def _knows_rooms_since(self, snapshot: Snapshot) -> bool:
        changes = snapshot.table.changes
        rows = changes.since(self._position) if changes.behind(self._position) <= FEW else None
        return rows is not None and self._knows_rooms((row for row in rows if row < len(self.allowed)), snapshot)

    def _ask_again(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Run PreFilter and PreScore again. Return False if they answer otherwise than before."""
        before, found = self._own, ask_pre_filters(self._pre_filters, pod, snapshot)
        if not found.agrees_with(before.skipped, before.narrowed, refused=before.refused):
            return False
        self._states = {**self._part.states, **found.states}
        if self._found_by_all is not None:
            self._found_by_all = PreFiltered(self._states, self._skips)
        self._nodes_seen = snapshot.table.changes.nodes
        return self._judge.follow_nodes(self._states, pod, snapshot)

    def _judge_row(self, row: int, pod: PodInfo, snapshot: Snapshot) -> None:
        """Judge a row again."""
        if not self._nodes_allow_cells[row]:
            self._close(row, pod, snapshot)  # if its node was updated
            return
        if self._rooms is None:
            worth = self._judge.one(row, pod, snapshot)
        else:
            found = self._rooms.get(snapshot.table.rooms.at(row))
            if found is None:
                found = self._judge.of_room(row, pod, snapshot, self._rooms)
            worth = None if found == REFUSED_ROOM else found
        allowed = worth is not None
        if allowed is not self._allowed_cells[row]:
            self._count += 1 if allowed else -1
            self._allowed_cells[row] = allowed
        self._scores.set_row(row, worth, snapshot, pod)

    def _judge_rows(self, rows: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot) -> None:
        """Judge many rows. A row may be listed more than once."""
        if self._rooms is None:
            view = FewRows(snapshot, rows)
            allowed = self._nodes_allow[rows]
            self._judge.close(allowed, pod, view)
            self._scores.rescore(view, allowed, pod)
        else:
            worths = self._judge.of_rooms(rows, pod, snapshot, self._rooms)
            allowed = worths >= 0
            allowed &= self._nodes_allow[rows]
            self._scores.set_rows(rows, worths, allowed)
        self.allowed[rows] = allowed
        self._count = int(np.count_nonzero(self.allowed))

    @property
    def is_for_all(self) -> bool:
        """Return whether the cached answers hold for every pod of the class, because no plugin runs for each of them."""
        return self._found_by_all is not None and not self._refused

    def admits(self, row: int, pod: PodInfo, snapshot: Snapshot) -> PreFiltered | None:
        """Judge one row, without nominated pods. Return PreFilter's results; None if a Filter plugin refuses the row.

        Call it only while the class ``follows`` and ``is_for_all``.
        """
        found = self._found_by_all
        if not self._nodes_allow_cells[row]:
            return None
        self.asked_again = True
        if self._rooms is None:
            return found if self._judge.one(row, pod, snapshot) is not None else None
        return found if self._judge.of_room(row, pod, snapshot, self._rooms) != REFUSED_ROOM else None

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated, seed: int) -> Quick | None:
        """Return the decision; None if it takes the full path."""
        if self._refused or not self._judge.is_sound:
            return None
        if self._look is not None and self._found_by_all is not None and not nominated:
            return self._decide_by_look(self._look, self._found_by_all, pod.uid, snapshot, seed)
        if not self._has_arrays:
            self._fill(pod, snapshot)
        if not self._count:
            return None
        if self._found_by_all is not None and not nominated and self._scores.in_ring is not None:
            return Quick(self._scores.first_best(ring_position(pod.uid, seed)), self._count, self._found_by_all)
        if nominated and self._nodes_seen != snapshot.table.changes.nodes and not self._ask_again(pod, snapshot):
            return None
        found, narrowed = self._found(pod, snapshot)
        if found is None:
            return None
        rivals = self._rivals(pod, snapshot, nominated) if nominated else None
        if narrowed is None and rivals is None:
            quick = self._decide_by_domain(pod, snapshot, found, seed)
            if quick is not None:
                return self._counted(quick, None) if quick.feasible else None
        return self._counted(self._decide_by_row(pod, snapshot, found, narrowed, rivals, seed), narrowed)

    def _decide_by_look(self, look: Look, found: PreFiltered, uid: str, snapshot: Snapshot, seed: int) -> Quick | None:
        """Return the decision, and drop the look: it is large, and a later pod needs another one."""
        self._look = None
        return Quick(look.best(snapshot, ring_position(uid, seed)), look.feasible, found) if look.feasible else None

    def decide_copy(self, uid: str, like: PodInfo, snapshot: Snapshot, seed: int) -> Quick | None:
        """Do ``refresh`` and ``decide`` while no pod is nominated. Call it only if the class ``is_for_all``.

        ``uid``: the pod's; ``like``: any pod of the class, which plugins may read in its place
        """
        if not self.refresh(like, snapshot) or self._found_by_all is None:
            return None
        if self._refused or not self._judge.is_sound:
            return None
        if self._look is not None:
            return self._decide_by_look(self._look, self._found_by_all, uid, snapshot, seed)
        scores = self._scores
        if not self._count or scores.in_ring is None:
            return None
        return Quick(scores.first_best(ring_position(uid, seed)), self._count, self._found_by_all)

    def _counted(self, quick: Quick | None, narrowed: BoolArray | None) -> Quick | None:
        """Return the decision with ``among`` set to the number of rows that PreFilter left."""
        rows = both(self._narrowed, narrowed)
        if rows is None or quick is None:
            return quick
        return structs.replace(quick, among=int(np.count_nonzero(rows)))

    def _rivals(self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated) -> Rivals | BoolArray | None:
        """Return the effect of nominated pods on the allowed rows; None if they have none on this pod.

        If all plugins read only sums, it is a mask of the rows on which the pod does not fit beside them. Otherwise it is the
        rows with nominated pods, and these pods.
        """
        rows = self._nominated_rows
        if rows is None or rows.priority != pod.priority:
            rows = self._nominated_rows = NominatedRows(pod.priority, len(self.allowed))
        if self._rooms is None or self._asked.filter:
            return rows.rivals(pod, nominated, snapshot.table, self.allowed) or None
        found = PreFiltered(self._states, self._skips)
        return rows.closed(
            pod, nominated, snapshot.table, self.allowed,
            lambda row, rivals: self._fits_beside(rivals, row, pod, snapshot, found),
        )  # fmt: skip

    def _knows_rooms(self, rows: Iterable[int], snapshot: Snapshot) -> bool:
        """Return whether no plugin has to be asked about these rows."""
        known = self._rooms
        if known is None:
            return False
        cells = snapshot.table.rooms.followed().cells
        return all(known.get(cells[row]) is not None for row in rows)

    def _close(self, row: int, pod: PodInfo, snapshot: Snapshot) -> None:
        if self._allowed_cells[row]:
            self._count -= 1
            self._allowed_cells[row] = False
            self._scores.set_row(row, None, snapshot, pod)

    def feasible(self, pod: PodInfo, snapshot: Snapshot) -> Feasible:
        """Return the rows that no Filter plugin refuses, without regard to nominated pods."""
        if not self._has_arrays:
            self._fill(pod, snapshot)
        found = None if self._refused else self._found(pod, snapshot)
        if found is None or found[0] is None:
            return Feasible(np.zeros(len(self.allowed), dtype=bool), 0, PreFiltered(self._states, self._skips))
        if self._found_by_all is not None:
            return Feasible(self.allowed, self._count, self._found_by_all, frozenset())
        beside = None
        if self._narrowed is None and found[1] is None:
            asked = (*self._asked.pre_filter, *self._asked.filter)
            beside = frozenset([step.name for step in asked if step.name not in found[0].skipped])
        rows = self._feasible(pod, snapshot, found[0], found[1], None)
        if rows is None:
            return Feasible(self.allowed, self._count, found[0], beside)
        return Feasible(rows, int(np.count_nonzero(rows)), found[0], beside)

    def _decide_by_domain(self, pod: PodInfo, snapshot: Snapshot, found: PreFiltered, seed: int) -> Quick | None:
        """Decide by topology domain; None if a plugin has to see rows. ``feasible`` is 0 if nothing is feasible."""
        if self._scores.in_ring is None:
            return None
        if not self._asked:
            return Quick(self._scores.first_best(ring_position(pod.uid, seed)), self._count, found)
        closed = self._by_domain.closed(self._asked.filter, found, pod, snapshot.nodes)
        if closed is None:
            return None
        scoring = DomainScoring(self._asked.pre_score, self._asked.score, found, pod)
        pick = self._by_domain.pick(self._scores, self._count, closed, scoring, snapshot, ring_position(pod.uid, seed))
        return None if pick is None else Quick(pick.row, pick.feasible, found)

    def _decide_by_row(
        self, pod: PodInfo, snapshot: Snapshot, found: PreFiltered, narrowed: BoolArray | None,
        rivals: Rivals | BoolArray | None, seed: int,
    ) -> Quick | None:  # fmt: skip
        feasible = self._feasible(pod, snapshot, found, narrowed, rivals)
        count = self._count if feasible is None else int(np.count_nonzero(feasible))
        if count == 0:
            return None
        if count == 1:
            return Quick(int((self.allowed if feasible is None else feasible).argmax()), 1, found)
        if not self._asked.score:
            return self._decide_by_ring(pod, snapshot, found, feasible, count, seed)
        rows = self._allowed_rows if feasible is None else np.flatnonzero(feasible)
        extra = self._asked_scores_of(pod, snapshot, found, rows)
        if extra is None or extra.item(extra.argmin()) == extra.item(extra.argmax()):  # equal for all rows
            return self._decide_by_ring(pod, snapshot, found, feasible, count, seed)
        totals = self._scores.totals(rows) + extra
        if not self._judge.is_sound:
            return None
        best = rows[totals == totals.max()]
        return Quick(draw(snapshot.table, best, pod.uid, seed), count, found)

    def _decide_by_ring(
        self, pod: PodInfo, snapshot: Snapshot, found: PreFiltered, feasible: BoolArray | None, count: int, seed: int
    ) -> Quick | None:
        """Decide by the cached totals alone. ``feasible`` None: all rows that the class allows."""
        if self._scores.in_ring is None:
            rows = self._allowed_rows if feasible is None else np.flatnonzero(feasible)
            totals = self._scores.totals(rows)
            if not self._judge.is_sound:
                return None
            return Quick(draw(snapshot.table, rows[totals == totals.max()], pod.uid, seed), count, found)
        return Quick(self._scores.first_best(ring_position(pod.uid, seed), feasible), count, found)

    @property
    def _allowed_rows(self) -> npt.NDArray[np.intp]:
        if self._rows is None:
            self._rows = np.flatnonzero(self.allowed)
        return self._rows

    def _found(self, pod: PodInfo, snapshot: Snapshot) -> tuple[PreFiltered | None, BoolArray | None]:
        """Run the PreFilter plugins that run for each pod. Return the results, None if a plugin rejected the pod; and the rows
        that these plugins left, None for all."""
        if not self._asked.pre_filter:
            return PreFiltered(self._states, self._skips), None
        states, skipped, narrowed, refused = ask_pre_filters(self._asked.pre_filter, pod, snapshot)
        if refused:
            return None, None
        return PreFiltered({**self._states, **states}, self._skips | skipped), narrowed

    def _feasible(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        found: PreFiltered,
        narrowed: BoolArray | None,
        rivals: Rivals | BoolArray | None,
    ) -> BoolArray | None:
        """Return which rows are feasible; None if they are exactly those that the class allows."""
        feasible = None if narrowed is None else self.allowed & narrowed
        for step in self._asked.filter:
            if step.name not in found.skipped:
                refused = refused_rows(step, found.state_of(step, pod), snapshot.nodes)
                if refused is not None:
                    feasible = (self.allowed if feasible is None else feasible) & ~refused
        if rivals is None:
            return feasible
        feasible = self.allowed.copy() if feasible is None else feasible
        if isinstance(rivals, np.ndarray):
            return feasible & ~rivals
        for row, pods in rivals.items():
            if feasible[row]:
                feasible[row] = self._fits_beside(pods, row, pod, snapshot, found)
        return feasible

    def _fits_beside(self, rivals: Sequence[PodInfo], row: int, pod: PodInfo, snapshot: Snapshot, found: PreFiltered) -> bool:
        """Return whether a row is feasible with its nominated pods. If plugins read only sums, equal sums share one answer."""
        if self._rooms is None or self._asked.filter:
            return judge_with_nominated(self._profile, found, pod, snapshot, row, rivals) is None
        present = snapshot.table.pods[row]
        key = (
            snapshot.table.rooms.followed().cells[row],
            tuple([rival.needs.key for rival in rivals if rival.uid not in present]),
        )
        fits = self._crowded.get(key)
        if fits is None:
            if len(self._crowded) >= _CROWDED_KEPT:
                self._crowded.clear()
            fits = self._crowded[key] = judge_with_nominated(self._profile, found, pod, snapshot, row, rivals) is None
        return fits

    def _asked_scores_of(
        self, pod: PodInfo, snapshot: Snapshot, found: PreFiltered, rows: npt.NDArray[np.intp]
    ) -> IntArray | None:
        """Score the feasible rows by the plugins that run for each pod; None if all of them skip."""
        if not self._asked.score:
            return None
        view = snapshot.nodes if len(rows) == len(snapshot.table) else NodeView(snapshot, rows)
        states: dict[str, Any] = {}
        passed: set[str] = set()
        for step in self._asked.pre_score:
            state = ask(step, "preScore", pod, snapshot, view)
            if state is SKIP:
                passed.add(step.name)
            else:
                states[step.name] = state
        total: IntArray | None = None
        for step in self._asked.score:
            if step.name in passed:
                continue
            state = states[step.name] if step.name in states else found.states.get(step.name, pod)
            scores = normalized(step, state, scored(step, state, view), view)
            check_range(step, scores, view)
            weight = self._profile.weights.get(step.name, 1)
            weighted = scores if weight == 1 else scores * weight
            total = weighted if total is None else total + weighted
        return total
