"""ImageLocality up to 1.35: image volumes do not count.

Reads     images of containers and init containers; images that nodes report, and how many nodes there are
Scores    0-100, by size and spread, as the current plugin does
Source    kube-scheduler 1.35, plugins/imagelocality/image_locality.go
"""

from __future__ import annotations

from moorage.framework.points import Signature
from moorage.plugins.image_locality import ImageLocality, PodImages, normalized_image_name
from moorage.state.pod_info import PodInfo

__all__ = ["ImageLocalityV135"]


class ImageLocalityV135(ImageLocality):
    """The plugin; see the module docstring."""

    def images(self, pod: PodInfo) -> PodImages:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return PodImages(tuple(sorted(normalized_image_name(one.image) for one in containers)), len(containers))

    def _signature(self, pod: PodInfo) -> Signature:
        return {"images of containers and init containers": self.images(pod)}
