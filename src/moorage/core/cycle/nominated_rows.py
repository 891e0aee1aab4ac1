"""The rows of a pod class that have nominated pods, and whether a pod fits there beside them.

Nominations and rows change one at a time, so the answers are kept from pod to pod: a list of nominated pods is compared by
identity (the nominator replaces a list when it changes), and a row is judged again after it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from moorage.core.preemption.what_if import Nominated, contenders
from moorage.state.table import NodeTable
from moorage.state.view import BoolArray, PodInfo

#: Row → the nominated pods there that a pod must leave room for.
Rivals: TypeAlias = Mapping[int, Sequence[PodInfo]]


class NominatedRows:
    """The rows with nominated pods that pods of one ``priority`` must leave room for. No node is added or removed meanwhile."""

    def __init__(self, priority: int, rows: int) -> None:
        self.priority = priority
        self._nominated: Nominated | None = None
        self._lists: dict[str, Sequence[PodInfo]] = {}
        self._rivals: dict[int, list[PodInfo]] = {}
        self._nominees: set[str] = set()
        self._position = -1
        #: Rows with rivals that are not judged yet; and a mask of the rows where the pod does not fit beside its rivals.
        self._unknown: set[int] = set()
        self._closed: BoolArray = np.zeros(rows, dtype=bool)

    def rivals(self, pod: PodInfo, nominated: Nominated, table: NodeTable, allowed: BoolArray) -> Rivals:
        """Return the ``allowed`` rows with nominated pods that a pod must leave room for, and those pods."""
        self._follow(nominated, table)
        return self._others(pod, allowed)

    def _others(self, pod: PodInfo, allowed: BoolArray) -> Rivals:
        if pod.uid not in self._nominees:
            return {row: pods for row, pods in self._rivals.items() if allowed[row]}
        others = {row: contenders(pods, pod) for row, pods in self._rivals.items() if allowed[row]}  # without the pod itself
        return {row: pods for row, pods in others.items() if pods}

    def closed(
        self, pod: PodInfo, nominated: Nominated, table: NodeTable, allowed: BoolArray,
        fits: Callable[[int, Sequence[PodInfo]], bool],
    ) -> BoolArray | None:  # fmt: skip
        """Return a mask of the ``allowed`` rows where the pod does not fit beside the nominated pods; None if there are none.

        ``fits(row, pods)`` must depend on nothing but the pod's class, the sums over the row's pods and the nominated pods.
        """
        self._follow(nominated, table)
        if pod.uid in self._nominees:
            rivals = self._others(pod, allowed)
            closed = np.zeros(len(allowed), dtype=bool)
            closed[[row for row, pods in rivals.items() if not fits(row, pods)]] = True
        else:
            for row in [row for row in self._unknown if allowed[row]]:
                self._closed[row] = not fits(row, self._rivals[row])
                self._unknown.discard(row)
            closed = self._closed & allowed
        return closed if closed.any() else None

    def _follow(self, nominated: Nominated, table: NodeTable) -> None:
        """Take in the nominations and rows that changed since the last pod."""
        changed = table.changes.since(self._position) if self._position >= 0 else None
        self._position = table.changes.position
        if changed is None:
            self._unknown.update(self._rivals)
        else:
            self._unknown.update(row for row in changed if row in self._rivals)
        if nominated is self._nominated and isinstance(nominated, MappingProxyType):
            return  # a MappingProxyType stands for a mapping that never changes
        before, self._lists, self._nominated = self._lists, dict(nominated), nominated
        names = [*(name for name in before if name not in nominated), *nominated]
        changed_names = [name for name in names if before.get(name, ()) is not nominated.get(name, ())]
        for name in changed_names:
            self._nominees.difference_update(pod.uid for pod in before.get(name, ()))
        for name in changed_names:
            self._nominees.update(pod.uid for pod in nominated.get(name, ()))
            if name in table.row_of:
                self._set(table.row_of[name], nominated.get(name, ()))

    def _set(self, row: int, pods: Sequence[PodInfo]) -> None:
        rivals = [pod for pod in pods if pod.priority >= self.priority]
        self._closed[row] = False
        if rivals:
            self._rivals[row] = rivals
            self._unknown.add(row)
        else:
            self._rivals.pop(row, None)
            self._unknown.discard(row)
