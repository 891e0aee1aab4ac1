"""One look at all rows: the decision for a pod whose keys are new, which leaves nothing behind but columns of node properties.

CPU, memory and places for pods are judged by the rule of all plugins that read nothing else, and the kept columns of plugins
that read only nodes are added. A pod that needs more gets a sheet that serves it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from moorage.core.cycle.column import REFUSED, KeyColumn
from moorage.core.cycle.decision import Quick
from moorage.core.cycle.search import first_from, ring_position
from moorage.framework.answer_forms import Rule
from moorage.framework.post_filter import PreFiltered
from moorage.state.cluster import Snapshot


class OneLook:
    """What is the same for pods with some keys, while no node changes: the ``rule`` of the rows, and PreFilter's results."""

    __slots__ = ("_found", "_idle", "_rule", "nodes_seen")

    def __init__(self, rule: Rule, idle: frozenset[str], snapshot: Snapshot) -> None:
        self._rule, self._idle = rule, idle
        self._found: PreFiltered | None = None
        self.nodes_seen = snapshot.table.changes.nodes

    def pick(self, uid: str, columns: Sequence[KeyColumn], snapshot: Snapshot, seed: int) -> Quick | None:
        """Decide with the columns of node properties; None if the pod needs a sheet, or no row is feasible."""
        usage = snapshot.nodes.usage()
        if usage is None:
            return None
        total, closed = self._rule.rows(usage)
        for column in columns:
            if not column.is_sound or column.found.refused or column.found.narrowed is not None:
                return None
            if column.closed is not None:
                closed = column.closed if closed is None else closed | column.closed
            if column.few is not None:
                total[column.few.rows] += column.few.worths
            elif column.worths is not None:
                total += column.worths
        feasible = len(total)
        if closed is not None:
            feasible -= int(np.count_nonzero(closed))
            np.putmask(total, closed, REFUSED)
        if not feasible:
            return None
        for scores in [one.scaled(one.highest(total)) for column in columns for one in column.varying]:
            if scores is None:
                return None
            total += scores
        best = (total == total.item(total.argmax())).nonzero()[0]
        row = first_from(snapshot.table, best, ring_position(uid, seed))
        return Quick(row, feasible, self._results(columns))

    def _results(self, columns: Sequence[KeyColumn]) -> PreFiltered:
        """Return PreFilter's results."""
        if self._found is None:
            states: dict[str, Any] = {}
            skipped = self._idle
            for column in columns:
                if column.steps.pre_filter:
                    states.update(column.found.states)
                    skipped |= column.found.skipped
            self._found = PreFiltered(states, skipped)
        return self._found
