"""A claim's allocation is written in two versions, and the first of them says nothing of devices."""

import pytest
from msgspec.structs import replace

from moorage.api.devices import AllocationResult, ResourceClaim
from moorage.api.meta import ObjectMeta
from moorage.plugins.devices.ledger import Pending

PROTECTION = frozenset(["resource.kubernetes.io/delete-protection"])


def claim(version, *finalizers):
    return ResourceClaim(metadata=ObjectMeta(name="c", uid="c", resource_version=version, finalizers=finalizers))


WRITTEN = replace(claim("7", *PROTECTION), status=replace(claim("7").status, allocation=AllocationResult()))
CASES = {  # what the write added before the devices, what is heard of without devices, and whether it had them since
    "the version it was written on": (PROTECTION, claim("7"), False),
    "only the protection": (PROTECTION, claim("8", *PROTECTION), False),
    "given back": (PROTECTION, claim("10"), True),
    "given back, with protection from before": (frozenset(), claim("10", *PROTECTION), True),
}


@pytest.mark.parametrize(("added", "heard", "past"), CASES.values(), ids=CASES)
def test_devices_stay_held_until_they_were_given_back(added, heard, past):
    assert Pending(WRITTEN, "pod", "default/c", added, written_on="7").is_past(heard) is past
