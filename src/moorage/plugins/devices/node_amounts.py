"""What a pod's devices take of its node's CPU, memory, local storage and huge pages (gate DRANodeAllocatableResources).

A device says how much of which resource comes with it: for the device, or for each unit of a capacity that a share consumes. In
1.37 it may also add an overhead for each pod, and for each container that refers to the claim. The pod takes this together with
its requests, and its status says how much, from the moment it is assumed. Devices with more than overhead are for one pod.

Source  kube-scheduler 1.36 and 1.37, plugins/dynamicresources/nodeallocatabledynamicresources.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from moorage.api.core import NodeAllocatableClaimStatus
from moorage.api.devices import Device, ResourceClaim
from moorage.api.meta import Quantity
from moorage.api.names import is_hugepage_resource
from moorage.api.pod_requests import RequestOptions
from moorage.api.quantity import NANO_PER_UNIT, parse
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.devices.claim_requests import AskError
from moorage.plugins.devices.consumable_capacity import written
from moorage.plugins.devices.group_claims import is_reserved_for
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.devices.pod_resource_claims import claim_name
from moorage.state.view import NodeInfo, NodeView, PodInfo

# kube-scheduler's own texts.
SHARED: Final = "node allocatable resource claim {} shared by multiple pods"
USED: Final = "node allocatable resource claim {} is already used by another pod"
MAPPED: Final = "node allocatable resource claim {} has a mapped device and cannot be shared across pods"
NO_CONTAINER: Final = "claim {}: node-allocatable resource claim not referenced by any container within the pod"
UNCOVERED: Final = (
    "pod level request for {} is insufficient to cover the aggregated container and node-allocatable DRA requests"
)
INSUFFICIENT: Final = "Insufficient {}"

_CHECKED: Final = ("cpu", "memory", "ephemeral-storage")
_FIT: Final = RequestOptions(use_status=False)
_CONTAINERS_ALONE: Final = RequestOptions(use_status=False, pod_level=False)
#: A device, and how much of its capacities a share of it consumes.
_Use = tuple[Device, Mapping[str, Quantity]]


class NodeAmounts:
    """What the claims of a pod take on each node, and whether the node has it. ``overheads``: by the rules of 1.37."""

    def __init__(self, wanted: PodDevices, *, overheads: bool) -> None:
        self._wanted, self._overheads = wanted, overheads

    def refusals(self, rejects: Iterable[Reject], nodes: NodeView, late: str, budget: int) -> Iterator[Reject]:
        """Yield ``rejects``, and those of nodes for what the devices take. Only the reason ``late`` comes after these."""
        others = list(rejects)
        away = list(self._wanted.unavailable(nodes))
        judged = sum((reject.rows for reject in others if reject.reason != late), nodes.false())
        found: dict[Hold | str, list[int]] = {}
        for at, row in enumerate(nodes.row_numbers.tolist()):
            refusal = self._refusal(nodes.one(row), {index for index, rows in away if rows[at]}, None if judged[at] else budget)
            if refusal is not None:
                found.setdefault(refusal, []).append(at)
        ours = np.isin(np.arange(len(nodes)), [at for rows in found.values() for at in rows])
        yield from (replace(reject, rows=reject.rows & ~ours) for reject in others)
        for refusal, rows in found.items():
            hold = Hold((refusal,)) if isinstance(refusal, str) else refusal
            mask = np.isin(np.arange(len(nodes)), rows)
            yield from (Reject(mask, reason, hold.unresolvable, refusal is not hold) for reason in hold.reasons)

    def _refusal(self, node: NodeInfo, away: set[int], budget: int | None) -> Hold | str | None:
        """Return why a node is refused, as text if it is an error. ``away``: indexes of claims that cannot be used there."""
        try:
            for index, claim in enumerate(self._wanted.claims):
                text = self._used_elsewhere(node, claim) if claim.status.allocation is not None and index not in away else ""
                if text:
                    return Hold((text.format(claim.metadata.name),), unresolvable=True)
            return None if budget is None else self._short(node, budget)
        except AskError as error:
            return error.text

    def _used_elsewhere(self, node: NodeInfo, claim: ResourceClaim) -> str:
        """Return why the pod cannot have an allocated claim: it has devices for one pod, and another pod uses it."""
        pod, users = self._wanted.pod, set()
        if self._overheads:
            mapped = any(
                "mapping" in one for device, _ in self._known(node, claim) for one in device.node_allocatable_resources.values()
            )
            is_ours = is_reserved_for(claim, pod, for_group=self._wanted.options.group_claims)
            return MAPPED if mapped and claim.status.reserved_for and not is_ours else ""
        for other in node.pods:
            for status in other.status.node_allocatable_resource_claim_statuses:
                if (other.namespace, status.resource_claim_name) == (claim.metadata.namespace, claim.metadata.name):
                    users.add(other.uid)
        return "" if not users or users == {pod.uid} else USED if len(users) == 1 else SHARED

    def _short(self, node: NodeInfo, budget: int) -> Hold | None:
        """Return why the node cannot hold the pod with what its devices take, which the pod's state then says."""
        wanted = self._wanted
        statuses = sorted(self._statuses(node, budget), key=lambda one: one.resource_claim_name)
        if not statuses:
            return None
        unused = next((one.resource_claim_name for one in statuses if not one.containers and not self._overheads), None)
        if unused is not None:
            return Hold((NO_CONTAINER.format(unused),), unresolvable=True)
        wanted.takes[node.name] = tuple(statuses)
        pod = wanted.assumed_on(node.name)
        needs, alone = pod.needs_under(_FIT).requests, pod.needs_under(_CONTAINERS_ALONE).requests
        uncovered = next((name for name, count in needs.items() if alone.get(name, 0) > count), None)
        if uncovered is not None:
            return Hold((UNCOVERED.format(uncovered),), unresolvable=True)
        checked = [(name, count) for name, count in needs.items() if name in _CHECKED or is_hugepage_resource(name)]
        short = [(name, count) for name, count in checked if 0 < count > node.allocatable(name) - node.requested(name)]
        beyond = any(count > node.allocatable(name) for name, count in short)
        return Hold(tuple([INSUFFICIENT.format(name) for name, _ in short]), unresolvable=beyond) if short else None

    def _statuses(self, node: NodeInfo, budget: int) -> Iterator[NodeAllocatableClaimStatus]:
        """Yield what each claim takes on a node. Up to 1.36 claims do not count that were allocated before."""
        wanted = self._wanted
        answer, _ = wanted.answer(wanted.kind_on(node.row), node.node, budget)
        found = answer.found.devices if answer.found is not None else ()
        fresh = dict(zip([one.metadata.uid for one in wanted.to_allocate], found, strict=False))
        for claim in wanted.claims if fresh or self._overheads else ():
            uses: Iterable[_Use] = ()
            if (choices := fresh.get(claim.metadata.uid)) is not None:
                uses = [(one.offer.device, {key: a.text for key, a in (one.consumed or {}).items()}) for one in choices]
            elif self._overheads or claim.metadata.uid in wanted.shared:
                uses = self._known(node, claim)
            if (status := status_of(claim, uses, wanted.pod, overheads=self._overheads)) is not None:
                yield status

    def _known(self, node: NodeInfo, claim: ResourceClaim) -> Iterator[_Use]:
        """Yield the devices that a claim has, or that another pod of the group has reserved for it, if they are the node's."""
        allocation = claim.status.allocation or self._wanted.shared.get(claim.metadata.uid)
        results = {} if allocation is None else {(one.driver, one.pool, one.device): one for one in allocation.devices.results}
        for held in self._wanted.device_state.catalog.slices_near(node.node) if results else ():
            yield from [(one.device, results[one.id].consumed_capacity) for one in held.offers if one.id in results]


