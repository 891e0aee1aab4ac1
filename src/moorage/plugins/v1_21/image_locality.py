"""ImageLocality, as 1.21 had it: prefer nodes that have the pod's images already, the more so the larger the images are.

Differs from today in two ways. Images of init containers and image volumes do not count. And how many nodes have an image is
noted for a node when it comes or changes, and not again: of nodes with the same image, those that came last look best.

Reads     images of containers; images that nodes report, how many nodes there are, in which order they came
Scores    0-100, by size and spread, as today
Source    kube-scheduler 1.21, plugins/imagelocality/image_locality.go; internal/cache/cache.go, addNodeImageStates
"""

from __future__ import annotations

import numpy as np

from moorage.framework.points import Signature
from moorage.plugins import image_locality as today
from moorage.plugins.image_locality import ImagesAsked, mapped_sums, normalized_image_name
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["ImageLocalityV121"]


class ImageLocalityV121(today.ImageLocality):
    """See the module's description."""

    def asked(self, pod: PodInfo) -> ImagesAsked:
        names = sorted(normalized_image_name(container.image) for container in pod.spec.containers)
        return ImagesAsked(tuple(names), len(names))

    def scores_of(self, table: NodeTable, asked: ImagesAsked) -> IntArray:
        sums = np.zeros(len(table), dtype=np.int64)
        for name in asked.names:
            holders = table.images.get(name)
            if holders is not None:
                rows = np.fromiter(holders.rows, dtype=np.intp, count=len(holders.rows))
                sums[rows] += (holders.size * (_known_to(table, rows) / len(table))).astype(np.int64)
        return mapped_sums(sums, asked)

    def sign(self, pod: PodInfo) -> Signature:
        return {"images of containers": self.asked(pod)}


def _known_to(table: NodeTable, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> IntArray:
    """Return how many of these rows' nodes had come when each of them was last described."""
    came = np.sort(table.arrival.view[rows])
    return np.searchsorted(came, table.described.view[rows], side="right").astype(np.int64)
