"""Quantities in expressions: sums, comparisons, and whether they are integers.

Amounts are exact. Go holds a quantity as 64 bits and a power of ten if it can, else as a big decimal. ``asInteger`` depends on
which, so this class tracks it.

A text of ten characters can stand for a number of a billion digits. Such a number is never written out: comparisons are decided
by the number of digits, as in Go since release 1.37, and sums of more than ``MAX_DIGITS`` digits fail where Go writes them out.

Source  apimachinery, pkg/api/resource/quantity.go, amount.go; apiserver/pkg/cel/library/quantity.go
"""

from __future__ import annotations

import math

from moorage.api.cel.bounds import MAX_DIGITS, TooLargeError
from moorage.api.quantity import INT64_MAX, decimal_parts


class Quantity:
    """``value * 10^scale``. ``big``: Go holds it as a big decimal. ``computed``: the result of an addition or subtraction."""

    __slots__ = ("big", "computed", "scale", "value")

    def __init__(self, value: int, scale: int = 0, *, big: bool = False, computed: bool = False) -> None:
        self.value = value
        self.scale = scale
        self.big = big
        self.computed = computed

    @classmethod
    def parse(cls, text: str | int | float) -> Quantity:
        """Parse a quantity.

        Raises  QuantityError for an invalid text
        """
        value, scale, big = decimal_parts(text)
        return cls(value, scale, big=big)

    @property
    def sign(self) -> int:
        return (self.value > 0) - (self.value < 0)

    @property
    def as_int64(self) -> int | None:
        """The amount as a 64-bit integer; None where Go cannot convert it."""
        if self.big or self.scale < 0:
            return None
        whole = self.value * 10**self.scale if self.scale < 20 or not self.value else INT64_MAX + 1
        return int(whole) if -INT64_MAX <= whole <= INT64_MAX else None

    @property
    def as_float(self) -> float:
        """The amount as a double, rounded as Go's ``AsApproximateFloat64`` does: a product with a power of ten."""
        base = _as_float(self.value)
        return base if self.scale == 0 else base * float(f"1e{self.scale}")

    def compare(self, other: Quantity) -> int:
        """Return -1, 0 or 1."""
        if self.scale == other.scale:
            return (self.value > other.value) - (self.value < other.value)
        if self.sign != other.sign or not self.sign:
            return (self.sign > other.sign) - (self.sign < other.sign)
        digits, its_digits = _digits(self.value) + self.scale, _digits(other.value) + other.scale
        if digits != its_digits:
            return self.sign if digits > its_digits else -self.sign
        scale = min(self.scale, other.scale)
        one, another = self._scaled(scale), other._scaled(scale)
        return (one > another) - (one < another)

    def add(self, other: Quantity, sign: int = 1) -> Quantity:
        """Return the sum, or with ``sign`` -1 the difference.

        Raises  TooLargeError if it has too many digits
        """
        if not other.value:
            return Quantity(self.value, self.scale, big=self.big or other.big, computed=True)
        scale = other.scale if not self.value and not self.big else min(self.scale, other.scale)
        total = self._scaled(scale) + sign * other._scaled(scale)
        _check_digits(_digits(total))
        return Quantity(total, scale, big=self.big or other.big or abs(total) > INT64_MAX, computed=True)

    def _scaled(self, scale: int) -> int:
        """Return the mantissa of the same amount at another scale, which must not exceed the quantity's own."""
        if not self.value:
            return 0
        _check_digits(_digits(self.value) + self.scale - scale)
        return int(self.value * 10 ** (self.scale - scale))

    def __str__(self) -> str:
        return f"{self.value}e{self.scale}" if self.scale else str(self.value)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _digits(value: int) -> int:
    """Count the decimal digits of a number."""
    return len(str(abs(value)))


def _check_digits(count: int) -> None:
    if count > MAX_DIGITS:
        raise TooLargeError(f"a sum or difference has {count} digits; at most {MAX_DIGITS} are supported")
