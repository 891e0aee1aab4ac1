"""The devices of a pod: its allocated claims, and the devices that each node can provide for the other claims.

Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, Filter; claims.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Node, NodeAllocatableClaimStatus, Pod
from moorage.api.devices import AllocationResult, ClaimConsumer, DeviceClaim, ResourceClaim, ResourceClaimSpec
from moorage.api.meta import Object
from moorage.api.node_selectors import NodeSelectorMatcher
from moorage.plugins.devices.allocator import FoundDevices
from moorage.plugins.devices.claim_requests import DeviceGates
from moorage.plugins.devices.claim_shapes import AnswerColumn, DeviceState, Shape, ShapeAnswer
from moorage.plugins.devices.extended_resource_claims import ExtendedRequests
from moorage.plugins.devices.meter import Meter
from moorage.plugins.devices.resource_backing import ResourceBacking, unlisted
from moorage.state.node_matching import rows_matching
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, Snapshot

#: The maximum number of alternatives of a request (FirstAvailableDeviceRequestMaxSize); also the score of the first one.
MAX_ALTERNATIVES: Final = 8
_ONE_ROW: Final[BoolArray] = np.ones(1, dtype=bool)


def taking(takes: tuple[NodeAllocatableClaimStatus, ...], pod: Pod) -> Pod:
    """Return the pod with what its devices take of the node in its status."""
    return replace(pod, status=replace(pod.status, node_allocatable_resource_claim_statuses=takes))


class ExtendedResourceNodes(NamedTuple):
    """Nodes where devices back the same extended resources; ``rows`` is a mask over the view.

    ``shape`` is the shape of the claims to allocate there; None if there are none.
    """

    rows: BoolArray
    extended: ExtendedRequests | None
    shape: Shape | None


@dataclass(slots=True)
class WrittenClaims:
    """The claims that PreBind writes: UIDs of existing claims, and the claim that it creates."""

    claims: set[str] = field(default_factory=set)
    made: ResourceClaim | None = None

    def note_made(self, claim: Object) -> None:
        """Note the claim that PreBind has created."""
        assert isinstance(claim, ResourceClaim)
        self.made = claim


@dataclass(frozen=True, slots=True, eq=False)
class PodDevices:
    """``claims``: the pod's claims in the order of its spec, then the one for extended resources if ``has_special``.

    ``reach``: the nodes where the devices of allocated claims can be used, by the claim's index. ``unusable``: indexes of
    allocated claims whose devices cannot become ready. ``scalars``: resource → amount, for resources that devices may back.
    ``shared``: UID of a claim → the devices that another pod of the group has reserved for it, still to be written.
    ``users``: UID of a claim → the pod's group, if the claim is the group's. ``takes``: node → what the devices take of it.
    """

    pod: PodInfo
    snapshot: Snapshot
    device_state: DeviceState
    options: DeviceGates
    claims: tuple[ResourceClaim, ...]
    has_special: bool = False
    reach: Mapping[int, NodeSelectorMatcher] = field(default_factory=dict)
    unusable: frozenset[int] = frozenset()
    scalars: Mapping[str, int] = field(default_factory=dict)
    backing: ResourceBacking = field(default_factory=ResourceBacking)
    shared: Mapping[str, AllocationResult] = field(default_factory=dict)
    users: Mapping[str, ClaimConsumer] = field(default_factory=dict)
    written: WrittenClaims = field(default_factory=WrittenClaims)
    meter: Meter = field(default_factory=Meter)
    takes: dict[str, tuple[NodeAllocatableClaimStatus, ...]] = field(default_factory=dict)

    def assumed_on(self, node: str) -> PodInfo:
        """Return the pod as it counts on a node."""
        takes = self.takes.get(node, ())
        return PodInfo(taking(takes, self.pod.pod)) if takes else self.pod

    @property
    def special(self) -> ResourceClaim | None:
        return self.claims[-1] if self.has_special else None

    @property
    def to_allocate(self) -> tuple[ResourceClaim, ...]:
        """The claims that are to be allocated, in order."""
        shared = self.shared
        return tuple([claim for claim in self.claims if claim.status.allocation is None and claim.metadata.uid not in shared])

    @property
    def only_special(self) -> bool:
        return self.has_special and len(self.claims) == 1

    # -- allocated claims -------------------------------------------------------------------------------------------------

    def unavailable(self, nodes: NodeView) -> Iterator[tuple[int, BoolArray]]:
        """Yield the index of each allocated claim that cannot be used on some rows, with those rows."""
        for index, claim in enumerate(self.claims):
            if claim.status.allocation is None and index not in self.reach:
                continue
            rows = nodes.false() if index not in self.unusable else ~nodes.false()
            matcher = self.reach.get(index)
            if matcher is not None:
                rows |= ~rows_matching(matcher, nodes)
            if rows.any():
                yield index, rows

    # -- claims to be allocated -------------------------------------------------------------------------------------------

    def unfit(self, nodes: NodeView) -> BoolArray:
        """Return a mask of rows that lack a requested resource: the node does not list it, and no device class backs it."""
        rows = nodes.false()
        backed = self._backed()
        for resource, amount in self.scalars.items():
            if amount and resource not in backed and self.backing.can_be_backed(resource):
                rows |= unlisted(resource, nodes)
        return rows

    def _backed(self) -> dict[str, str]:
        """Return the device class of each resource that devices back, sorted by resource."""
        return {
            resource: known.name
            for resource, amount in sorted(self.scalars.items())
            if amount and (known := self.backing.device_class(resource, self.snapshot)) is not None
        }

    def kinds(self, nodes: NodeView) -> Iterator[ExtendedResourceNodes]:
        """Group the rows by the requests of the pod's claims there, which depend on the extended resources of the node."""
        everywhere = ~nodes.false()
        if not self.has_special:
            yield ExtendedResourceNodes(everywhere, None, self.shape)
            return
        claims = self.to_allocate
        backed = self._backed()
        for rows, classes in self._by_classes(backed, nodes, everywhere):
            if self.only_special and not classes:
                yield ExtendedResourceNodes(rows, None, None)
                continue
            extended = self.backing.requests(self.pod.pod, classes, backed)
            specs = [claim.spec for claim in claims[:-1]]
            specs.append(ResourceClaimSpec(devices=DeviceClaim(requests=extended.requests)))
            yield ExtendedResourceNodes(rows, extended, self._shape(specs))

    def kind_on(self, row: int) -> ExtendedResourceNodes:
        """Return what the pod's claims request on one row of the table."""
        if not self.has_special:
            return ExtendedResourceNodes(_ONE_ROW, None, self.shape)
        return next(self.kinds(NodeView(self.snapshot, np.array([row], dtype=np.intp))))

    @property
    def shape(self) -> Shape | None:
        """The shape of the claims to allocate, the same on all nodes if there are no extended resources; None if no claims."""
        claims = self.to_allocate
        return self._shape([claim.spec for claim in claims]) if claims else None

    def _by_classes(
        self, backed: Mapping[str, str], nodes: NodeView, everywhere: BoolArray
    ) -> Iterator[tuple[BoolArray, Mapping[str, str]]]:
        """Yield groups of rows with the resources that devices have to provide there, and the device class of each."""
        found: list[tuple[BoolArray, dict[str, str]]] = [(everywhere, {})]
        for resource, known in backed.items():
            lacking = self.backing.needs_devices(resource, nodes)
            parted = []
            for rows, classes in found:
                parted += [(rows & lacking, {**classes, resource: known}), (rows & ~lacking, classes)]
            found = [(rows, classes) for rows, classes in parted if rows.any()]
        yield from found

    def _shape(self, specs: list[ResourceClaimSpec]) -> Shape:
        return self.device_state.shapes.of(specs, self.snapshot, self.options)

    def known(self, shape: Shape) -> AnswerColumn | None:
        """Return the answers to a shape that need not be computed again (see ``Shape.known``)."""
        return shape.known(self.snapshot.table, self.device_state.catalog, self.device_state.ledger)

    def answer(self, kind: ExtendedResourceNodes, node: Node, budget: int) -> tuple[ShapeAnswer, int]:
        """Return a node's answer for the claims, and how many devices were examined for it."""
        if kind.shape is None:
            return ShapeAnswer(FoundDevices((), ())), 0
        return self.answer_to(kind.shape, node, budget)

    def answer_to(self, shape: Shape, node: Node, budget: int) -> tuple[ShapeAnswer, int]:
        """Return a node's answer to a shape, and how many devices were examined for that."""
        return shape.answer(node, self.device_state.catalog, self.device_state.ledger, budget, self.meter)

    # -- Score --------------------------------------------------------------------------------------------------------------

    def scores(self, nodes: NodeView, budget: int) -> IntArray:
        """Score rows by the preference of the alternatives that satisfy the requests; shape (rows,)."""
        scores = nodes.zeros()
        if not self.to_allocate or not any(request.first_available for c in self.claims for request in c.spec.devices.requests):
            return scores
        allocated = sum(_rank_of_allocated(claim, self.shared.get(claim.metadata.uid)) for claim in self.claims)
        numbers = nodes.row_numbers
        for kind in self.kinds(nodes):
            for at in np.flatnonzero(kind.rows) if kind.shape is not None else ():
                answer, _ = self.answer(kind, nodes.table.nodes[int(numbers[at])], budget)
                scores[at] = allocated + (_rank(answer.found) if answer.found is not None else 0)
        return scores


def _rank(found: FoundDevices) -> int:
    """Return the sum of the ranks of the alternatives used; exact requests have rank 0."""
    total = 0
    for devices, met in zip(found.devices, found.met, strict=True):
        used = {choice.ask.full_name for choice in devices}
        total += sum(MAX_ALTERNATIVES - ask.place for ask in met if ask.parent and ask.full_name in used)
    return total


def _rank_of_allocated(claim: ResourceClaim, shared: AllocationResult | None) -> int:
    allocation = claim.status.allocation or shared
    if allocation is None:
        return 0
    used = {result.request for result in allocation.devices.results}
    return sum(
        MAX_ALTERNATIVES - place
        for request in claim.spec.devices.requests
        if request.exactly is None
        for place, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in used
    )
