"""ImageLocality of 1.37: image volumes count in the number of images too, as they do in the sum.

Source    kube-scheduler 1.37, plugins/imagelocality/image_locality.go
"""

from __future__ import annotations

from moorage.plugins.image_locality import ImageLocality, PodImages, images_of_pod
from moorage.state.pod_info import PodInfo


class ImageLocalityV137(ImageLocality):
    def images(self, pod: PodInfo) -> PodImages:
        found = images_of_pod(pod)
        return found._replace(containers=len(found.names))
