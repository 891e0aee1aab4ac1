"""Which nodes can access a volume, over columns.

A volume's node affinity considers labels only; requirements on node fields count as met. Thousands of local volumes each name
one host, so an affinity that requires one label to have one of some values is looked up instead of evaluated.

Source  component-helpers, storage/volume/helpers.go, CheckNodeAffinity
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from moorage.api.core import NodeSelector
from moorage.api.node_selectors import NodeSelectorMatcher, NodeTerm, compile_node_selector
from moorage.api.requirements import Requirement
from moorage.api.selectors import Selector
from moorage.state.node_matching import rows_matching, rows_matching_term
from moorage.state.view import BoolArray, IntArray, NodeView


@lru_cache(maxsize=16384)
def label_affinity(affinity: NodeSelector) -> NodeSelectorMatcher:
    """Return the label requirements of a volume's node affinity."""
    terms = compile_node_selector(affinity).terms
    return NodeSelectorMatcher(tuple(NodeTerm(term.requirements, (), term.faults) for term in terms))


def rows_reaching(affinity: NodeSelector | None, nodes: NodeView) -> BoolArray:
    """Return for each row whether it can access a volume with this affinity."""
    return np.ones(len(nodes), dtype=bool) if affinity is None else rows_matching(label_affinity(affinity), nodes)


class Reach(NamedTuple):
    """A volume's node affinity (None: all nodes), and its requirement on a label if it has no other."""

    affinity: NodeSelector | None
    required: Requirement | None

    @classmethod
    def of(cls, affinity: NodeSelector | None) -> Reach:
        terms = label_affinity(affinity).terms if affinity is not None else ()
        if len(terms) != 1 or terms[0].faults or len(terms[0].requirements) != 1:
            return cls(affinity, None)
        required = terms[0].requirements[0]
        return cls(affinity, required if required.operator == "In" else None)


def first_matching(selectors: Sequence[Selector], nodes: NodeView) -> IntArray:
    """Return for each row the index of the first selector that matches its labels, or -1."""
    none = len(selectors)
    first = np.full(len(nodes), none, dtype=np.int64)
    by_label: dict[str, dict[str, int]] = {}
    for index, selector in enumerate(selectors):
        required = selector.requirements
        if len(required) == 1 and required[0].operator == "In":
            for value in required[0].values:
                by_label.setdefault(required[0].key, {}).setdefault(value, index)
        elif not selector.matches_nothing:
            taken = rows_matching_term(NodeTerm(required), nodes)
            first[taken] = np.minimum(first[taken], index)
    for key, by_value in by_label.items():
        column = nodes.label(key)
        table = np.full(len(column.values), none, dtype=np.int64)
        for value, index in by_value.items():
            value_id = column.find(value)
            if value_id > 0:
                table[value_id] = index
        first = np.minimum(first, table.take(nodes.ids(column)))
    first[first == none] = -1
    return first
