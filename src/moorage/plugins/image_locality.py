"""ImageLocality: prefer nodes that already have the pod's images, more so for larger images.

An image adds its size times the share of nodes that have it, so an image on a single node does not draw every pod there. The
sum is mapped to 0-100 between 23 MiB and 1000 MiB for each container.

Reads     images of containers, init containers and image volumes; images that nodes report, and how many nodes there are
Scores    0-100, as above
Source    kube-scheduler 1.36, plugins/imagelocality/image_locality.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin, Signature
from moorage.state.table import NodeTable
from moorage.state.view import IntArray, NodeView, PodInfo

MIB = 1024 * 1024
#: Bytes: a sum up to this scores 0.
LEAST = 23 * MIB
#: Bytes for each container: a sum from this on scores 100.
MOST_PER_CONTAINER = 1000 * MIB
#: So many images of a pod give at most 128 sums, each of which is mapped once.
_FEW_IMAGES = 7


class PodImages(NamedTuple):
    """The images of a pod, sorted, with repeats, and the number of its containers."""

    names: tuple[str, ...]
    containers: int


class ImageLocality(ScorePlugin[PodInfo], Reusable):
    """The plugin. A row's score depends on all nodes, but not on pods."""

    name = "ImageLocality"

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return self.scores_of(nodes, self.images(pod)) if nodes.images else nodes.zeros()

    def images(self, pod: PodInfo) -> PodImages:
        return images_of_pod(pod)

    def version_of(self, table: NodeTable) -> tuple[int, int] | None:
        """Return a value that changes with the nodes and their images: the share of nodes with an image counts.

        None while no node has an image.
        """
        return (table.changes.arrangement, table.changes.images) if table.images.holders else None

    def scores_of(self, nodes: NodeView, images: PodImages) -> IntArray:
        return image_scores(nodes, images)

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE, self._signature, signature_reads=(), other_nodes=self.version_of)

    def _signature(self, pod: PodInfo) -> Signature:
        return {"images": self.images(pod)}


def images_of_pod(pod: PodInfo) -> PodImages:
    """Return the images of a pod; an image that two containers use counts twice."""
    containers = pod.spec.containers
    if len(containers) == 1 and not pod.spec.init_containers and not pod.spec.volumes:
        return PodImages((normalized_image_name(containers[0].image),), 1)
    containers += pod.spec.init_containers
    names = [container.image for container in containers]
    names += [volume.image.reference for volume in pod.spec.volumes if volume.image is not None]
    return PodImages(tuple(sorted(map(normalized_image_name, names))), len(containers))


def image_scores(nodes: NodeView, images: PodImages) -> IntArray:
    """Score the rows of a view, 0-100.

    Rounds  down per image (in floating point, as Go does) and again for the score
    Source  imagelocality/image_locality.go, sumImageScores and calculatePriority
    """
    known = nodes.table.images
    added: dict[str, int] = {}
    for name in images.names:
        holders = known.holders.get(name)
        if holders is not None:
            added[name] = added.get(name, 0) + int(holders.size * (len(holders.rows) / len(nodes.table)))
    if not added or sum(added.values()) < LEAST:
        return nodes.zeros()
    if len(added) <= _FEW_IMAGES:
        return _by_holdings(nodes, images, added)
    sums = nodes.zeros()
    for name, amount in added.items():
        sums += nodes.take(known.column(name)) * np.int64(amount)
    return mapped_sums(sums, images)


def _by_holdings(nodes: NodeView, images: PodImages, added: Mapping[str, int]) -> IntArray:
    """Score each row by which of a few images it has; ``added`` is what each adds to the sum."""
    sums, held = [0], np.zeros(len(nodes), dtype=np.uint8)
    for at, (name, amount) in enumerate(added.items()):
        sums += [before + amount for before in sums]
        held += nodes.take(nodes.table.images.column(name)) << at
    most = MOST_PER_CONTAINER * images.containers
    scores = [100 * (min(one, most) - LEAST) // (most - LEAST) if one >= LEAST else 0 for one in sums]  # see ``mapped_sums``
    return np.array(scores).take(held)


def mapped_sums(sums: IntArray, images: PodImages) -> IntArray:
    """Map sums of sizes, in bytes, to 0-100."""
    most = MOST_PER_CONTAINER * images.containers
    # Not np.clip: for a pod without containers the upper bound is below the lower one, and upstream tests the lower one first.
    bounded = np.where(sums < LEAST, LEAST, np.where(sums > most, most, sums))
    scores: IntArray = 100 * (bounded - LEAST) // (most - LEAST)
    return scores


def normalized_image_name(name: str) -> str:
    """Return the name as container runtimes report it: with tag ``latest`` if it has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
