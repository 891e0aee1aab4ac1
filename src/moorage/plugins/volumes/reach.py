"""Which nodes a volume can be reached from, over columns.

A volume's node affinity asks for labels alone: what it asks of node fields counts as met. Thousands of local volumes each name
one host, so affinities that ask for one label to have one of some values are looked up rather than judged.

Source  component-helpers, storage/volume/helpers.go, CheckNodeAffinity
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from moorage.api.core import NodeSelector
from moorage.api.node_selectors import NodeSelectorMatcher, NodeTerm, compile_node_selector
from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector
from moorage.state.columns import BoolArray, IntArray
from moorage.state.node_matching import rows_matching, rows_matching_term
from moorage.state.view import NodeView

__all__ = ["Nearest", "Reach", "first_taking", "label_affinity", "rows_reaching"]

#: Comes after every index.
_NONE = 2**62


@lru_cache(maxsize=16384)
def label_affinity(affinity: NodeSelector) -> NodeSelectorMatcher:
    """Return what a volume's node affinity asks of labels."""
    terms = compile_node_selector(affinity).terms
    return NodeSelectorMatcher(tuple(NodeTerm(term.requirements, (), term.faults) for term in terms))


def rows_reaching(affinity: NodeSelector | None, nodes: NodeView) -> BoolArray:
    """Say for each row whether a volume with this affinity can be reached from it."""
    return np.ones(len(nodes), dtype=bool) if affinity is None else rows_matching(label_affinity(affinity), nodes)


class Reach(NamedTuple):
    """A volume's node affinity (None: it is reached from everywhere), and what it asks of a label, if that is all it asks."""

    affinity: NodeSelector | None
    asked: Requirement | None

    @classmethod
    def of(cls, affinity: NodeSelector | None) -> Reach:
        terms = label_affinity(affinity).terms if affinity is not None else ()
        if len(terms) != 1 or terms[0].faults or len(terms[0].requirements) != 1:
            return cls(affinity, None)
        asked = terms[0].requirements[0]
        return cls(affinity, asked if asked.operator == "In" else None)


class Nearest:
    """Volumes in an order of preference, sorted by how they are reached: the first few for each row are then looked up."""

    def __init__(self, volumes: Iterable[Reach], depth: int) -> None:
        """Take volumes, best first. ``depth``: how many of the first are told for each row."""
        self._depth = depth
        self._everywhere: list[int] = []
        self._by_label: dict[str, dict[str, list[int]]] = {}
        self._otherwise: dict[NodeSelector, list[int]] = {}
        for index, (affinity, asked) in enumerate(volumes):
            if asked is not None:
                by_value = self._by_label.setdefault(asked.key, {})
                for value in asked.values:
                    by_value.setdefault(value, []).append(index)
            elif affinity is None:
                self._everywhere.append(index)
            else:
                self._otherwise.setdefault(affinity, []).append(index)

    def over(self, nodes: NodeView) -> IntArray:
        """Return the indices of the first volumes that each row reaches, in order; shape (depth, rows), -1 for none."""
        found = np.full((self._depth, len(nodes)), _NONE, dtype=np.int64)
        found[: len(self._everywhere)] = np.array(self._everywhere[: self._depth], dtype=np.int64)[:, None]
        for key, by_value in self._by_label.items():
            column = nodes.label(key)
            held, ids = np.unique(nodes.ids(column), return_inverse=True)
            values = (column.values[value_id] for value_id in held.tolist())
            firsts = self._firsts([() if value is None else by_value.get(value, ()) for value in values])
            found = self._merged(found, firsts[:, ids.reshape(-1)])
        for affinity, indices in self._otherwise.items():
            mask = rows_reaching(affinity, nodes)
            found = self._merged(found, np.where(mask, np.array(indices[: self._depth], dtype=np.int64)[:, None], _NONE))
        found[found == _NONE] = -1
        return found

    def _firsts(self, lists: Sequence[Sequence[int]]) -> IntArray:
        """Return the first of each list, shape (depth, lists)."""
        return np.array(
            [[indices[at] if at < len(indices) else _NONE for indices in lists] for at in range(self._depth)], dtype=np.int64
        ).reshape(self._depth, len(lists))

    def _merged(self, one: IntArray, other: IntArray) -> IntArray:
        if self._depth == 1 and len(other) == 1:
            return np.minimum(one, other)
        merged: IntArray = np.sort(np.concatenate([one, other]), axis=0)[: self._depth]
        return merged


def first_taking(selectors: Sequence[Selector], nodes: NodeView) -> IntArray:
    """Return for each row the index of the first selector that takes its labels, or -1."""
    nobody = len(selectors)
    first = np.full(len(nodes), nobody, dtype=np.int64)
    by_label: dict[str, dict[str, int]] = {}
    for index, selector in enumerate(selectors):
        asked = selector.requirements
        if len(asked) == 1 and asked[0].operator == "In":
            for value in asked[0].values:
                by_label.setdefault(asked[0].key, {}).setdefault(value, index)
        elif not selector.matches_nothing:
            taken = rows_matching_term(NodeTerm(asked), nodes)
            first[taken] = np.minimum(first[taken], index)
    for key, by_value in by_label.items():
        column = nodes.label(key)
        table = np.full(len(column.values), nobody, dtype=np.int64)
        for value, index in by_value.items():
            value_id = column.find(value)
            if value_id > 0:
                table[value_id] = index
        first = np.minimum(first, table.take(nodes.ids(column)))
    first[first == nobody] = -1
    return first
