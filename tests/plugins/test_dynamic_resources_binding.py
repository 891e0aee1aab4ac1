"""Test DynamicResources from Reserve to PreBind and back: reservations, writes, waits and deallocation."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.devices import ResourceClaim
from moorage.errors import AttemptError
from moorage.framework.effects import Amend, Until
from moorage.plugins.devices.binding import FINALIZER, MAX_USERS
from moorage.plugins.devices.claim_shapes import DeviceState
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.testing.builders import failed_attempt
from tests.plugins.device_claims import (
    DRIVER,
    a_claim,
    a_slice,
    allocate,
    allocated,
    attached,
    using,
    why_not,
    with_devices,
)

# -- from Reserve to the writes -------------------------------------------------------------------------------------------


def test_reserved_devices_are_in_use_until_unreserve_which_leaves_no_trace():
    cluster = with_devices(a_claim("c"), a_claim("d"), a_slice("a", ["d"]), nodes=("a",))
    plugin = DynamicResources()
    first, second = using("p", "c"), using("q", "d")
    wanted = plugin.pre_filter(first, cluster.snapshot)
    plugin.reserve(wanted, first, "a")
    assert why_not(cluster, second, plugin) == {"a": "cannot allocate all claims"}
    assert why_not(cluster, using("r", "c"), plugin) == {"a": "resource claim default/c is in the process of being allocated"}
    plugin.unreserve(wanted, first, "a")
    plugin.unreserve(wanted, first, "a")
    assert why_not(cluster, second, plugin) == {}
    assert cluster.objects(ResourceClaim)["default/c"] == a_claim("c")
    ledger = cluster.snapshot.index(DeviceState).ledger
    assert not ledger.is_used((DRIVER, "a", "d"))


def test_allocation_user_and_finalizer_are_written():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d", "e"]))
    plugin = attached(cluster, now=1_700_000_000)
    effects = allocate(plugin, cluster, using("p", "c"), "a")
    assert [type(effect) for effect in effects] == [Amend]
    claim = cluster.objects(ResourceClaim)["default/c"]
    assert claim.metadata.finalizers == (FINALIZER,)
    assert [(user.resource, user.name, user.uid) for user in claim.status.reserved_for] == [("pods", "p", "default/p")]
    allocation = claim.status.allocation
    assert [(r.request, r.driver, r.pool, r.device) for r in allocation.devices.results] == [("r0", DRIVER, "a", "d")]
    assert allocation.allocation_timestamp == "2023-11-14T22:13:20Z"
    (term,) = allocation.node_selector.node_selector_terms
    assert msgspec.to_builtins(term.match_fields) == ({"key": "metadata.name", "operator": "In", "values": ("a",)},)


@pytest.mark.parametrize(
    ("closed", "where"),
    [
        ("", "a"),
        ("DRADeviceBindingConditions=false", "a"),
        ("DRAConsumableCapacity=false", "a"),
        ("DRADeviceBindingConditions=false,DRAConsumableCapacity=false", None),  # the oldest allocator lacks both
    ],
)
def test_an_allocation_may_bind_to_its_node(closed, where):
    cluster = with_devices(a_claim("c"), a_slice("a", [{"name": "d", "bindsToNode": True}], allNodes=True))
    allocate(attached(cluster, gates=closed), cluster, using("p", "c"), "a")
    selector = cluster.objects(ResourceClaim)["default/c"].status.allocation.node_selector
    names = [f.values for term in selector.node_selector_terms for f in term.match_fields] if selector else []
    assert names == ([(where,)] if where else [])


def test_a_second_pod_is_only_added_to_the_consumers():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    plugin = DynamicResources()
    allocate(plugin, cluster, using("p", "c"), "a")
    before = cluster.objects(ResourceClaim)["default/c"]
    assert why_not(cluster, using("q", "c"), plugin) == {"b": "resourceclaim not available on the node"}
    effects = allocate(plugin, cluster, using("q", "c"), "a")
    assert [type(effect) for effect in effects] == [Amend]
    after = cluster.objects(ResourceClaim)["default/c"]
    assert [user.name for user in after.status.reserved_for] == ["p", "q"]
    assert after.status.allocation == before.status.allocation


def test_a_claim_has_a_maximum_of_consumers():
    full = a_claim("c", status=allocated(("a", "d"), users=[f"u{n}" for n in range(MAX_USERS)]))
    cluster = with_devices(full)
    plugin = DynamicResources()
    pod = using("p", "c")
    with pytest.raises(AttemptError, match=r"status\.reservedFor: Too many: 257: must have at most 256 items"):
        plugin.pre_bind(plugin.pre_filter(pod, cluster.snapshot), pod, "a")


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (None, "claim default/c got deleted in the meantime"),
        (a_claim("c", metadata={"uid": "another"}), "claim default/c got deleted in the meantime"),
        (a_claim("c", status=allocated(("b", "d"))), "claim default/c got allocated elsewhere in the meantime"),
    ],
)
def test_concurrent_changes_of_a_claim_fail_the_attempt(meanwhile, why):
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    plugin = DynamicResources()
    pod = using("p", "c")
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, "a")
    cluster.remove_object(a_claim("c"))
    if meanwhile is not None:
        cluster.set_object(meanwhile)
    with pytest.raises(AttemptError, match=why):
        plugin.pre_bind(wanted, pod, "a")


# -- binding conditions ---------------------------------------------------------------------------------------------------


CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def with_condition(claim, kind, status="True"):
    condition = {"type": kind, "status": status, "reason": "Because", "message": "so"}
    device = {"driver": DRIVER, "pool": "a", "device": "d", "conditions": [condition]}
    reported = msgspec.convert({"devices": [device]}, type(claim.status)).devices
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, devices=reported))


def test_binding_waits_until_devices_are_ready():
    cluster = with_devices(a_claim("c"), a_slice("a", [{"name": "d", **CONDITIONS}]))
    *_, until = allocate(DynamicResources(), cluster, using("p", "c"), "a")
    assert isinstance(until, Until)
    assert until.timeout_s == 600
    claim = cluster.objects(ResourceClaim)["default/c"]
    assert not until.is_met()
    cluster.set_object(with_condition(claim, "ready"))
    assert until.is_met()
    cluster.set_object(with_condition(claim, "broken"))
    with pytest.raises(AttemptError, match='device binding failed: claim=c, reason=Because, message="so"'):
        until.is_met()
    cluster.remove_object(claim)
    with pytest.raises(AttemptError, match='could not find ResourceClaim "default/c"'):
        until.is_met()


@pytest.mark.parametrize(
    ("now", "condition", "refused"), [(100, "", False), (700, "", True), (700, "ready", False), (100, "broken", True)]
)
def test_devices_that_fail_or_time_out_are_deallocated(now, condition, refused):
    status = allocated(("a", "d"), conditions=CONDITIONS, allocationTimestamp="1970-01-01T00:00:00Z")
    claim = a_claim("c", status=status)
    cluster = with_devices(with_condition(claim, condition) if condition else claim, nodes=("a",))
    reported = why_not(cluster, using("p", "c"), attached(cluster, now))
    assert reported == ({"a": "resourceclaim not available on the node"} if refused else {})


# -- PostFilter -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ((), "deallocation of ResourceClaim completed"),
        (("default/p",), "deallocation of ResourceClaim completed"),
        (("default/other",), "still not schedulable"),
        (("default/p", "default/other"), "still not schedulable"),
    ],
)
def test_a_claim_without_other_consumers_is_deallocated(users, message):
    cluster = with_devices(a_claim("c", status=allocated(("z", "d"), users=users, selector="z")))
    pod, plugin = using("p", "c"), DynamicResources()
    attempt = failed_attempt([plugin], pod, cluster.snapshot)
    outcome = plugin.post_filter(pod, attempt)
    assert outcome.reasons == (message,)
    written = [effect.obj.status.allocation for effect in outcome.effects]
    assert written == ([None] if "completed" in message else [])
