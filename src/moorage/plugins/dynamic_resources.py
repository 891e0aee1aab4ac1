"""DynamicResources: keep a pod off nodes where its resource claims cannot be had, and allocate them where it goes.

Reads     spec.resourceClaims and the names in the pod's status; claims, device classes and resource slices
Rejects   the pod, while a claim or a class is missing; nodes that an allocated claim is not for. Eviction never helps
Scores    all nodes alike
Wakes on  nodes, claims, classes and slices that come or change; the pod's own claims being generated
Source    kube-scheduler 1.36, plugins/dynamicresources
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from moorage.api.devices import DeviceClass, ResourceClaim
from moorage.api.node_selectors import compile_node_selector
from moorage.errors import AttemptError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.features import FeatureGates
from moorage.framework.points import Attempt, Depends, PostFilterResult, Signature
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Code, Hold, Reject, Skip
from moorage.plugins.devices.claims import claims_of
from moorage.plugins.dynamic_resources_args import DynamicResourcesArgs
from moorage.plugins.extended_resources import device_class_for
from moorage.plugins.normalizing import default_normalize
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.node_matching import rows_matching
from moorage.state.pod_info import PodInfo
from moorage.state.pod_requests import RequestOptions
from moorage.state.view import NodeView

__all__ = ["DynamicResources"]

# kube-scheduler's own texts, kept word for word: people search their events for them.
NOT_AVAILABLE = "resourceclaim not available on the node"
NOTHING_TO_DEALLOCATE = "no new claims to deallocate"
STILL_NOT = "still not schedulable"
NO_STATE = "not found"

_FIT = RequestOptions(use_status=False)


class Wanted(NamedTuple):
    """The claims of one pod."""

    claims: tuple[ResourceClaim, ...]


class DynamicResources:
    """See the module's description."""

    name = "DynamicResources"
    Args = DynamicResourcesArgs
    depends = Depends.NODES
    signs_by = (DeviceClass,)
    scales_by_highest = True

    def __init__(self, args: DynamicResourcesArgs | None = None) -> None:
        self._args = args or DynamicResourcesArgs()
        self._gates = FeatureGates()
        self._handle: Handle | None = None

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates
        self._handle = handle

    def sign(self, pod: PodInfo) -> Signature | None:
        """Pods that ask for devices are judged each for itself."""
        if pod.spec.resource_claims or (self._handle is not None and self._by_device(pod, self._handle.snapshot)):
            return None
        return {}

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        if not pod.spec.resource_claims or self._handle is None:
            return None
        found = claims_of(pod, self._handle.snapshot)
        return Hold.because(found, unresolvable=True) if isinstance(found, str) else None

    # -- Filter -----------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Wanted | Skip | Hold:
        claims = claims_of(pod, snapshot) if pod.spec.resource_claims else []
        if isinstance(claims, str):
            return Hold.because(claims, unresolvable=True)
        if self._by_device(pod, snapshot):
            raise AttemptError(self.name, f'running PreFilter plugin "{self.name}": devices by resource are not there yet')
        if not claims:
            return SKIP
        if any(claim.status.allocation is None for claim in claims):
            raise AttemptError(self.name, f'running PreFilter plugin "{self.name}": claims cannot be allocated yet')
        return Wanted(tuple(claims))

    def _by_device(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        if not self._gates["DRAExtendedResource"] or not snapshot.objects(DeviceClass):
            return False
        requests = pod.needs_under(_FIT).requests
        return any(count and device_class_for(name, snapshot) is not None for name, count in requests.items())

    def filter(self, wanted: Wanted, nodes: NodeView) -> Iterator[Reject]:
        fits = np.ones(len(nodes), dtype=bool)
        for claim in wanted.claims:
            allocation = claim.status.allocation
            if allocation is not None and allocation.node_selector is not None:
                fits &= rows_matching(compile_node_selector(allocation.node_selector), nodes)
        yield Reject(~fits, NOT_AVAILABLE, unresolvable=True)

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
        found = attempt.found
        refused = attempt.verdicts.pre_filter
        if self.name in found.states:
            return PostFilterResult(Code.UNSCHEDULABLE, (STILL_NOT,))
        if self.name in found.skipped or (refused is not None and refused.plugin == self.name):
            return PostFilterResult(Code.UNSCHEDULABLE, (NOTHING_TO_DEALLOCATE,))
        return PostFilterResult(Code.ERROR, (NO_STATE,))

    # -- Score ------------------------------------------------------------------------------------------------------------

    def score(self, wanted: Wanted | PodInfo, nodes: NodeView) -> IntArray:
        del wanted
        return nodes.zeros()

    def normalize(self, wanted: Wanted | PodInfo, scores: IntArray) -> IntArray:
        del wanted
        return default_normalize(scores)

    # -- binding ----------------------------------------------------------------------------------------------------------

    def reserve(self, wanted: Wanted | None, pod: PodInfo, node: str) -> Hold | None:
        del wanted, pod, node
        return None

    def unreserve(self, wanted: Wanted | None, pod: PodInfo, node: str) -> None:
        del wanted, pod, node

    def pre_bind(self, wanted: Wanted | None, pod: PodInfo, node: str) -> tuple[()]:
        del wanted, pod, node
        return ()

    # -- events -----------------------------------------------------------------------------------------------------------

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE))
        yield Wake(ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE), self._claim_changed)
        yield Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_GENERATED_CLAIM), self._pod_changed)
        yield Wake(ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE))
        yield Wake(ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE))

    def _claim_changed(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim) -> bool:
        """A claim came or changed: is it one the pod waits for, or did it give devices back?"""
        if self._handle is None:
            return True
        claims = claims_of(pod, self._handle.snapshot)
        if isinstance(claims, str):
            return False
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return True
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return False
        return old is None or old.status != new.status

    def _pod_changed(self, pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
        """Claims were generated for a pod: is it this one, and has it all of them now?"""
        del old
        if pod.uid != new.uid:
            return False
        return self._handle is None or not isinstance(claims_of(new, self._handle.snapshot), str)
