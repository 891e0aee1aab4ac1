"""Pods that could move to make room: each to the node, other than its own, that the scheduler would now choose for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.cycle.cycle import Cycle
from moorage.cycle.search_scope import SearchScope
from moorage.framework.changes import Change
from moorage.framework.profile import Profile
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

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
        others = SearchScope(np.delete(np.arange(len(table)), row), post_filter=False)
        with off_its_node(table, row, held):
            cycle = Cycle(0, by_class=False, nominated_first=False, errors_end=False)
            node = cycle.decide(self.profile, PodInfo(unplaced(held.pod)), self.snapshot, {}, others).node
        return None if node is None else Change("cluster", "move", eviction.target, "nodeName", old, node)


@contextmanager
def off_its_node(table: NodeTable, row: int, pod: PodInfo) -> Iterator[None]:
    """Remove a pod from its node while the block runs."""
    with table.what_if(row):
        table.remove_pod(row, pod)
        yield


def unplaced(pod: Pod) -> Pod:
    """Return the pod without a node, as before its placement."""
    return replace(pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, nominated_node_name=""))
