"""Topology domains: rows that share the value of a node label, and sums over them.

A domain is the id of a label value (``nodes.label(key)``), so what is known of domains is an array with one entry for each
value the label has or had; id 0 is "no such label" and is no domain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.labels import Ids
from moorage.state.view import NodeView

__all__ = ["domain_ids", "domain_sums", "domains_with", "rows_with_labels"]


def domain_ids(nodes: NodeView, key: str) -> Ids:
    """Return the domain of each row of the view, shape (rows,); 0 where the node has no label ``key``."""
    return nodes.ids(nodes.label(key))


def domain_sums(nodes: NodeView, key: str, per_row: npt.NDArray[np.generic], rows: BoolArray | None = None) -> IntArray:
    """Sum a column over each domain, over all rows or those of a mask; shape (values,), 0 for id 0. A fresh array.

    Exact while sums stay under 2**53.
    """
    column = nodes.label(key)
    weights = per_row if rows is None else per_row * rows
    sums = np.bincount(nodes.ids(column), weights=weights, minlength=len(column.values)).astype(np.int64)
    sums[0] = 0
    return sums


def domains_with(nodes: NodeView, key: str, rows: BoolArray) -> BoolArray:
    """Say for each domain whether a row of the mask is in it; shape (values,), False for id 0."""
    column = nodes.label(key)
    held = np.zeros(len(column.values), dtype=bool)
    held[nodes.ids(column)[rows]] = True
    held[0] = False
    return held


def rows_with_labels(nodes: NodeView, keys: list[str]) -> BoolArray:
    """Say for each row whether its node has every one of these labels."""
    mask = np.ones(len(nodes), dtype=bool)
    for key in keys:
        mask &= np.not_equal(domain_ids(nodes, key), 0)
    return mask
