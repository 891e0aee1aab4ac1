"""Test which consumers a claim loses, when its devices are released, and when the claim is deleted."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.devices import ClaimConsumer
from moorage.plugins.devices.binding import FINALIZER
from moorage.plugins.devices.claim_cleanup import is_done, is_orphaned, without_stale_consumers
from moorage.testing.builders import a_pod
from tests.plugins.device_claims import a_claim, allocated

DYING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def a_user(name="p", **more):
    return msgspec.convert({"resource": "pods", "name": name, "uid": f"default/{name}", **more}, ClaimConsumer)


@pytest.mark.parametrize(
    ("pod", "done"),
    [
        (a_pod("p"), False),
        (a_pod("p", nodeName="n", status={"phase": "Running"}), False),
        (a_pod("p", nodeName="n", status={"phase": "Succeeded"}), True),
        (a_pod("p", status={"phase": "Failed"}), True),
        (a_pod("p", metadata=DYING), True),
        (a_pod("p", metadata=DYING, nodeName="n"), False),
    ],
)
def test_a_pod_is_done_when_no_container_runs_or_will_run(pod, done):
    assert is_done(pod.pod) is done


def protected(*users, **metadata):
    return a_claim(status=allocated(("a", "d"), users=users), metadata={"finalizers": [FINALIZER, "x"], **metadata})


def test_the_devices_are_released_with_the_last_consumer():
    claim = without_stale_consumers(protected("p", "q"), lambda user: user.uid == "q")
    assert [user.uid for user in claim.status.reserved_for] == ["q"]
    assert claim.status.allocation is not None
    claim = without_stale_consumers(claim, lambda user: False)
    assert (claim.status.allocation, claim.metadata.finalizers) == (None, ("x",))


def test_an_unused_claim_keeps_its_devices_unless_it_is_deleted():
    unused, deleted = protected(), protected(**DYING)
    assert without_stale_consumers(unused, lambda user: False) is unused
    free = without_stale_consumers(deleted, lambda user: False)
    assert (free.status.allocation, free.metadata.finalizers) == (None, ("x",))
    in_use = protected("p", **DYING)
    assert without_stale_consumers(in_use, lambda user: True) is in_use


def test_devices_that_no_scheduler_allocated_stay_allocated():
    claim = a_claim(status=allocated(("a", "d"), users=["p"]))
    left = without_stale_consumers(claim, lambda user: False)
    assert left.status.reserved_for == ()
    assert left.status.allocation == claim.status.allocation


OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "default/p", "controller": True}]}


@pytest.mark.parametrize(
    ("claim", "pod", "outlived"),
    [
        (a_claim(metadata=OWNED), a_pod("p"), False),
        (a_claim(metadata=OWNED), a_pod("p", status={"phase": "Succeeded"}), True),
        (a_claim(metadata=OWNED), a_pod("p", uid="another"), True),
        (a_claim(metadata=OWNED), None, False),
        (a_claim(metadata=OWNED, status=allocated(users=["p"])), a_pod("p", uid="another"), False),
        (a_claim(), a_pod("p", uid="another"), False),
    ],
)
def test_a_generated_claim_is_orphaned_when_its_pod_no_longer_needs_it(claim, pod, outlived):
    assert is_orphaned(claim, None if pod is None else pod.pod) is outlived


@given(st.lists(st.sampled_from("abc"), unique=True), st.sets(st.sampled_from("abc")))
def test_cleanup_is_idempotent(users, there):
    once = without_stale_consumers(protected(*users), lambda user: user.uid in there)
    assert without_stale_consumers(once, lambda user: user.uid in there) is once
    assert [user.uid for user in once.status.reserved_for] == [user for user in users if user in there]
