"""DynamicResources: reject nodes that cannot provide the devices a pod claims, and allocate the devices on the chosen node.

Reads     spec.resourceClaims and the claim names in the pod's status; requests of extended resources; claims, device classes
          and resource slices; the devices already allocated
Rejects   the pod, while a claim or a class is missing; nodes without the devices; nodes that an allocated claim does not
          select. Preemption never helps
Scores    nodes higher where a request with alternatives gets an earlier one
Wakes on  nodes, claims, classes and slices added or changed; allocated claims deleted; claims generated for the pod
Source    kube-scheduler 1.36, plugins/dynamicresources

kube-scheduler stops searching for devices on a node after a time limit. Moorage stops after a number of devices instead, so
that the result is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self

import numpy as np
from msgspec import structs

from moorage.api.core import Node
from moorage.api.devices import AllocationResult, DeviceClass, ResourceClaim
from moorage.api.durations import format_duration
from moorage.api.feature_gates import FeatureGates
from moorage.api.node_selectors import NodeSelectorMatcher, compile_node_selector
from moorage.api.pod_requests import RequestOptions
from moorage.errors import AttemptError, Fault
from moorage.framework import points
from moorage.framework.args import Duration, PluginArgs
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.effects import Effect, Write
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Code, Hold, Reject, Skip
from moorage.plugins.devices.binding import Binder, BindingFailedError, deallocated, deletion_of, is_late, is_ready
from moorage.plugins.devices.claim_requests import DeviceGates, DeviceRules
from moorage.plugins.devices.claim_shapes import DeviceState, Shape
from moorage.plugins.devices.device_reasons import why_no_devices
from moorage.plugins.devices.extended_resource_claims import SPECIAL_NAME, earlier_claim, special_claim
from moorage.plugins.devices.group_claims import is_reserved_for, release_from_group, users_of
from moorage.plugins.devices.meter import Meter
from moorage.plugins.devices.node_amounts import NodeAmounts
from moorage.plugins.devices.pod_devices import ExtendedResourceNodes, PodDevices
from moorage.plugins.devices.pod_resource_claims import claims_of, class_faults
from moorage.plugins.devices.resource_backing import ResourceBacking
from moorage.plugins.devices.selector_lists import lists_in_selectors
from moorage.plugins.shared.default_normalize import default_normalize
from moorage.plugins.shared.evictions import can_be_evicted, evict
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, Snapshot

# Arguments of DynamicResources: how long it may search for devices and wait for them to be ready.
#
# Source  kube-scheduler 1.36.2, apis/config/v1/defaults.go and apis/config/validation/validation_pluginargs.go


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Timeouts in seconds. ``filter_timeout`` is per node, 0 disables it. Setting either requires its feature gates."""

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None

    def completed(self, gates: FeatureGates) -> Self:
        filter_s, binding_s = self.filter_timeout, self.binding_timeout
        if filter_s is None and gates["DRASchedulerFilterTimeout"]:
            filter_s = 10.0
        if binding_s is None and _may_bind_slowly(gates):
            binding_s = 600.0
        return structs.replace(self, filter_timeout=filter_s, binding_timeout=binding_s)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        of_search, of_binding = gates["DRASchedulerFilterTimeout"], _may_bind_slowly(gates)
        slow = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus"
        return [
            *_faults(
                f"{path}.filterTimeout", self.filter_timeout, of_search, "DRASchedulingFilterTimeout", 0, "zero or positive"
            ),
            *_faults(f"{path}.bindingTimeout", self.binding_timeout, of_binding, slow, 1, "at least 1 second"),
        ]


def _faults(path: str, seconds: float | None, is_open: bool, gate: str, least: int, needed: str) -> list[Fault]:
    """Return the fault of a timeout that is set while its gate is closed, or is less than ``least`` seconds."""
    if seconds is None or (is_open and seconds >= least):
        return []
    if not is_open:
        return [Fault("Forbidden", path, f"{gate} feature gate is disabled")]
    return [Fault("Invalid value", path, f"must be {needed}", format_duration(round(seconds * 1e9)))]


def _may_bind_slowly(gates: FeatureGates) -> bool:
    return gates["DRADeviceBindingConditions"] and gates["DRAResourceClaimDeviceStatus"]


# kube-scheduler's own texts, kept word for word: people search their events for them.
NOT_AVAILABLE: Final = "resourceclaim not available on the node"
CANNOT_FIT: Final = "cannot fit resource"
LEFT_BEHIND: Final = "cannot schedule extended resource claim"
NOTHING_TO_DEALLOCATE: Final = "no new claims to deallocate"
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
DELETED: Final = "deletion of ResourceClaim completed"
UNRESERVED: Final = "ResourceClaim unreserved for PodGroup"
STILL_NOT: Final = "still not schedulable"
NO_STATE: Final = "not found"

