"""Test Unreserve: a pod that is not bound is removed from the consumers of its claims, wherever the attempt failed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.devices import ResourceClaim, ResourceClaimStatus
from moorage.framework.effects import Amend
from moorage.plugins.devices.binding import FINALIZER
from moorage.plugins.devices.claim_shapes import DeviceState
from tests.plugins.device_claims import (
    DRIVER,
    GPU,
    a_claim,
    a_class,
    a_slice,
    allocated,
    asking,
    attached,
    carry_out,
    using,
    why_not,
    with_devices,
)  # fmt: skip


def run_and_unreserve(plugin, cluster, pod, writes):
    """Run PreFilter to this many of PreBind's effects (None: it fails before PreBind), then Unreserve."""
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    assert plugin.reserve(wanted, pod, "a") is None
    if writes is not None:
        carry_out(cluster, plugin.pre_bind(wanted, pod, "a")[:writes])
    carry_out(cluster, plugin.unreserve(wanted, pod, "a"))
    return wanted


def users(cluster, name):
    return [user.uid for user in cluster.objects(ResourceClaim)[f"default/{name}"].status.reserved_for]


def test_a_claim_loses_the_pod_and_keeps_its_devices():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    plugin = attached(cluster)
    run_and_unreserve(plugin, cluster, using("p", "c"), 1)
    claim = cluster.objects(ResourceClaim)["default/c"]
    assert claim.status.reserved_for == ()
    assert [one.device for one in claim.status.allocation.devices.results] == ["d"]
    assert why_not(cluster, using("p", "c"), plugin) == {"b": "resourceclaim not available on the node"}
    run_and_unreserve(plugin, cluster, using("p", "c"), 1)
    assert users(cluster, "c") == []


def test_other_consumers_stay():
    cluster = with_devices(a_claim("c", status=allocated(("a", "d"), users=["other"])), a_slice("a", ["d"]))
    run_and_unreserve(attached(cluster), cluster, using("p", "c"), 1)
    assert users(cluster, "c") == ["other"]


def test_the_special_claim_is_deleted():
    cluster = with_devices(a_slice("a", ["d"]))
    cluster.set_object(a_class(extendedResourceName=GPU))
    plugin = attached(cluster)
    run_and_unreserve(plugin, cluster, asking(1), 2)
    assert not cluster.objects(ResourceClaim)
    device_state = cluster.snapshot.index(DeviceState)
    device_state.follow()
    assert not device_state.ledger.is_used((DRIVER, "a", "d"))
    assert "a" not in why_not(cluster, asking(1, "q"), plugin)


@pytest.mark.parametrize("written", [True, False])
def test_devices_stay_reserved_until_unreserve_and_then_by_the_written_claim(written):
    cluster = with_devices(a_claim("c"), a_claim("d"), a_slice("a", ["d"]), nodes=("a",))
    plugin, pod = attached(cluster), using("p", "c")
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, "a")
    effects = plugin.pre_bind(wanted, pod, "a")
    held = {"a": "cannot allocate all claims"}
    assert why_not(cluster, using("q", "d"), plugin) == held
    if written:
        carry_out(cluster, effects)
    assert [type(effect) for effect in plugin.unreserve(wanted, pod, "a")] == [Amend]
    assert why_not(cluster, using("q", "d"), plugin) == (held if written else {})


@pytest.mark.parametrize("name", ["gone", "replaced"])
def test_a_claim_deleted_meanwhile_needs_no_write(name):
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]))
    plugin, pod = attached(cluster), using("p", "c")
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, "a")
    plugin.pre_bind(wanted, pod, "a")
    cluster.remove_object(cluster.objects(ResourceClaim)["default/c"])
    (undo,) = plugin.unreserve(wanted, pod, "a")
    assert undo.or_gone
    assert undo.obj.metadata.uid == "uid-c"


def as_before(claim):
    """Return the claim without what kube-scheduler also leaves on it: the allocation and the finalizer."""
    finalizers = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    return replace(claim, metadata=replace(claim.metadata, finalizers=finalizers), status=ResourceClaimStatus())


