"""Resource claims, device classes and resource slices.

CEL expressions are not compiled here; their evaluation reports invalid ones.

Source  kubernetes, pkg/apis/resource/validation/validation.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.devices import (
    Device,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
)
from moorage.api.names import check_dns1123_subdomain
from moorage.api.validation.affinity import node_selector
from moorage.api.validation.faults import (
    Faults,
    forbidden,
    invalid,
    label_name,
    member,
    named,
    object_meta,
    one_of,
    positive,
    quantity,
    required,
)

_MODES: Final = ("All", "ExactCount")
_REQUEST: Final = "must be the name of a request in the claim or the name of a request and a subrequest"
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def resource_claim_faults(claim: ResourceClaim) -> Faults:
    """Yield the faults of a claim for devices."""
    yield from object_meta(claim.metadata, True)
    yield from _claim_spec("spec", claim.spec)


def resource_claim_template_faults(template: ResourceClaimTemplate) -> Faults:
    """Yield the faults of a claim template; its claim is in ``spec.spec``."""
    yield from object_meta(template.metadata, True)
    yield from _claim_spec("spec.spec", template.spec.spec)


def _claim_spec(path: str, spec: ResourceClaimSpec) -> Faults:
    seen: set[str] = set()
    for i, request in enumerate(spec.devices.requests):
        at = f"{path}.devices.requests[{i}]"
        yield from member(f"{at}.name", request.name, seen)
        yield from _request(at, request)
    for i, constraint in enumerate(spec.devices.constraints):
        at = f"{path}.devices.constraints[{i}]"
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
            yield required(at, why)
        for name in constraint.requests:
            if name.partition("/")[0] not in seen:
                yield invalid(
                    f"{at}.requests",
                    name,
                    _REQUEST,
                )


def _request(path: str, request: DeviceRequest) -> Faults:
    if request.exactly is None and not request.first_available:
        yield required(path, "exactly one of `exactly` or `firstAvailable` is required")
    if request.exactly is not None and request.first_available:
        yield invalid(path, request, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
    if request.exactly is not None:
        yield from _asked(f"{path}.exactly", request.exactly)
    seen: set[str] = set()
    for i, choice in enumerate(request.first_available):
        yield from member(f"{path}.firstAvailable[{i}].name", choice.name, seen)
        yield from _asked(f"{path}.firstAvailable[{i}]", choice)


def _asked(path: str, asked: ExactDeviceRequest | DeviceSubRequest) -> Faults:
    if not asked.device_class_name:
        yield required(f"{path}.deviceClassName")
    else:
        yield from named(f"{path}.deviceClassName", asked.device_class_name, check_dns1123_subdomain)
    yield from one_of(f"{path}.allocationMode", asked.allocation_mode or None, _MODES)
    if asked.allocation_mode == "ExactCount":
        yield from positive(f"{path}.count", asked.count)
    yield from _selectors(f"{path}.selectors", asked.selectors)
    for name, amount in (asked.capacity.requests if asked.capacity else {}).items():
        yield from quantity(f"{path}.capacity.requests[{name}]", amount)


def _selectors(path: str, selectors: tuple[DeviceSelector, ...]) -> Faults:
    for i, selector in enumerate(selectors):
        if selector.cel is None:
            yield required(f"{path}[{i}].cel")
        elif not selector.cel.expression:
            yield required(f"{path}[{i}].cel.expression")


def device_class_faults(device_class: DeviceClass) -> Faults:
    """Yield the faults of a device class."""
    yield from object_meta(device_class.metadata, False)
    yield from _selectors("spec.selectors", device_class.spec.selectors)


def resource_slice_faults(resource_slice: ResourceSlice) -> Faults:
    """Yield the faults of a slice: of its driver, its node selection and its devices."""
    spec = resource_slice.spec
    yield from object_meta(resource_slice.metadata, False)
    for path, value in (("spec.driver", spec.driver), ("spec.pool.name", spec.pool.name)):
        if not value:
            yield required(path)
    if spec.pool.resource_slice_count <= 0:
        yield invalid("spec.pool.resourceSliceCount", spec.pool.resource_slice_count, "must be greater than zero")
    chosen = [
        spec.node_name is not None,
        spec.node_selector is not None,
        bool(spec.all_nodes),
        bool(spec.per_device_node_selection),
    ]
    if sum(chosen) != 1:
        yield required("spec", "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required")
    if spec.node_selector is not None:
        yield from node_selector("spec.nodeSelector", spec.node_selector)
    seen: set[str] = set()
    for i, device in enumerate(spec.devices):
        yield from member(f"spec.devices[{i}].name", device.name, seen)
        yield from _device(f"spec.devices[{i}]", device, bool(spec.per_device_node_selection))


def _device(path: str, device: Device, own_nodes: bool) -> Faults:
    for name, capacity in device.capacity.items():
        yield from quantity(f"{path}.capacity[{name}].value", capacity.value)
    if not own_nodes and (device.node_name is not None or device.node_selector is not None or device.all_nodes):
        yield forbidden(path, "nodes of a device may only be set with `perDeviceNodeSelection`")
    if device.node_selector is not None:
        yield from node_selector(f"{path}.nodeSelector", device.node_selector)
    for i, taint in enumerate(device.taints):
        yield from label_name(f"{path}.taints[{i}].key", taint.key)
        yield from one_of(f"{path}.taints[{i}].effect", taint.effect, _EFFECTS)
