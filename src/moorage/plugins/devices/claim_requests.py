"""The requests of claims, parsed once: device classes, selectors, tolerations, constraints, and their faults.

Most claims are generated from templates, so the parsed form is cached for each distinct set of specs.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, Allocate and validateDeviceRequest
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from moorage.api.cel.list_attributes import Lists
from moorage.api.core import Quantity
from moorage.api.devices import (
    CapacityRequirements,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from moorage.api.node_selectors import tolerates
from moorage.plugins.devices.consumable_capacity import AmountRules
from moorage.plugins.devices.meter import RUNTIME_ERROR, CostlyError, Meter
from moorage.plugins.devices.pools import COMPLETE, DeviceSelectorError, PoolRule, SliceDevice

#: The maximum number of devices of a claim (AllocationResultsMaxSize).
MAX_RESULTS = 32


_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
)


class AskError(Exception):
    """A claim or a class is invalid and the attempt ends. ``claim`` is the index of the claim that the text is about, and the
    message begins with that claim's name. None if the text is about no claim.
    """

    def __init__(self, text: str, claim: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.claim = claim

    def message(self, keys: Sequence[str]) -> str:
        """Return the full text, given the keys of the claims."""
        return self.text if self.claim is None else f"claim {keys[self.claim]}{self.text}"


class OverspentError(AskError):
    """The selectors of a claim cost more than an attempt may spend; the attempt ends without trying other nodes."""


#: Why a pod cannot use a claim that its template would have had to make: the claim's and the pod's key.
NOT_OWNER: Final = "ResourceClaim {} was not created for Pod {} (Pod is not owner)"


class DeviceRules(NamedTuple):
    """How a release chooses and refuses devices; the defaults are the rules of the newest release.

    ``pools``              which pools can be used
    ``not_owner``          the text about a claim that was made for another pod
    ``status_is_new``      either gate, DRAResourceClaimDeviceStatus or DRADeviceBindingConditions, alone selects the newest
                           of kube-scheduler's allocators
    ``names_subrequests``  the text about capacities names the alternative, rather than the request
    ``names_devices``      the text about a selector that fails names the device
    ``keeps_alternative``  an alternative for all devices selects them and looks for each of them itself; up to 1.35 the first
                           alternative of the request looks for all but the first device, and what it selects, if it wants
                           all, is what the second one selects
    ``compares_devices``   distinct values are those of each device, not of each request; and with the gate
                           DRAListTypeAttributes constraints compare lists of values
    ``all_distinct``       distinct values are those of any two devices: 1.34 compares addresses
    ``takes_shares_again``  a request may take several shares of one device
    ``undoes_refusals``    a device that is refused releases the counters that it needs
    ``shares_counters``    a device that is shared already needs no more counters
    ``charges_shares``     counters that the shares of earlier pods need are in use
    ``shares_in_group``    a pod of a group uses the devices that another one reserved for a claim of both
    ``keeps_to_devices``   and goes only where these devices can be used
    ``overheads``          devices may add overhead to what they take of the node, and claims that were allocated before count
    ``says_why_none_helps``  PostFilter gives a reason if it can free no claim
    ``configures_once``    an allocation has each configuration once, and without requests if it applies to all
    ``counts_by_driver``   counters are those of a driver's pool; up to 1.36 pools of one name share them
    ``near_counters``      a slice with counters matters to the nodes that it selects, except to the oldest allocator
    ``all_by_size``        a request for all devices wants those that are large enough, in use or not
    ``checks_amounts``     an amount of capacity that cannot be right ends the attempt, as do derived attributes while their
                           gate is closed
    ``adds_up_requests``   the request that exceeds what a claim may have is named
    ``bare_shares``        a share without amounts makes a device shared
    """

    pools: PoolRule = COMPLETE
    not_owner: str = NOT_OWNER
    status_is_new: bool = False
    names_subrequests: bool = True
    names_devices: bool = False
    keeps_alternative: bool = True
    compares_devices: bool = False
    all_distinct: bool = False
    takes_shares_again: bool = False
    undoes_refusals: bool = True
    shares_counters: bool = True
    charges_shares: bool = True
    shares_in_group: bool = True
    keeps_to_devices: bool = False
    overheads: bool = False
    says_why_none_helps: bool = True
    configures_once: bool = False
    counts_by_driver: bool = False
    near_counters: bool = False
    all_by_size: bool = False
    checks_amounts: bool = False
    adds_up_requests: bool = False
    bare_shares: bool = False


class DeviceGates(NamedTuple):
    """The feature gates that the allocator depends on, and the rules of the release."""

    consumable_capacity: bool = True
    binding_conditions: bool = True
    partitions: bool = True
    taints: bool = True
    prioritized_list: bool = True
    lists: Lists = Lists.UNKNOWN
    list_constraints: bool = False
    admin_access: bool = True
    newer: bool = False
    pool_rule: PoolRule = COMPLETE
    group_claims: bool = False
    compatibility: bool = False
    derived_attributes: bool = False
    fractional: bool = False
    rules: DeviceRules = DeviceRules()

    @property
    def amounts(self) -> AmountRules:
        """How amounts of capacity are computed."""
        return AmountRules(checked=self.rules.checks_amounts, fractional=self.fractional)

    @property
    def knows_shares(self) -> bool:
        """False where kube-scheduler would use its oldest allocator, which does not share devices.

        ``newer``: a gate is open that the oldest allocator does not support, and that is not among the others.

        Source  structured/allocator.go, NewAllocator; structured/internal/stable
        """
        return self.consumable_capacity or self.binding_conditions or self.newer


def _failed(at: int, error: DeviceSelectorError, offer: SliceDevice, options: DeviceGates) -> str:
    """Return which selector failed and why, in kube-scheduler's words; from 1.37 on with the device, and a hint."""
    text = str(error)
    if not options.rules.names_devices or not text.startswith(RUNTIME_ERROR):
        return f"selector #{at}: {text}"
    return f"selector #{at} on device {'/'.join(offer.id)}: {text}{_HINT if 'no such key:' in text else ''}"


