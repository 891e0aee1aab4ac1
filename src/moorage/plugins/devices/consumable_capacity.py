"""Consumable capacity: how much of a device a share consumes, and whether that much is left.

A device may restrict request amounts by a policy: a default, a range with steps, or a list of values. Requests are rounded up
to the next valid amount. Amounts are exact, in nano-units.

Source  kube-scheduler 1.36: structured/internal/incubating/consumable_capacity.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moorage.api.devices import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from moorage.api.meta import Quantity
from moorage.api.quantity import canonical, parse, value

_UNIT: Final = 10**9


class Amount(NamedTuple):
    """An amount: ``nano`` is exact; ``text`` is the quantity as it is written."""

    nano: int
    text: Quantity


def consumed_by(requested: Mapping[str, Quantity] | None, capacity: Mapping[str, DeviceCapacity]) -> dict[str, Amount]:
    """Return how much of each capacity of a device a request consumes."""
    asked = requested or {}
    return {name: _consumed(asked.get(name), held) for name, held in capacity.items()}


def fits(
    requested: Mapping[str, Quantity] | None,
    capacity: Mapping[str, DeviceCapacity],
    taken: Mapping[str, int],
    being_taken: Mapping[str, int],
) -> bool:
    """Return whether the device's policy allows a request, and whether enough capacity is left.

    Raises  QuantityError for an invalid quantity
    """
    if requested and not requested.keys() <= capacity.keys():
        return False
    for name, amount in consumed_by(requested, capacity).items():
        held = capacity[name]
        if _breaks_policy(amount, held.request_policy):
            return False
        if taken.get(name, 0) + being_taken.get(name, 0) + amount.nano > parse(held.value):
            return False
    return True


def _consumed(requested: Quantity | None, held: DeviceCapacity) -> Amount:
    policy = held.request_policy
    if requested is None:
        given = held.value if policy is None or policy.default is None else policy.default
        return Amount(parse(given), given)
    amount = Amount(parse(requested), requested)
    if policy is None:
        return amount
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_into(amount, policy.valid_range, policy.valid_range.min)
    larger = next((valid for valid in policy.valid_values if amount.nano <= parse(valid)), None)
    return amount if larger is None else Amount(parse(larger), larger)


def _rounded_into(amount: Amount, within: CapacityRequestPolicyRange, least: Quantity) -> Amount:
    if amount.nano < parse(least):
        return Amount(parse(least), least)
    step = 0 if within.step is None else value(within.step)
    if step <= 0:
        return amount
    steps = -((value(least) - value(amount.text)) // step)
    whole = value(least) + step * steps
    return Amount(whole * _UNIT, written(whole * _UNIT))


def written(nano: int) -> Quantity:
    """Return an amount in nano-units as a quantity, with binary suffixes if it is a multiple of 1024."""
    whole, rest = divmod(nano, _UNIT)
    return canonical(f"{nano}n") if rest else str(whole) if whole % 1024 else canonical(f"{whole // 1024}Ki")


def _breaks_policy(amount: Amount, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount.nano == parse(policy.default)):
        return False
    if policy.valid_range is not None:
        return _is_outside(amount, policy.valid_range)
    return bool(policy.valid_values) and all(amount.nano != parse(valid) for valid in policy.valid_values)


def _is_outside(amount: Amount, within: CapacityRequestPolicyRange) -> bool:
    if within.max is not None and amount.nano > parse(within.max):
        return True
    step = 0 if within.step is None else value(within.step)
    least = 0 if within.min is None else value(within.min)
    return step > 0 and (value(amount.text) - least) % step != 0
