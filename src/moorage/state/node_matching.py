"""Match nodeSelectors, node affinity and tolerations against the rows of the node table.

A requirement concerns one label, and a label is a column of value ids, so each distinct value is judged once and the result is
spread over its rows. Requirements on ``metadata.name`` use the table's index of names.

Compiled required affinity is cached by its API value, because most pods are copies of one another.

Source  component-helpers, scheduling/corev1/nodeaffinity/nodeaffinity.go
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from moorage.api.core import Node, NodeSelector
from moorage.api.node_selectors import required_nodes
from moorage.api.selectors import NodeSelectorMatcher, NodeTerm, Requirement, compile_node_selector
from moorage.state.columns import BoolArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView


class RequiredNodeAffinity(NamedTuple):
    """The nodes a pod may run on: nodes that have all ``labels`` and match any term of ``matcher`` (None: all nodes)."""

    labels: Mapping[str, str]
    matcher: NodeSelectorMatcher | None

    def rows(self, nodes: NodeView) -> BoolArray:
        """Return a mask of the matching rows of the view. Terms that cannot be parsed match nothing."""
        mask = rows_labelled(self.labels, nodes)
        return mask if self.matcher is None else mask & rows_matching(self.matcher, nodes)

    def matches(self, node: Node) -> bool:
        """Return True if one node matches; it need not be in the table."""
        if not self._carries_labels(node):
            return False
        return self.matcher is None or self.matcher.matches(node.labels, node.name)

    def error(self, node: Node) -> str | None:
        """Return upstream's parse error if a term cannot be parsed and no other term matches the node; otherwise None."""
        if self.matcher is None or not self._carries_labels(node) or self.matches(node):
            return None
        return self.matcher.error

    def _carries_labels(self, node: Node) -> bool:
        return all(node.labels.get(key) == value for key, value in self.labels.items())


def required_node_affinity(pod: PodInfo) -> RequiredNodeAffinity:
    """Return the pod's nodeSelector and its required node affinity, compiled. Parse errors stay with their terms."""
    required = required_nodes(pod.spec)
    return RequiredNodeAffinity(pod.spec.node_selector, _compiled(required) if required else None)


@lru_cache(maxsize=4096)
def _compiled(selector: NodeSelector) -> NodeSelectorMatcher:
    return compile_node_selector(selector)


def required_node_affinity_rows(pod: PodInfo, nodes: NodeView) -> BoolArray:
    """Return for each row whether the pod's nodeSelector and required node affinity match it."""
    return required_node_affinity(pod).rows(nodes)


def rows_labelled(labels: Mapping[str, str], nodes: NodeView) -> BoolArray:
    """Return for each row whether its node has all of these labels."""
    mask = np.ones(len(nodes), dtype=bool)
    for key, value in labels.items():
        column = nodes.label(key)
        mask &= np.equal(nodes.ids(column), column.find(value))
    return mask


def rows_matching(matcher: NodeSelectorMatcher, nodes: NodeView) -> BoolArray:
    """Return for each row whether any term matches it."""
    mask = nodes.false()
    for term in matcher.terms:
        mask |= rows_matching_term(term, nodes)
    return mask


def rows_matching_term(term: NodeTerm, nodes: NodeView) -> BoolArray:
    """Return for each row whether it meets every requirement of the term; none does if the term cannot be parsed."""
    if term.faults:
        return nodes.false()
    mask = np.ones(len(nodes), dtype=bool)
    for asked in term.requirements:
        mask &= _rows_with_label(asked, nodes)
    for asked in term.fields:
        mask &= _rows_with_field(asked, nodes)
    return mask


def _rows_with_label(asked: Requirement, nodes: NodeView) -> BoolArray:
    column = nodes.label(asked.key)
    ids = nodes.ids(column)
    match asked.operator:
        case "Exists":
            return np.not_equal(ids, 0)
        case "DoesNotExist":
            return np.equal(ids, 0)
        case "In" | "NotIn":
            # Look values up instead of judging each: a hostname column has as many values as there are nodes.
            known = [at for at in map(column.find, asked.values) if at > 0]
            taken = np.equal(ids, known[0]) if len(known) == 1 else _among(known, len(column.values)).take(ids)
            return taken if asked.operator == "In" else ~taken
        case _:
            return column.spread(ids, asked.matches)


def _among(ids: list[int], size: int) -> BoolArray:
    """Return a mask of length ``size``, true at ``ids``."""
    table = np.zeros(size, dtype=bool)
    table[ids] = True
    return table


def _rows_with_field(asked: Requirement, nodes: NodeView) -> BoolArray:
    if asked.key != "metadata.name":
        # A field that nodes do not have reads as empty.
        return np.full(len(nodes), asked.matches(""))
    named = nodes.named(asked.values)
    return named if asked.operator == "In" else ~named
