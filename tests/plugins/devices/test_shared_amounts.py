"""What a share of a device consumes, and what cannot be computed, as 1.37 does it and as earlier releases do."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.devices import DeviceCapacity
from moorage.plugins.devices.claim_requests import DeviceGates
from moorage.plugins.devices.consumable_capacity import UNCHECKED, AmountError, AmountRules, consumed_by, fits
from tests.plugins.devices.test_allocator import a_claim, a_slice, exactly, holding, search

CHECKED, FRACTIONAL = AmountRules(checked=True), AmountRules(checked=True, fractional=True)
MOST = "9223372036854775807"


def capacity(step="1", least="1", **policy):
    within = {"requestPolicy": {"validRange": {"min": least, "step": step, **policy}}}
    return {"units": msgspec.convert({"value": "8", **within}, DeviceCapacity)}


@pytest.mark.parametrize(
    ("asked", "held", "rules", "consumed"),
    [
        ("2500m", capacity(), CHECKED, "3"),
        ("2500m", capacity("500m"), UNCHECKED, "3"),
        ("2300m", capacity("500m"), FRACTIONAL, "2500m"),
        ("1025", capacity("1Ki", "1Ki"), CHECKED, "2Ki"),
        ("1025", capacity("1024", "1024"), CHECKED, "2048"),
        ("1000", capacity("1000", "1000"), CHECKED, "1k"),
    ],
)
def test_amounts_are_rounded_up_to_a_step(asked, held, rules, consumed):
    assert consumed_by({"units": asked}, held, rules)["units"].text == consumed


@pytest.mark.parametrize(
    ("asked", "rules", "why"),
    [
        (MOST, FRACTIONAL, "is not a representable milli value"),
        ("0.0001", FRACTIONAL, None),
        ("1.0001", FRACTIONAL, "is not a representable milli value"),
        (MOST, AmountRules(checked=True), "up to the next step passes MaxInt64"),
        ("-1", CHECKED, None),
    ],
)
def test_what_cannot_be_computed_is_an_error(asked, rules, why):
    held = capacity("5", "1")
    if why is None:  # less than the least is the least
        assert consumed_by({"units": asked}, held, rules)["units"].text == "1"
        return
    with pytest.raises(AmountError, match=why):
        fits({"units": asked}, held, {}, {}, rules)


def test_a_negative_amount_is_an_error_since_1_37():
    held = {"units": msgspec.convert({"value": "8"}, DeviceCapacity)}
    assert fits({"units": "-1"}, held, {}, {})
    with pytest.raises(AmountError, match='capacity "units": capacity value is negative'):
        fits({"units": "-1"}, held, {}, {}, CHECKED)


def test_a_shared_device_with_counters_needs_the_gate_of_partitions():
    part = {
        "name": "d0", "allowMultipleAllocations": True, "capacity": {"units": {"value": "4"}},
        "consumesCounters": [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}],
    }  # fmt: skip
    counters = [{"name": "set", "counters": {"slots": {"value": "1"}}}]
    slices = [a_slice([], "s0", count=2, sharedCounters=counters), a_slice([part], "s1", count=2)]
    held = holding("d0", shareID="00000000-0000-4000-8000-000000000001", consumedCapacity={"units": "1"})
    claim = a_claim([exactly(capacity={"requests": {"units": "1"}})])
    assert search(slices, [claim], [held]).run() is not None
    alone = [a_slice([part], "s1")]
    assert search(alone, [claim], [held], options=DeviceGates(partitions=False)).run() is None