@settings(max_examples=30, deadline=None)
@given(names=st.lists(st.sampled_from("cd"), unique=True), extended=st.integers(0, 2), writes=st.none() | st.integers(0, 5))
def test_reserve_writes_failure_and_unreserve_leave_no_trace(names, extended, writes):
    cluster = with_devices(a_claim("c"), a_claim("d"), a_slice("a", ["d1", "d2", "d3", "d4"]), nodes=("a",))
    cluster.set_object(a_class(extendedResourceName=GPU))
    before = dict(cluster.objects(ResourceClaim))
    plugin = attached(cluster)
    containers = [{"name": "main", "resources": {"requests": {GPU: extended}}}]
    pod = using("p", *names, containers=containers)
    if not names and not extended:
        return
    run_and_unreserve(plugin, cluster, pod, writes)
    after = cluster.objects(ResourceClaim)
    assert {key: as_before(claim) for key, claim in after.items()} == before
    assert not any(claim.status.reserved_for for claim in after.values())
    device_state = cluster.snapshot.index(DeviceState)
    device_state.follow()
    kept = {
        one.device for claim in after.values() if claim.status.allocation for one in claim.status.allocation.devices.results
    }
    assert {name for name in ("d1", "d2", "d3", "d4") if device_state.ledger.is_used((DRIVER, "a", name))} == kept
    assert all(device_state.ledger.pending(claim.metadata.uid) is None for claim in after.values())


# -- claims that are deallocated before the next snapshot -----------------------------------------------------------------


def run_to_pre_bind(plugin, cluster, pod, node="a"):
    """Run a pod through Reserve and PreBind."""
    wanted = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(wanted, pod, node)
    carry_out(cluster, plugin.pre_bind(wanted, pod, node))


def versioned(claim, version):
    return replace(claim, metadata=replace(claim.metadata, resource_version=str(version)))


@pytest.mark.parametrize("versions", [("", "", ""), ("9", "10", "11")])
def test_a_claim_used_and_deallocated_meanwhile_is_free_for_the_next_pod(versions):
    cluster = with_devices(versioned(a_claim("c"), versions[0]), a_slice("a", ["d"]), nodes=("a",))
    plugin = attached(cluster)
    run_to_pre_bind(plugin, cluster, using("p", "c"))
    cluster.set_object(versioned(cluster.objects(ResourceClaim)["default/c"], versions[1]))
    cluster.set_object(versioned(a_claim("c"), versions[2]))
    assert why_not(cluster, using("q", "c"), plugin) == {}


def test_a_claim_created_and_deleted_meanwhile_leaves_no_device_reserved():
    cluster = with_devices(a_claim("c"), a_claim("d"), a_slice("a", ["d"]), nodes=("a",))
    plugin = attached(cluster)
    run_to_pre_bind(plugin, cluster, using("p", "c"))
    cluster.remove_object(cluster.objects(ResourceClaim)["default/c"])
    assert why_not(cluster, using("q", "d"), plugin) == {}


def test_a_recreated_claim_is_a_different_claim():
    cluster = with_devices(a_claim("c"), a_slice("a", ["d"]), nodes=("a",))
    plugin = attached(cluster)
    run_to_pre_bind(plugin, cluster, using("p", "c"))
    cluster.remove_object(cluster.objects(ResourceClaim)["default/c"])
    cluster.set_object(a_claim("c", metadata={"uid": "another"}))
    assert why_not(cluster, using("q", "c"), plugin) == {}


def test_a_claim_deallocated_with_its_finalizer_is_free_for_the_next_pod():
    cluster = with_devices(a_claim("c"), a_claim("d"), a_slice("a", ["d"]), nodes=("a",))
    plugin = attached(cluster)
    run_to_pre_bind(plugin, cluster, using("p", "c"))
    held = cluster.objects(ResourceClaim)["default/c"]
    assert held.metadata.finalizers == (FINALIZER,)
    cluster.set_object(replace(held, status=ResourceClaimStatus()))
    assert why_not(cluster, using("q", "c"), plugin) == {}
    assert why_not(cluster, using("r", "d"), plugin) == {}
