"""Pods that could move to make room: each to the node, other than its own, that the scheduler would now choose for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.core.cycle.column import close_refused
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.search import SearchScope, draw
from moorage.errors import PluginError
from moorage.framework.changes import Change
from moorage.framework.plugin_runner import run_pre_filter, run_score
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.view import FewRows

__all__ = ["PodMoves", "off_its_node", "unplaced"]


@dataclass(slots=True)
class PodMoves:
    """Moves of the pods of one profile. Pods with volumes or devices do not move: their volumes would have to move as well."""

    profile: Profile
    snapshot: Snapshot
    known: dict[str, Change | None] = field(default_factory=dict)

    def instead_of(self, changes: Collection[Change]) -> frozenset[Change]:
        """Return changes in which each eviction of a pod that fits on another node is replaced by a move."""
        return frozenset(self._move(one) or one for one in changes)

    def _move(self, eviction: Change) -> Change | None:
        if eviction.verb != "evict":
            return None
        if eviction.target not in self.known:
            self.known[eviction.target] = self._searched(eviction)
        move = self.known[eviction.target]
        return None if move is None else replace(move, term=eviction.term)

    def _searched(self, eviction: Change) -> Change | None:
        table, old = self.snapshot.table, str(eviction.old)
        row = table.row_of.get(old)
        key = eviction.target.removeprefix("pod/")
        held = None if row is None else next((pod for pod in table.pods[row].values() if pod.key == key), None)
        if row is None or held is None or held.volumes is not None or held.spec.resource_claims:
            return None
        if held.spec.scheduler_name != self.profile.scheduler_name:
            return None
        with off_its_node(table, row, held):
            node = self._chosen(PodInfo(unplaced(held.pod)), row)
        return None if node is None else Change("cluster", "move", eviction.target, "nodeName", old, node)

    def _chosen(self, pod: PodInfo, row: int) -> str | None:
        """Return the node that the scheduler would choose for a pod if it could not use the node on this row."""
        try:
            found = run_pre_filter(self.profile, pod, self.snapshot)
            if found.refused is None and found.nodes is None and not self.profile.percentage_of_nodes_to_score:
                return self._chosen_of_all(pod, row, found)
        except PluginError:  # the cycle tells apart which errors end the search
            pass
        cycle = Cycle(0, by_class=False, nominated_first=False, errors_end=False)
        others = SearchScope(np.delete(np.arange(len(self.snapshot.table)), row), post_filter=False)
        return cycle.decide(self.profile, pod, self.snapshot, {}, others).node

    def _chosen_of_all(self, pod: PodInfo, row: int, found: PreFiltered) -> str | None:
        """Do the same if PreFilter leaves all nodes and Filter judges them all, in less time than a cycle needs.

        Raises  PluginError if a plugin fails or cannot judge a node
        """
        table = self.snapshot.table
        open_rows = np.ones(len(table), dtype=bool)
        steps = (step for step in self.profile.at("filter") if step.name not in found.skipped)
        close_refused(open_rows, steps, found.states, pod, self.snapshot.nodes)
        open_rows[row] = False
        rows = np.flatnonzero(open_rows)
        if len(rows) > 1 and self.profile.at("score"):
            rows = run_score(self.profile, found, pod, FewRows(self.snapshot, rows)).best()
        return table.nodes[draw(table, rows, pod.uid, 0)].name if len(rows) else None


@contextmanager
def off_its_node(table: NodeTable, row: int, pod: PodInfo) -> Iterator[None]:
    """Remove a pod from its node while the block runs."""
    with table.what_if(row):
        table.remove_pod(row, pod)
        yield


def unplaced(pod: Pod) -> Pod:
    """Return the pod without a node, as before its placement."""
    return replace(pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, nominated_node_name=""))
