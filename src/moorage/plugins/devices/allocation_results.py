"""Allocation results: the devices found, in the form of a claim's status.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, Allocate and createNodeSelector
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from moorage.api.devices import (
    AllocationResult,
    DeviceAllocation,
    DeviceAllocationConfig,
    DeviceAllocationResult,
    ResourceClaim,
)
from moorage.plugins.devices.allocator import DeviceChoice, FoundDevices
from moorage.plugins.devices.claim_requests import Ask, DeviceGates


def allocations(
    found: FoundDevices, claims: Sequence[ResourceClaim], node: str, options: DeviceGates
) -> list[AllocationResult]:
    """Return the allocation of each claim on a node.

    Raises  ValueError for a slice whose node selector has several terms, which no API server accepts
    """
    made = []
    for claim, devices, met in zip(claims, found.devices, found.met, strict=True):
        results = tuple([_device(claim, at, choice, options.binding_conditions) for at, choice in enumerate(devices)])
        configs = tuple(_configs_once(claim, met) if options.rules.configures_once else _configs(claim, met))
        outcome = DeviceAllocationResult(results=results, config=configs)
        made.append(AllocationResult(devices=outcome, node_selector=_node_selector(devices, node, options)))
    return made


def _device(claim: ResourceClaim, at: int, choice: DeviceChoice, binding_conditions: bool) -> DeviceAllocation:
    driver, pool, name = choice.offer.id
    device = choice.offer.device
    return DeviceAllocation(
        request=choice.ask.full_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if choice.ask.admin else None,
        tolerations=choice.ask.tolerations,
        binding_conditions=device.binding_conditions if binding_conditions else (),
        binding_failure_conditions=device.binding_failure_conditions if binding_conditions else (),
        share_id=None if choice.consumed is None else _share_id(claim, at, choice),
        consumed_capacity={name: amount.text for name, amount in (choice.consumed or {}).items()},
    )


def _share_id(claim: ResourceClaim, at: int, choice: DeviceChoice) -> str:
    """Return a unique ID for a share. kube-scheduler draws a random one; here equal shares get equal IDs."""
    seed = "/".join([claim.metadata.uid or claim.key, str(at), *choice.offer.id])
    digits = blake2b(seed.encode(), digest_size=16).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"  # the form of a random UUID


def _configs(claim: ResourceClaim, met: Sequence[Ask]) -> Iterable[DeviceAllocationConfig]:
    """Return the configurations of the devices: first from the device classes, each class once, then from the claim."""
    requests_of: dict[str, list[str]] = {}
    for ask in met:
        if ask.device_class is not None:
            requests_of.setdefault(ask.device_class.name, []).append(ask.full_name)
    classes = {ask.device_class.name: ask.device_class for ask in met if ask.device_class is not None}
    for name, requests in requests_of.items():
        for config in classes[name].spec.config:
            yield DeviceAllocationConfig(source="FromClass", requests=tuple(requests), opaque=config.opaque)
    for config in claim.spec.devices.config:
        times = 1
        if config.requests:  # repeated for each request that it names
            times = sum((ask.parent or ask.name) in config.requests or ask.full_name in config.requests for ask in met)
        yield from [DeviceAllocationConfig(source="FromClaim", requests=config.requests, opaque=config.opaque)] * times


def _configs_once(claim: ResourceClaim, met: Sequence[Ask]) -> Iterable[DeviceAllocationConfig]:
    """Return each of the configurations once; one that applies to all requests of the claim names none."""
    last: DeviceAllocationConfig | None = None
    for config in _configs(claim, met):
        if last is not None and config.source == "FromClaim" and config is last:
            continue
        last = config
        to_all = all((ask.parent or ask.name) in config.requests or ask.full_name in config.requests for ask in met)
        yield replace(config, requests=()) if to_all else config


def _node_selector(devices: Sequence[DeviceChoice], node: str, options: DeviceGates) -> NodeSelector | None:
    """Return the nodes on which the devices can be used; None for all nodes."""
    fields: list[NodeSelectorRequirement] = []
    labels: list[NodeSelectorRequirement] = []
    for choice in devices:
        device, spec = choice.offer.device, choice.offer.source.spec
        chooses = device if spec.per_device_node_selection else spec
        if chooses.node_name is not None or (device.binds_to_node and options.knows_shares):
            name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))
        terms = chooses.node_selector.node_selector_terms if chooses.node_selector is not None else ()
        if len(terms) > 1:
            raise ValueError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(labels, term.match_expressions)
    if not fields and not labels:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(labels), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add_new(to: list[NodeSelectorRequirement], found: Iterable[NodeSelectorRequirement]) -> None:
    known = {(r.key, r.operator, frozenset(r.values)) for r in to}
    for requirement in found:
        key = (requirement.key, requirement.operator, frozenset(requirement.values))
        if key not in known:
            known.add(key)
            to.append(requirement)