class Ask(NamedTuple):
    """One exact request, or one alternative of a request: ``parent`` is then the request's name and ``place`` its index from 0.

    ``fault``: why it is invalid.
    """

    name: str
    parent: str
    place: int
    device_class: DeviceClass | None
    takes_all: bool
    number: int
    admin: bool
    class_selectors: tuple[str, ...]
    selectors: tuple[str, ...]
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Quantity] | None
    fault: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def takes(self, offer: SliceDevice, claim: int, options: DeviceGates, meter: Meter) -> bool:
        """Return whether class and request select a device.

        Raises  AskError if a selector fails; OverspentError if it costs more than the attempt has left
        """
        if not options.binding_conditions and offer.device.binding_conditions:
            return False
        lists, shares = options.lists, options.knows_shares
        class_name = f"class {self.device_class.name}: " if self.device_class is not None else "class : "
        for of_class, expressions in ((class_name, self.class_selectors), ("", self.selectors)):
            for at, expression in enumerate(expressions):
                try:
                    if not offer.matches(expression, lists, shares, meter):
                        return False
                except DeviceSelectorError as error:
                    why = _failed(at, error, offer, options)
                    raise (AskError(f"{of_class}{why}") if of_class else AskError(f": {why}", claim)) from None
                except CostlyError as error:
                    raise OverspentError(f", request {self.full_name}: {of_class}selector #{at}: {error}", claim) from None
        return True

    def tolerates(self, offer: SliceDevice) -> bool:
        """Return whether the request tolerates every taint that prevents allocation."""
        return all(
            any(tolerates(toleration, taint) for toleration in self.tolerations)
            for taint in offer.taints
            if taint.effect in {"NoSchedule", "NoExecute"}
        )


class ClaimRequest(NamedTuple):
    """A request; ``asks`` holds the exact request, or its alternatives in order of preference."""

    name: str
    asks: tuple[Ask, ...]
    has_alternatives: bool


class ClaimAsk(NamedTuple):
    """All requests and constraints of one claim. ``constraint_fault``: why a constraint is invalid."""

    requests: tuple[ClaimRequest, ...]
    constraints: tuple[DeviceConstraint, ...]
    constraint_fault: str = ""