#: Gates that select a newer allocator than the oldest, which supports none of them, whatever claims request. 1.36 does not tell
#: its allocators of the first one, and has no others.
#:
#: Source  kube-scheduler 1.37: structured/allocator.go, NewAllocator; structured/internal/stable, SupportedFeatures
_NEWER: Final = (
    "DRAListTypeAttributes",
    "DRAFractionalCapacityRange",
    "DRAOptionalNodeOperations",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
)

#: Devices examined in one second of ``filterTimeout``; about what kube-scheduler's Go code manages.
DEVICES_PER_SECOND: Final = 100_000
#: Devices examined on one node if there is no timeout.
MAX_DEVICES: Final = 20_000_000
#: The limit for all nodes of an attempt together, as a multiple of the limit for one node.
NODES_WORTH: Final = 4

_FIT = RequestOptions(use_status=False)


class DynamicResources(
    points.PreEnqueuePlugin, points.PreFilterPlugin[PodDevices], RefusingPlugin[PodDevices], points.PostFilterPlugin,
    points.ScorePlugin[PodDevices | PodInfo], points.ScoreExtensions[PodDevices | PodInfo],
    points.ReservePlugin[PodDevices], points.PreBindPlugin[PodDevices], points.Attachable,
):  # fmt: skip
    name = "DynamicResources"
    Args: type[PluginArgs] | None = DynamicResourcesArgs
    rules: DeviceRules = DeviceRules()
    #: How devices back extended resources.
    backing: ResourceBacking = ResourceBacking()

    def __init__(self, args: DynamicResourcesArgs | None = None) -> None:
        self._args = args or DynamicResourcesArgs()
        self._gates = FeatureGates()
        self._handle: Handle | None = None
        self._configure()

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates
        self._handle = handle
        self._configure()

    def _configure(self) -> None:
        gates = self._gates
        args = self._args.completed(gates)
        conditions = gates["DRADeviceBindingConditions"] and gates["DRAResourceClaimDeviceStatus"]
        compatible = gates.serves("DRADeviceCompatibilityGroups")
        options = DeviceGates(
            consumable_capacity=gates["DRAConsumableCapacity"],
            binding_conditions=conditions,
            partitions=gates["DRAPartitionableDevices"],
            taints=gates["DRADeviceTaints"],
            prioritized_list=gates["DRAPrioritizedList"],
            lists=lists_in_selectors(gates),
            list_constraints=self.rules.compares_devices and gates["DRAListTypeAttributes"],
            admin_access=gates["DRAAdminAccess"],
            newer=(self.rules.compares_devices and any(map(gates.serves, _NEWER)))
            or (self.rules.status_is_new and (gates["DRAResourceClaimDeviceStatus"] or gates["DRADeviceBindingConditions"])),
            compatibility=compatible,
            derived_attributes=gates.serves("DRADerivedAttributes"),
            fractional=gates["DRAFractionalCapacityRange"],
            group_claims=gates["DRAWorkloadResourceClaims"],
            rules=self.rules,
        )
        pools = self.rules.pools
        self._options = options._replace(
            pool_rule=pools._replace(
                ungrouped=pools.ungrouped and not compatible, near_counters=self.rules.near_counters and options.knows_shares
            )
        )
        self._binding_timeout_s = 600.0 if args.binding_timeout is None else args.binding_timeout
        timeout_s = (args.filter_timeout or 0.0) if gates["DRASchedulerFilterTimeout"] else 0.0
        self._budget = int(timeout_s * DEVICES_PER_SECOND) if timeout_s > 0 else MAX_DEVICES
        self._binder = Binder(self.name, self._binding_timeout_s, self._options)

    def _unix_s(self) -> float:
        return 0.0 if self._handle is None else self._handle.unix_s

    # -- before the queue and the cycle -----------------------------------------------------------------------------------

    @property
    def reuse(self) -> points.Reuse:
        return points.Reuse(points.Scope.NODE, self._signature, signature_reads=(DeviceClass,), rests_when_skipped=True)

    def _signature(self, pod: PodInfo) -> points.Signature | None:
        """Pods that request devices have no signature: each is decided by itself."""
        if pod.spec.resource_claims or (self._handle is not None and self._by_device(pod, self._handle.snapshot)):
            return None
        return points.NOTHING_TO_DO

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        if not pod.spec.resource_claims or self._handle is None:
            return None
        found = self._claims_of(pod, self._handle.snapshot)
        return Hold.because(found, unresolvable=True) if isinstance(found, str) else None

    def _claims_of(self, pod: PodInfo, snapshot: Snapshot) -> list[ResourceClaim] | str:
        return claims_of(pod, snapshot, self.rules.not_owner, group_claims=self._options.group_claims)

    def _by_device(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether a device class backs an extended resource that the pod requests."""
        if not self._gates["DRAExtendedResource"] or not snapshot.objects(DeviceClass):
            return False

        def compute() -> bool:
            requests, backing = pod.needs_under(_FIT).requests, self.backing
            return any(count and backing.device_class(name, snapshot) is not None for name, count in requests.items())

        classes = snapshot.changes_of(DeviceClass)
        return pod.keep((self, "by device"), (classes, classes.position), compute)

    # -- PreFilter --------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodDevices | Skip | Hold:
        claims = self._claims_of(pod, snapshot) if pod.spec.resource_claims else []
        if isinstance(claims, str):
            return Hold.because(claims, unresolvable=True)
        has_special = self._by_device(pod, snapshot)
        if not claims and not has_special:
            return SKIP
        device_state = snapshot.index(DeviceState)
        device_state.follow(by_rules=self._gates["DRADeviceTaintRules"])
        scalars = pod.needs_under(_FIT).requests if has_special else {}
        special = (earlier_claim(pod, snapshot) or special_claim(pod)) if has_special else None
        shared = self._shared(pod, claims, device_state)
        held = self._why_waiting(claims, shared, device_state, snapshot)
        users = users_of(pod, claims, snapshot) if claims and self._options.group_claims else {}
        if held is not None or isinstance(users, str):
            return held or Hold.because(str(users), unresolvable=True)
        all_claims = (*claims, special) if special is not None else tuple(claims)
        reach = dict(self._reach(all_claims, shared if self.rules.keeps_to_devices else {}))
        unusable = frozenset(index for index, claim in enumerate(all_claims) if self._is_unusable(claim))
        meter = Meter(device_state.selectors)
        return PodDevices(
            pod, snapshot, device_state, self._options, all_claims, has_special, reach, unusable, scalars, self.backing,
            shared=shared, users=users, meter=meter,
        )  # fmt: skip

    def _shared(self, pod: PodInfo, claims: list[ResourceClaim], device_state: DeviceState) -> dict[str, AllocationResult]:
        """Return the devices that another pod of the group has reserved for claims of this one too, by the claim's UID."""
        if not (self.rules.shares_in_group and self._gates["GenericWorkload"] and pod.group_key):
            return {}
        pending = ((claim.metadata.uid, device_state.ledger.pending(claim.metadata.uid)) for claim in claims)
        return {uid: held.allocation for uid, held in pending if held is not None and held.group == pod.group_key}

    def _why_waiting(
        self, claims: list[ResourceClaim], shared: Mapping[str, object], device_state: DeviceState, snapshot: Snapshot
    ) -> Hold | None:
        """Return why the pod has to wait for one of its claims; None if it need not."""
        for claim in claims:
            if claim.status.allocation is not None or claim.metadata.uid in shared:
                continue
            if device_state.ledger.pending(claim.metadata.uid) is not None:
                return Hold.because(f"resource claim {claim.key} is in the process of being allocated", unresolvable=True)
            fault = class_faults(claim, snapshot, prioritized_list=self._options.prioritized_list)
            if fault is not None:
                if fault.is_error:
                    raise self._error("PreFilter", fault.text)
                return Hold.because(fault.text, unresolvable=True)
        return None

    def _reach(
        self, claims: tuple[ResourceClaim, ...], shared: Mapping[str, AllocationResult]
    ) -> Iterator[tuple[int, NodeSelectorMatcher]]:
        for index, claim in enumerate(claims):
            allocation = claim.status.allocation or shared.get(claim.metadata.uid)
            if allocation is None or allocation.node_selector is None:
                continue
            matcher = compile_node_selector(allocation.node_selector)
            if matcher.error is not None:
                raise self._error("PreFilter", matcher.error)
            yield index, matcher

    def _is_unusable(self, claim: ResourceClaim) -> bool:
        """Return whether the devices of an allocated claim failed to become ready, or took too long."""
        if claim.status.allocation is None or not self._options.binding_conditions:
            return False
        try:
            return not is_ready(claim) and is_late(claim, self._unix_s(), self._binding_timeout_s)
        except BindingFailedError:
            return True

    def _error(self, point: str, text: str) -> AttemptError:
        return AttemptError(self.name, f'running {point} plugin "{self.name}": {text}')

    # -- Filter -----------------------------------------------------------------------------------------------------------

    def filter(self, wanted: PodDevices, nodes: NodeView) -> Iterator[Reject]:
        found = self._filter_devices(wanted, nodes)
        if not self._gates["DRANodeAllocatableResources"]:
            return found
        return NodeAmounts(wanted, overheads=self.rules.overheads).refusals(found, nodes, NOT_AVAILABLE, self._budget)

    def _filter_devices(self, wanted: PodDevices, nodes: NodeView) -> Iterator[Reject]:
        special, open_rows = wanted.special, ~nodes.false()
        if special is not None and special.spec.devices.requests:
            yield Reject(open_rows, LEFT_BEHIND, unresolvable=True)
            return
        if special is not None and (unfit := wanted.unfit(nodes)).any():
            open_rows &= ~unfit
            yield Reject(unfit, CANNOT_FIT, unresolvable=True)
        budget = NODES_WORTH * self._budget
        concerned: list[BoolArray] = []
        # Without extended resources the pod requests the same of every node.
        for kind in (ExtendedResourceNodes(open_rows, None, wanted.shape),) if special is None else wanted.kinds(nodes):
            if kind.shape is not None or not wanted.only_special:
                concerned.append(kind.rows)
            for rows, reason, is_error in self._rejected(wanted, kind.shape, nodes, kind.rows & open_rows, budget):
                open_rows &= ~rows
                yield Reject(rows, reason, unresolvable=True, error=is_error)
        masks = [rows for _, rows in wanted.unavailable(nodes)]
        if masks and concerned:
            unavailable = np.logical_or.reduce(masks) & open_rows & np.logical_or.reduce(concerned)
            yield Reject(unavailable, NOT_AVAILABLE, unresolvable=True)

    def _rejected(
        self, wanted: PodDevices, shape: Shape | None, nodes: NodeView, asked: BoolArray, budget: int
    ) -> Iterator[tuple[BoolArray, str, bool]]:
        """Try to allocate on the rows ``asked``. Yield the rows where that fails, why, and if it is an error."""
        if shape is None:
            return
        refused: dict[tuple[str, bool], list[int]] = {}
        keys = [claim.key for claim in wanted.to_allocate]
        column = wanted.known(shape)
        known = nodes.zeros() if column is None else nodes.take(column.answers)
        if column is not None and known.max(initial=0) > 1:
            for number in np.unique(known[asked & (known > 1)]).tolist():
                yield asked & (known == number), column.reason(number), False
        every, unknown = nodes.table.nodes, np.flatnonzero(asked & (known == 0))
        for at, row in zip(unknown.tolist(), nodes.row_numbers[unknown].tolist(), strict=True):
            node = every[row]
            answer, effort = wanted.answer_to(shape, node, min(self._budget, budget))
            budget -= effort
            shape.note(row, answer)
            if answer.error is not None and answer.overspent:
                raise AttemptError(self.name, f'running "{self.name}" filter plugin: {answer.error.message(keys)}')
            if answer.found is not None:
                continue
            if answer.out_of_budget:
                refused.setdefault(self.timed_out(node), []).append(at)
            elif answer.error is not None:
                refused.setdefault((answer.error.message(keys), True), []).append(at)
            else:
                refused.setdefault((answer.reason, False), []).append(at)
        for (reason, is_error), rows in refused.items():
            mask = nodes.false()
            mask[rows] = True
            yield mask, reason, is_error

    def timed_out(self, node: Node) -> tuple[str, bool]:
        """Return the reason for a node on which the search took too long, and whether that is an error."""
        return f"node {node.name}: timed out trying to allocate devices", True

    def why(self, wanted: PodDevices, pod: PodInfo, node: NodeView) -> Detail | None:
        return why_no_devices(wanted, node)

    def remedies(self, wanted: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one = node.first
        yield from (evict(other, one.name) for other in one.pods if other.spec.resource_claims and can_be_evicted(other))

    # -- PostFilter -------------------------------------------------------------------------------------------------------

    def post_filter(self, pod: PodInfo, attempt: points.Attempt) -> points.PostFilterResult:
        wanted = attempt.found.states.get(self.name)
        if not isinstance(wanted, PodDevices):
            refused = attempt.verdicts.pre_filter
            has_run = self.name in attempt.found.skipped or (refused is not None and refused.plugin == self.name)
            if has_run:
                return self._no_help(NOTHING_TO_DEALLOCATE)
            return points.PostFilterResult(Code.ERROR, (NO_STATE,))
        special = wanted.special
        left_behind = special is not None and special.metadata.name != SPECIAL_NAME
        for index in self._blocking_claims(wanted, attempt):
            claim = wanted.claims[index]
            if claim is special:
                break
            users = claim.status.reserved_for
            if not users or (len(users) == 1 and is_reserved_for(claim, pod)):
                effect: Effect = Write(deallocated(claim), "status", base=claim)
                return points.PostFilterResult(Code.UNSCHEDULABLE, (DEALLOCATED,), effects=(effect,))
        if special is not None and left_behind:
            return points.PostFilterResult(Code.UNSCHEDULABLE, (DELETED,), effects=deletion_of(special))
        release = release_from_group(pod, wanted.snapshot) if self._options.group_claims else None
        if release is not None:
            return points.PostFilterResult(Code.UNRESOLVABLE, (UNRESERVED,), effects=(release,))
        return self._no_help(STILL_NOT)

    def _no_help(self, reason: str) -> points.PostFilterResult:
        return points.PostFilterResult(Code.UNSCHEDULABLE, (reason,) if self.rules.says_why_none_helps else ())

    def _blocking_claims(self, wanted: PodDevices, attempt: points.Attempt) -> list[int]:
        """Return the indexes of the allocated claims that made Filter reject a node. kube-scheduler tries them in any order."""
        verdicts = attempt.verdicts
        rows = [row for row, status in verdicts.refused() if status.plugin == self.name and status.reasons == (NOT_AVAILABLE,)]
        if not rows:
            return []
        view = NodeView(wanted.snapshot, np.array(rows, dtype=np.intp))
        return [index for index, _ in wanted.unavailable(view) if wanted.claims[index].status.allocation is not None]

    # -- Score ------------------------------------------------------------------------------------------------------------

    def score(self, wanted: PodDevices | PodInfo, nodes: NodeView) -> IntArray:
        if not isinstance(wanted, PodDevices) or not self._options.prioritized_list:
            return nodes.zeros()
        return wanted.scores(nodes, self._budget)

    def normalize(self, wanted: PodDevices | PodInfo, scores: IntArray) -> IntArray:
        return default_normalize(scores)

    # -- binding ----------------------------------------------------------------------------------------------------------

    def reserve(self, wanted: PodDevices | None, pod: PodInfo, node: str) -> Hold | None:
        if wanted is None or not (wanted.to_allocate or wanted.shared):
            return None
        try:
            self._binder.reserve(wanted, pod, node, self._budget)
        except ValueError as error:
            raise self._error("Reserve", str(error)) from error
        return None

    def unreserve(self, wanted: PodDevices | None, pod: PodInfo, node: str) -> tuple[Effect, ...]:
        return () if wanted is None else self._binder.unreserve(wanted, pod, node)

    def pre_bind(self, wanted: PodDevices | None, pod: PodInfo, node: str) -> tuple[Effect, ...]:
        return () if wanted is None else self._binder.pre_bind(wanted, pod, node, self._unix_s())

    # -- events -----------------------------------------------------------------------------------------------------------

    def wakes_on(self) -> Iterator[Wake]:
        either = Action.ADD | Action.UPDATE
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE))
        yield Wake(ClusterEvent(Resource.RESOURCE_CLAIM, either), self._claim_changed)
        yield Wake(ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE), self._claim_deleted)
        yield Wake(ClusterEvent(Resource.POD, Action.UPDATE_POD_GENERATED_CLAIM), self._pod_changed)
        yield Wake(ClusterEvent(Resource.DEVICE_CLASS, either))
        yield Wake(ClusterEvent(Resource.RESOURCE_SLICE, either))

    def _claim_changed(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim) -> bool:
        """Return whether a claim added or changed is the pod's own, or has released its devices."""
        if self._handle is None:
            return True
        claims = self._claims_of(pod, self._handle.snapshot)
        if isinstance(claims, str):
            return False
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return True
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return False
        return old is None or old.status != new.status

    def _claim_deleted(self, pod: PodInfo, old: ResourceClaim, new: None) -> bool:
        """Return whether a deleted claim still held devices when last seen.

        A claim is deallocated before it is deleted, but a relist after a gap shows only the deletion. kube-scheduler does not
        check this.
        """
        return old.status.allocation is not None

    def _pod_changed(self, pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
        """Return whether claims were generated for this pod and all its claims exist now."""
        if pod.uid != new.uid:
            return False
        return self._handle is None or not isinstance(self._claims_of(new, self._handle.snapshot), str)
