"""ImageLocality of earlier releases: up to 1.35 image volumes do not count, and up to 1.29 init containers do not either.

Up to 1.28 the number of nodes that have an image is recorded for a node when the node is added or changed, and not updated
afterwards: of nodes with the same image, those added last look best.

Reads     images of containers, and from 1.30 on of init containers; images that nodes report, and how many nodes there are
Scores    0-100, by size and spread, as the current plugin does
Source    kube-scheduler 1.35 and 1.29, plugins/imagelocality/image_locality.go; 1.28 and 1.21, internal/cache/cache.go,
          addNodeImageStates
"""

from __future__ import annotations

import numpy as np

from moorage.framework.points import Signature
from moorage.plugins.image_locality import ImageLocality, PodImages, mapped_sums, normalized_image_name
from moorage.state.table import NodeTable
from moorage.state.view import IntArray, NodeView, PodInfo


class ImageLocalityV135(ImageLocality):
    def images(self, pod: PodInfo) -> PodImages:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return PodImages(tuple(sorted(normalized_image_name(one.image) for one in containers)), len(containers))

    def _signature(self, pod: PodInfo) -> Signature:
        return {"images of containers and init containers": self.images(pod)}


class ImageLocalityV129(ImageLocality):
    def images(self, pod: PodInfo) -> PodImages:
        names = sorted(normalized_image_name(one.image) for one in pod.spec.containers)
        return PodImages(tuple(names), len(names))

    def _signature(self, pod: PodInfo) -> Signature:
        return {"images of containers": self.images(pod)}


class ImageLocalityV121(ImageLocalityV129):
    """The plugin of 1.21, which counts the nodes with an image when a node is added or changed."""

    def version_of(self, table: NodeTable) -> tuple[int, int]:
        return table.changes.layout, table.changes.nodes

    def scores_of(self, nodes: NodeView, images: PodImages) -> IntArray:
        table = nodes.table
        sums = np.zeros(len(table), dtype=np.int64)
        for name in images.names:
            holders = table.images.holders.get(name)
            if holders is not None:
                rows = np.fromiter(holders.rows, dtype=np.intp, count=len(holders.rows))
                sums[rows] += (holders.size * (_nodes_known_to(table, rows) / len(table))).astype(np.int64)
        return nodes.take(mapped_sums(sums, images))


def _nodes_known_to(table: NodeTable, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> IntArray:
    """Return how many of these rows existed when each row's node was last added or changed; shape of ``rows``."""
    arrivals = np.sort(table.arrival.view[rows])
    return np.searchsorted(arrivals, table.descriptions()[rows], side="right").astype(np.int64)


class ImageLocalityV128(ImageLocalityV121):
    """The plugin up to 1.28, which is that of 1.21."""
