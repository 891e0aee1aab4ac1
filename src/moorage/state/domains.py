"""Topology domains: rows that share the value of a node label, and counts over them.

A domain is the id of a label value (``nodes.label(key)``), so data by domain is an array with one entry for each value that the
label has or had; id 0 means "no such label" and is no domain. ``NodeTable.pod_counts.by_domain`` counts pods over all rows;
these functions count over some of them. A mask of None means all rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.labels import Ids
from moorage.state.view import NodeView

__all__ = ["domain_ids", "domain_sums", "domains_with", "rows_with_labels"]


def domain_ids(nodes: NodeView, key: str) -> Ids:
    """Return the domain of each row of the view, shape (rows,); 0 where the node has no label ``key``."""
    return nodes.ids(nodes.label(key))


def domain_sums(nodes: NodeView, key: str, per_row: npt.NDArray[np.integer], rows: BoolArray | None = None) -> IntArray:
    """Sum a column over each domain; shape (values,), 0 for id 0. A fresh array. Exact while sums stay under 2**53."""
    column = nodes.label(key)
    weights = per_row if rows is None else per_row * rows
    sums = np.bincount(nodes.ids(column), weights=weights, minlength=len(column.values)).astype(np.int64)
    sums[0] = 0
    return sums


def domains_with(nodes: NodeView, key: str, rows: BoolArray | None = None) -> BoolArray:
    """Return for each domain whether the view has a row of it; shape (values,), False for id 0. Read-only."""
    if rows is None:
        return nodes.domains_held(key)
    column = nodes.label(key)
    held = np.zeros(len(column.values), dtype=bool)
    held[nodes.ids(column)[rows]] = True
    held[0] = False
    return held


def rows_with_labels(nodes: NodeView, keys: Iterable[str]) -> BoolArray | None:
    """Return for each row whether its node has all of these labels; None if every node of the table has."""
    mask: BoolArray | None = None
    for key in keys:
        if not nodes.label(key).is_everywhere:
            there = np.not_equal(domain_ids(nodes, key), 0)
            mask = there if mask is None else mask & there
    return mask
