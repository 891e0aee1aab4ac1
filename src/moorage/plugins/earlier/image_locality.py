"""ImageLocality of earlier releases: up to 1.35 image volumes do not count, and up to 1.29 init containers do not either.

Up to 1.28 the number of nodes that have an image is recorded for a node when the node is added or changed, and not updated
afterwards: of nodes with the same image, those added last look best.

Reads     images of containers, and from 1.30 on of init containers; images that nodes report, and how many nodes there are
Scores    0-100, by size and spread, as the current plugin does
Source    kube-scheduler 1.35 and 1.29, plugins/imagelocality/image_locality.go; 1.28, internal/cache/cache.go
"""

from __future__ import annotations

from moorage.framework.points import Signature
from moorage.plugins.image_locality import ImageLocality, PodImages, normalized_image_name
from moorage.plugins.v1_21.image_locality import ImageLocalityV121
from moorage.state.pod_info import PodInfo


class ImageLocalityV135(ImageLocality):
    def images(self, pod: PodInfo) -> PodImages:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return PodImages(tuple(sorted(normalized_image_name(one.image) for one in containers)), len(containers))

    def _signature(self, pod: PodInfo) -> Signature:
        return {"images of containers and init containers": self.images(pod)}


class ImageLocalityV129(ImageLocality):
    """The plugin up to 1.29."""

    def images(self, pod: PodInfo) -> PodImages:
        names = sorted(normalized_image_name(one.image) for one in pod.spec.containers)
        return PodImages(tuple(names), len(names))

    def _signature(self, pod: PodInfo) -> Signature:
        return {"images of containers": self.images(pod)}


class ImageLocalityV128(ImageLocalityV121):
    """The plugin up to 1.28, which is that of 1.21."""
