"""Devices and claims of dynamic resource allocation, in the form of ``resource.k8s.io/v1``.

Names of attributes and capacities are as written: ``driver.example/name``, or a bare name, which belongs to the slice's driver.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from moorage.api.core import NodeSelector, Object, ObjectMeta, Quantity, Value
from moorage.api.meta import Int64


class DeviceAttribute(Value):
    """One of the fields is set. The plural ones are lists of values."""

    int_value: Int64 | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string_value: str | None = field(name="string", default=None)
    version_value: str | None = field(name="version", default=None)
    int_values: tuple[Int64, ...] | None = field(name="ints", default=None)
    bool_values: tuple[bool, ...] | None = field(name="bools", default=None)
    string_values: tuple[str, ...] | None = field(name="strings", default=None)
    version_values: tuple[str, ...] | None = field(name="versions", default=None)


class CapacityRequestPolicyRange(Value):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Value):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Value):
    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Value):
    value: Quantity = 0


class CounterSet(Value):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Value):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Value):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Value):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    #: By resource: its mapping in 1.36; ``mapping`` and ``overhead`` in 1.37.
    node_allocatable_resource_mappings: dict[str, dict[str, Quantity]] = {}
    node_allocatable_resources: dict[str, dict[str, dict[str, Quantity]]] = {}


class ResourcePool(Value):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Value):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object):
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Value):
    """Selects devices by the fields that are set; all of them if none is."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def may_select_in(self, held: ResourceSlice) -> bool:
        """Return whether driver and pool are those of a slice; ``device`` says which of its devices, None: all."""
        return self.driver in {None, held.spec.driver} and self.pool in {None, held.spec.pool.name}


class DeviceTaintRuleSpec(Value):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Object):
    """Adds a taint to devices of any slice."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


# -- resource claims ------------------------------------------------------------------------------------------------------


class CELDeviceSelector(Value):
    expression: str = ""


class DeviceSelector(Value):
    cel: CELDeviceSelector | None = None


class DeviceToleration(Value):
    key: str = ""
    #: Empty means ``Equal``.
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Value):
    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(Value):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    #: Only used with ``ExactCount``.
    count: Int64 = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[Any, ...] = ()


class DeviceSubRequest(Value):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: Int64 = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[Any, ...] = ()


class DeviceRequest(Value):
    """Either ``exactly`` is set, or ``first_available`` lists alternatives."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Value):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceConfig(Value):
    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class DeviceClaim(Value):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()


class ResourceClaimSpec(Value):
    devices: DeviceClaim = DeviceClaim()


class DeviceAllocation(Value):
    """One device allocated to one request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfig(Value):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class DeviceAllocationResult(Value):
    results: tuple[DeviceAllocation, ...] = ()
    config: tuple[DeviceAllocationConfig, ...] = ()


class AllocationResult(Value):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ClaimConsumer(Value):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(Value):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class AllocatedDeviceStatus(Value):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(name="shareID", default=None)
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(Value):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassSpec(Value):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    #: Pods may request the class under this name, as an extended resource.
    extended_resource_name: str | None = None


class DeviceClass(Object):
    spec: DeviceClassSpec = DeviceClassSpec()
