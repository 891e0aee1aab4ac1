"""How devices back extended resources: which class backs a resource, on which nodes, and what the claim for them requests.

Source  kube-scheduler 1.36: plugins/dynamicresources/extendeddynamicresources.go, filterExtendedResources
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moorage.api.core import Pod
from moorage.api.devices import DeviceClass
from moorage.api.names import is_extended_resource_name
from moorage.plugins.devices.extended_resource_claims import ExtendedRequests, requests_for
from moorage.plugins.resources.device_backed_scores import DEVICE_CLASS_PREFIX, device_class_for
from moorage.state.view import BoolArray, NodeView, Snapshot


class ResourceBacking:
    """The newest rule."""

    def can_be_backed(self, resource: str) -> bool:
        """Return whether devices can back a resource of this name at all."""
        return is_extended_resource_name(resource) or resource.startswith(DEVICE_CLASS_PREFIX)

    def device_class(self, resource: str, snapshot: Snapshot) -> DeviceClass | None:
        """Return the class that backs a resource."""
        return device_class_for(resource, snapshot) if self.can_be_backed(resource) else None

    def needs_devices(self, resource: str, nodes: NodeView) -> BoolArray:
        """Return the rows where devices have to provide a resource that a class backs."""
        rows: BoolArray = np.equal(nodes.allocatable(resource), 0)
        return rows

    def requests(self, pod: Pod, here: Mapping[str, str], backed: Mapping[str, str]) -> ExtendedRequests:
        """Return what the claim requests on a node. Both map resources to classes.

        ``here``    the resources that devices have to provide on the node
        ``backed``  all resources of the pod that devices back
        """
        return requests_for(pod, here)


def unlisted(resource: str, nodes: NodeView) -> BoolArray:
    """Return the rows whose nodes do not list a resource; a node may list one and have none of it."""
    rows = nodes.false()
    numbers = nodes.row_numbers
    for at in np.flatnonzero(nodes.allocatable(resource) == 0):
        rows[at] = resource not in nodes.table.nodes[int(numbers[at])].status.allocatable
    return rows