def status_of(
    claim: ResourceClaim, uses: Iterable[_Use], pod: PodInfo, *, overheads: bool
) -> NodeAllocatableClaimStatus | None:
    """Return what a claim's devices take of the node, None if nothing. ``overheads``: as 1.37 says and writes it.

    Raises  AskError if an amount depends on a capacity of which the device is no share
    """
    totals: dict[str, dict[str, int]] = {}
    field = "NodeAllocatableResources" if overheads else "NodeAllocatableResourceMappings"
    for device, consumed in uses:
        alone = {name: {"mapping": mapping} for name, mapping in device.node_allocatable_resource_mappings.items()}
        for name, resource in (device.node_allocatable_resources if overheads else alone).items():
            held = totals.setdefault(name, {})
            where = f"claim {claim.key}, device {device.name}: {{}} is set in {field} for resource {name}"
            amounts = {"quantity": _mapped(resource.get("mapping", {}), consumed, where), **resource.get("overhead", {})}
            held.update({part: held.get(part, 0) + parse(amount) for part, amount in amounts.items() if amount is not None})
    listed = {of: {part: written(nano) for part, nano in held.items()} for of, held in sorted(totals.items()) if held}
    if not listed:
        return None
    spec, name = pod.spec, claim.metadata.name
    entries = {use.name for use in spec.resource_claims if claim_name(pod, use) == name}
    users = [
        one.name for one in (*spec.init_containers, *spec.containers) for use in one.resources.claims if use.name in entries
    ]
    mapped = {of: held.pop("quantity") for of, held in listed.items() if "quantity" in held}
    return NodeAllocatableClaimStatus(
        resource_claim_name=name, containers=tuple(users), resources={} if overheads else mapped,
        mapping=tuple([{"name": of, "quantity": amount} for of, amount in mapped.items()]) if overheads else (),
        overhead=tuple([{"name": of, **held} for of, held in listed.items() if held]),
    )  # fmt: skip


def _mapped(mapping: Mapping[str, Quantity], consumed: Mapping[str, Quantity], where: str) -> Quantity | None:
    """Return the amount that comes with a device, None if there is none."""
    key = str(mapping.get("capacityKey", ""))
    if not key:
        return mapping.get("deviceMultiplier", mapping.get("allocationMultiplier"))
    if not consumed:
        raise AskError(where.format(f"ConsumedCapacity is nil, but Capacity key '{key}'"))
    factor = mapping.get("capacityMultiplier", mapping.get("allocationMultiplier", "1"))
    return written(parse(consumed[key]) * parse(factor) // NANO_PER_UNIT) if key in consumed else None
