"""Nodes as extenders return them: without pods and images.

An extender without a node cache receives whole nodes and returns those that pass. kube-scheduler scores the returned nodes,
which carry no pods and no images, so its Score plugins see empty nodes. Counts that plugins made over all nodes before
(domains, affinities) are unaffected.

Source  kube-scheduler 1.36, extender.go, Filter; schedule_one.go, prioritizeNodes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from moorage.state.counts import Counts, PodMatcher
from moorage.state.node_images import ImageHolders
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo


class BareView(NodeView):
    """A view of some rows of a node table, with no pods and no images on the nodes."""

    __slots__ = ()
    is_true = False

    def only(self, keep: BoolArray) -> BareView:
        return BareView(self.snapshot, self.row_numbers[keep])

    def requested(self, resource: str) -> IntArray:
        return self.zeros()

    @property
    def nonzero_cpu(self) -> IntArray:
        return self.zeros()

    @property
    def nonzero_memory(self) -> IntArray:
        return self.zeros()

    @property
    def pod_count(self) -> IntArray:
        return self.zeros()

    @property
    def images(self) -> Mapping[str, ImageHolders]:
        return {}

    @property
    def host_ports(self) -> Mapping[tuple[str, int], Mapping[str, Mapping[int, int]]]:
        return {}

    def pods_matching(self, matcher: PodMatcher) -> Counts:
        return np.zeros_like(super().pods_matching(matcher))

    def __iter__(self) -> Iterator[NodeInfo]:
        for row in self.row_numbers:
            yield BareNode(self.table, int(row))

    def at(self, row: int) -> BareView:
        return BareView(self.snapshot, np.array([row], dtype=np.intp))

    def one(self, row: int) -> BareNode:
        return BareNode(self.table, row)


class BareNode(NodeInfo):
    """One node without pods."""

    __slots__ = ()

    @property
    def pods(self) -> list[PodInfo]:
        return []

    @property
    def pod_count(self) -> int:
        return 0

    def requested(self, resource: str) -> int:
        return 0

    @property
    def nonzero_cpu(self) -> int:
        return 0

    @property
    def nonzero_memory(self) -> int:
        return 0