def parse_claim(spec: ResourceClaimSpec, classes: Mapping[str, DeviceClass], options: DeviceGates) -> ClaimAsk:
    """Parse a claim's requests. Faults stay with the request they concern; the search reports them when it gets there."""
    requests = tuple([_request(request, classes, options) for request in spec.devices.requests])
    fault = next((f for at, c in enumerate(spec.devices.constraints) if (f := _constraint_fault(at, c, options))), "")
    return ClaimAsk(requests, spec.devices.constraints, fault)


def _constraint_fault(at: int, constraint: DeviceConstraint, options: DeviceGates) -> str:
    known = constraint.match_attribute is not None or (constraint.distinct_attribute is not None and options.knows_shares)
    return "" if known else f", constraint #{at}: empty constraint (unsupported constraint type?)"


def _request(request: DeviceRequest, classes: Mapping[str, DeviceClass], options: DeviceGates) -> ClaimRequest:
    if request.first_available:
        fault = _capacity_fault(request.name, request.first_available, options)
        if not options.prioritized_list:
            fault = f", request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
        places = enumerate(request.first_available)
        asks = tuple([_ask(sub.name, request.name, place, sub, classes, options, fault) for place, sub in places])
        return ClaimRequest(request.name, asks, has_alternatives=True)
    exact = request.exactly or ExactDeviceRequest()
    fault = _capacity_fault(request.name, (exact,), options)
    return ClaimRequest(request.name, (_ask(request.name, "", 0, exact, classes, options, fault),), has_alternatives=False)


def _capacity_fault(name: str, asked: Sequence[ExactDeviceRequest | DeviceSubRequest], options: DeviceGates) -> str:
    """Return the fault of a request that has capacities while a gate disables them; otherwise an empty text."""
    if not options.knows_shares or options.consumable_capacity:
        return ""
    one = next((one for one in asked if isinstance(one.capacity, CapacityRequirements)), None)
    if one is None:
        return ""
    named = (
        f"subrequest {one.name}" if isinstance(one, DeviceSubRequest) and options.rules.names_subrequests else f"request {name}"
    )
    return f", {named}: has capacity requests, but the DRAConsumableCapacity feature is disabled"


def _ask(
    name: str,
    parent: str,
    place: int,
    asked: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    options: DeviceGates,
    fault: str,
) -> Ask:
    device_class = classes.get(asked.device_class_name)
    return Ask(
        name,
        parent,
        place,
        device_class,
        asked.allocation_mode == "All",
        asked.count if asked.allocation_mode == "ExactCount" else 0,
        isinstance(asked, ExactDeviceRequest) and bool(asked.admin_access),
        _expressions(device_class.spec.selectors) if device_class is not None else (),
        _expressions(asked.selectors),
        asked.tolerations,
        None if asked.capacity is None else asked.capacity.requests,
        fault or _fault(name, asked, device_class, options),
    )


def _fault(
    name: str, asked: ExactDeviceRequest | DeviceSubRequest, device_class: DeviceClass | None, options: DeviceGates
) -> str:
    """Return why a request is invalid, as text that continues the claim's name; empty if it is valid."""
    if asked.derived_attributes and options.rules.checks_amounts and not options.derived_attributes:
        return f", request {name}: cannot handle request with derived attributes, the feature is disabled"
    for at, selector in enumerate(asked.selectors):
        if selector.cel is None:
            return f", request {name}, selector #{at}: CEL expression empty (unsupported selector type?)"
    if not options.admin_access and isinstance(asked, ExactDeviceRequest) and asked.admin_access is not None:
        return f", request {name}: admin access is requested, but the feature is disabled"
    if not asked.device_class_name:
        return f", request {name}: missing device class name (unsupported request type?)"
    if device_class is None:
        missing = f'deviceclass.resource.k8s.io "{asked.device_class_name}" not found'
        return f", request {name}: could not retrieve device class {asked.device_class_name}: {missing}"
    if asked.allocation_mode not in {"All", "ExactCount"}:
        return f", request {name}: unsupported count mode {asked.allocation_mode}"
    if options.derived_attributes and asked.derived_attributes:
        return f", request {name}: derived attributes (gate DRADerivedAttributes) are not computed here"
    return ""


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple([selector.cel.expression for selector in selectors if selector.cel is not None])
