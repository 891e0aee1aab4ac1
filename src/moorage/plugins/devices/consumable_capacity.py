"""Consumable capacity: how much of a device a share consumes, and whether that much is left.

A device may restrict request amounts by a policy: a default, a range with steps, or a list of values. Requests are rounded up
to the next valid amount. Amounts are exact, in nano-units.

From 1.37 on an amount that is negative, or that 64 bits cannot hold when it is rounded up, ends the attempt; before, it was
taken as it came. With the gate DRAFractionalCapacityRange ranges may have thousandths, and amounts are rounded by them.

Source  kube-scheduler 1.36 and 1.37: structured/internal/incubating/consumable_capacity.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moorage.api.devices import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from moorage.api.meta import Quantity
from moorage.api.quantity import INT64_MAX, canonical, milli_value, parse, value

_UNIT: Final = 10**9
_MILLI: Final = 10**6
_BEYOND: Final = "capacity request cannot be represented in the device's range arithmetic"


class AmountRules(NamedTuple):
    """How amounts are computed; the defaults are those up to 1.36.

    ``checked``     an amount that cannot be right ends the attempt, and a rounded one is written as the step is
    ``fractional``  ranges are computed in thousandths where that is exact
    """

    checked: bool = False
    fractional: bool = False


#: The rules up to 1.36.
UNCHECKED: Final = AmountRules()


class AmountError(Exception):
    """A capacity that is requested cannot be computed; the text is kube-scheduler's."""


class Amount(NamedTuple):
    """An amount: ``nano`` is exact; ``text`` is the quantity as it is written."""

    nano: int
    text: Quantity


def consumed_by(
    requested: Mapping[str, Quantity] | None, capacity: Mapping[str, DeviceCapacity], rules: AmountRules = UNCHECKED
) -> dict[str, Amount]:
    """Return how much of each capacity of a device a request consumes.

    Raises  AmountError; QuantityError for an invalid quantity
    """
    asked = requested or {}
    found = {}
    for name, held in capacity.items():
        try:
            amount = found[name] = _consumed(asked.get(name), held, rules)
        except AmountError as error:
            raise AmountError(f'capacity "{name}": {error}') from None
        if rules.checked and amount.nano < 0:
            raise AmountError(f'capacity "{name}": capacity value is negative')
    return found


def fits(
    requested: Mapping[str, Quantity] | None,
    capacity: Mapping[str, DeviceCapacity],
    taken: Mapping[str, int],
    being_taken: Mapping[str, int],
    rules: AmountRules = UNCHECKED,
) -> bool:
    """Return whether the device's policy allows a request, and whether enough capacity is left.

    Raises  AmountError; QuantityError for an invalid quantity
    """
    if requested and not requested.keys() <= capacity.keys():
        return False
    for name, amount in consumed_by(requested, capacity, rules).items():
        held = capacity[name]
        if _breaks_policy(amount, held.request_policy, rules):
            return False
        if taken.get(name, 0) + being_taken.get(name, 0) + amount.nano > parse(held.value):
            return False
    return True


def _consumed(requested: Quantity | None, held: DeviceCapacity, rules: AmountRules) -> Amount:
    policy = held.request_policy
    if requested is None:
        given = held.value if policy is None or policy.default is None else policy.default
        return Amount(parse(given), given)
    amount = Amount(parse(requested), requested)
    if policy is None:
        return amount
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_into(amount, policy.valid_range, policy.valid_range.min, rules)
    larger = next((valid for valid in policy.valid_values if amount.nano <= parse(valid)), None)
    return amount if larger is None else Amount(parse(larger), larger)


def _rounded_into(amount: Amount, within: CapacityRequestPolicyRange, least: Quantity, rules: AmountRules) -> Amount:
    if amount.nano < parse(least):
        return Amount(parse(least), least)
    if within.step is None:
        return amount
    by_milli = rules.fractional and _is_in_milli(within)
    if by_milli and not _is_milli(amount.nano):
        raise AmountError(f"{_BEYOND}: request {canonical(amount.text)} is not a representable milli value")
    of = milli_value if by_milli else value
    step, first, unit = of(within.step), of(least), _MILLI if by_milli else _UNIT
    if step <= 0:
        return amount
    whole = first + step * -((first - of(amount.text)) // step)
    if rules.checked and first >= 0 and whole > INT64_MAX:
        limit = "the milli-value range" if by_milli else "MaxInt64"
        text = f"rounding request {canonical(amount.text)} up to the next step passes {limit}"
        raise AmountError(f"{_BEYOND}: {text}")
    nano = whole * unit
    as_decimal = rules.checked and not str(within.step).endswith("i")
    return Amount(nano, canonical(f"{nano}n") if as_decimal else written(nano))


def _is_in_milli(within: CapacityRequestPolicyRange) -> bool:
    """Return whether every bound of a range, and its step, is a number of thousandths that 64 bits hold."""
    given = [parse(one) for one in (within.min, within.max, within.step) if one is not None]
    return all(map(_is_milli, given))


def _is_milli(nano: int) -> bool:
    return nano % _MILLI == 0 and abs(nano) // _MILLI <= INT64_MAX


def written(nano: int) -> Quantity:
    """Return an amount in nano-units as a quantity, with binary suffixes if it is a multiple of 1024."""
    whole, rest = divmod(nano, _UNIT)
    return canonical(f"{nano}n") if rest else str(whole) if whole % 1024 else canonical(f"{whole // 1024}Ki")


def _breaks_policy(amount: Amount, policy: CapacityRequestPolicy | None, rules: AmountRules) -> bool:
    if policy is None or (policy.default is not None and amount.nano == parse(policy.default)):
        return False
    if policy.valid_range is not None:
        return _is_outside(amount, policy.valid_range, rules)
    return bool(policy.valid_values) and all(amount.nano != parse(valid) for valid in policy.valid_values)


def _is_outside(amount: Amount, within: CapacityRequestPolicyRange, rules: AmountRules) -> bool:
    if within.max is not None and amount.nano > parse(within.max):
        return True
    if within.step is None:
        return False
    by_milli = rules.fractional and _is_in_milli(within)
    if by_milli and not _is_milli(amount.nano):
        return True
    of = milli_value if by_milli else value
    step, least = of(within.step), 0 if within.min is None else of(within.min)
    return step > 0 and (of(amount.text) - least) % step != 0
