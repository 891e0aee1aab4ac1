"""Which nodes a volume can be reached from, over columns.

A volume's node affinity asks for labels alone: what it asks of node fields counts as met. Thousands of local volumes each name
one host, so affinities that ask for one label to have one of some values are looked up rather than judged.

Source  component-helpers, storage/volume/helpers.go, CheckNodeAffinity
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from moorage.api.core import NodeSelector
from moorage.api.node_selectors import NodeSelectorMatcher, NodeTerm, compile_node_selector
from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector
from moorage.state.columns import BoolArray
from moorage.state.node_matching import rows_matching, rows_matching_term
from moorage.state.view import NodeView

__all__ = ["Positions", "first_taking", "label_affinity", "row_classes", "rows_reaching"]

#: Places in a view, counted from 0.
Positions = npt.NDArray[np.intp]
#: Bits that are gathered before they are numbered anew, so that they fit in an integer beside the number of the row's group.
_BITS = 30


@lru_cache(maxsize=16384)
def label_affinity(affinity: NodeSelector) -> NodeSelectorMatcher:
    """Return what a volume's node affinity asks of labels."""
    terms = compile_node_selector(affinity).terms
    return NodeSelectorMatcher(tuple(NodeTerm(term.requirements, (), term.faults) for term in terms))


def rows_reaching(affinity: NodeSelector | None, nodes: NodeView) -> BoolArray:
    """Say for each row whether a volume with this affinity can be reached from it."""
    return np.ones(len(nodes), dtype=bool) if affinity is None else rows_matching(label_affinity(affinity), nodes)


def _one_of(affinity: NodeSelector) -> Requirement | None:
    """Return the affinity's only requirement, if it has but one and that lists values."""
    terms = label_affinity(affinity).terms
    if len(terms) != 1 or terms[0].faults or len(terms[0].requirements) != 1:
        return None
    asked = terms[0].requirements[0]
    return asked if asked.operator == "In" else None


class _RowsByLabel:
    """Positions in a view by the value of a label, worked out for each label when it is first asked for."""

    def __init__(self, nodes: NodeView) -> None:
        self._nodes = nodes
        self._by_label: dict[str, dict[str | None, list[int]]] = {}

    def among(self, asked: Requirement) -> Positions:
        """Return the positions whose label has one of the values."""
        by_value = self._by_label.get(asked.key)
        if by_value is None:
            column = self._nodes.label(asked.key)
            by_value = self._by_label[asked.key] = {}
            for at, value_id in enumerate(self._nodes.ids(column).tolist()):
                by_value.setdefault(column.values[value_id], []).append(at)
        return np.array([at for value in asked.values for at in by_value.get(value, ())], dtype=np.intp)


def row_classes(affinities: Sequence[NodeSelector | None], nodes: NodeView) -> list[tuple[tuple[int, ...], Positions]]:
    """Group rows from which the same volumes are reached. Returns (indices into ``affinities``, positions) of each group."""
    by_label = _RowsByLabel(nodes)
    wide: list[tuple[int, BoolArray]] = []
    narrow: dict[int, list[int]] = {}
    for index, affinity in enumerate(affinities):
        asked = None if affinity is None else _one_of(affinity)
        if asked is None:
            wide.append((index, rows_reaching(affinity, nodes)))
            continue
        at = by_label.among(asked)
        if 8 * len(at) > len(nodes):
            wide.append((index, _mask(at, len(nodes))))
        else:
            for position in at.tolist():
                narrow.setdefault(position, []).append(index)
    return [
        ((*(index for index, mask in wide if mask[positions[0]]), *near), positions)
        for near, positions in _grouped(_codes([mask for _, mask in wide], len(nodes)), narrow)
    ]


def _mask(at: Positions, size: int) -> BoolArray:
    mask = np.zeros(size, dtype=bool)
    mask[at] = True
    return mask


def _codes(masks: Iterable[BoolArray], size: int) -> npt.NDArray[np.int64]:
    """Return a number for each position, the same for those on which all masks agree."""
    codes = np.zeros(size, dtype=np.int64)
    for count, mask in enumerate(masks, start=1):
        codes = codes * 2 + mask
        if count % _BITS == 0:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def _grouped(codes: npt.NDArray[np.int64], narrow: Mapping[int, list[int]]) -> Iterator[tuple[tuple[int, ...], Positions]]:
    """Yield the positions of equal codes: first those that nothing in ``narrow`` sets apart, then those by what is near."""
    plain = np.ones(len(codes), dtype=bool)
    plain[list(narrow)] = False
    for code in np.unique(codes[plain]):
        yield (), np.flatnonzero(plain & (codes == code))
    grouped: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for position, near in narrow.items():
        grouped.setdefault((int(codes[position]), tuple(near)), []).append(position)
    for (_, together), positions in grouped.items():
        yield together, np.array(positions, dtype=np.intp)


def first_taking(selectors: Sequence[Selector], nodes: NodeView) -> npt.NDArray[np.int64]:
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
