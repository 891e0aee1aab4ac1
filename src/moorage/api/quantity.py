"""Quantities such as ``100m``, ``1.5Gi`` and ``2e3`` as exact numbers, and integers, as Kubernetes parses them.

A quantity is a decimal number with a suffix. No floats are involved: amounts are Python integers of nano-units, the API's
finest step. Finer amounts round up, away from zero. Amounts beyond 2^63-1 units are capped *before* any big integer is built,
so ``1e999999999`` costs nothing. Dumps repeat the same few texts, so parsed texts are cached.

Two details differ from apimachinery on purpose: a text without a digit (``.``, ``+``, ``k``) is invalid where Go parses zero,
and integers saturate where Go's ``Value()`` wraps around or becomes zero on overflow.

Source  apimachinery, pkg/api/resource/quantity.go, ParseQuantity, CanonicalizeBytes
"""

from __future__ import annotations

import math
import re
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from moorage.errors import InputError

# Integers and booleans, parsed as Go's ``strconv.ParseInt(text, 10, 64)`` and ``strconv.ParseBool`` do.
#
# Python's ``int()`` accepts blanks, underscores and digits of every script, which the API does not. Label values and taint
# values are parsed here, so that they are numbers exactly when kube-scheduler says so.

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_PARSED = re.compile(r"([+-]?)0*([0-9]+)")
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*")
_TRUE: Final = frozenset(["1", "t", "T", "TRUE", "true", "True"])
_FALSE: Final = frozenset(["0", "f", "F", "FALSE", "false", "False"])


def parse_int64(text: str) -> int | None:
    """Return the parsed number, or None where Go would report an error (not a number, or beyond 64 bits)."""
    found = _PARSED.fullmatch(text)
    if found is None or len(found[2]) > 19:
        return None
    number = int(found[1] + found[2])
    return number if INT64_MIN <= number <= INT64_MAX else None


def is_decimal_integer(text: str) -> bool:
    """Return True for an integer in canonical form: no plus sign, no leading zeros, no ``-0``.

    Source  apimachinery, pkg/api/validate/content/decimal_int.go
    """
    return _CANONICAL.fullmatch(text) is not None


def parse_bool(text: str) -> bool:
    """Return a boolean as Go reads it.

    Raises  ValueError with Go's text
    """
    if text not in _TRUE | _FALSE:
        raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


NANO_PER_UNIT: Final = 10**9
NANO_PER_MILLI: Final = 10**6
MAX_NANO: Final = INT64_MAX * NANO_PER_UNIT
#: Go has no limit; the rest of a longer text adds nothing to its first digits.
MAX_TEXT: Final = 512

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
#: The nano-units of suffixes that most texts have: with up to nine digits, no amount is rounded or capped.
_FACTOR: Final = {"m": 10**6, "k": 10**12, "M": 10**15, "Ki": 2**10 * 10**9, "Mi": 2**20 * 10**9, "Gi": 2**30 * 10**9}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX = ("", *_BINARY)

# apimachinery's own texts.
_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
#: A size in bytes with a B, which no suffix has.
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtpKMGTP])([iI]?)[bB](?:ytes?)?")
_WRONG_SUFFIX = "unable to parse quantity's suffix"


class QuantityError(InputError):
    """A text is not a quantity, such as ``1.1.M``."""


class _Format(Enum):
    DECIMAL = "1500m"
    BINARY = "1536Mi"
    EXPONENT = "12e6"


class _Amount(NamedTuple):
    """``mantissa * 10^exponent``; ``text`` is the source text, if Go would print it unchanged."""

    mantissa: int
    exponent: int
    format: _Format
    text: str = ""
    #: Go holds it as a big decimal instead of 64 bits and a power of ten.
    big: bool = False


def parse(q: str | int | float) -> int:
    """Return a quantity in nano-units.

    Rounds  away from zero below one nano-unit, so that a request never becomes zero
    Caps    at ±(2^63-1) units
    Raises  QuantityError for everything that is not a quantity, including booleans, NaN and infinities
    """
    return _nano(q) if isinstance(q, str) else _nano_of(_amount(q))


def value(q: str | int | float) -> int:
    """Return a quantity in whole units, rounded away from zero: bytes for memory, counts for pods and devices."""
    return _whole(parse(q), NANO_PER_UNIT)


def milli_value(q: str | int | float) -> int:
    """Return a quantity in thousandths, rounded away from zero and capped at 2^63-1: milli-CPU."""
    return _whole(parse(q), NANO_PER_MILLI)


def sign(q: str | int | float) -> int:
    """Return -1, 0 or 1."""
    nano = parse(q)
    return (nano > 0) - (nano < 0)


def canonical(q: str | int | float) -> str:
    """Return the text the API server would store: ``0.1`` → ``100m``, ``1.1Mi`` → ``1153433600m``, ``1000`` → ``1k``.

    The suffix family stays as given, unless binary suffixes would lose precision.
    """
    return _canonical_text(q) if isinstance(q, str) else _print(_amount(q))


def added(one: str | int | float, other: str | int | float) -> str:
    """Return a sum as the API server writes it, in the suffix family of the first amount unless that is zero.

    Raises  QuantityError
    """
    first, second = _amount(one), _amount(other)
    exponent = min(first.exponent, second.exponent)
    mantissa = sum(amount.mantissa * 10 ** (amount.exponent - exponent) for amount in (first, second))
    return _print(_Amount(mantissa, exponent, (first if first.mantissa else second).format))


def decimal_parts(q: str | int | float) -> tuple[int, int, bool]:
    """Return (mantissa, exponent of ten, whether Go holds a big decimal), for arithmetic whose result depends on this."""
    amount = _amount(q)
    return amount.mantissa, amount.exponent, amount.big


class Exact(NamedTuple):
    """An exact amount in nano-units for sums and differences, printed as Go prints them: with the suffix family of the first
    operand, if that was not zero. ``text`` is the source text; sums have none.
    """

    nano: int = 0
    family: _Format = _Format.DECIMAL
    text: str = ""

    def plus(self, other: Exact) -> Exact:
        """Return the sum."""
        return Exact(self.nano + other.nano, self.family if self.nano else other.family)

    def minus(self, other: Exact) -> Exact:
        """Return the difference."""
        return Exact(self.nano - other.nano, self.family if self.nano else other.family)

    def in_whole_units(self) -> Exact:
        """Return the amount rounded up to whole units."""
        rest = self.nano % NANO_PER_UNIT
        return Exact(self.nano - rest + NANO_PER_UNIT, self.family) if rest else self

    def __str__(self) -> str:
        return self.text or _print(_Amount(self.nano, -9, self.family))


@lru_cache(maxsize=4096)
def exact(q: str | int | float) -> Exact:
    """Return a quantity as an exact amount.

    Raises  QuantityError
    """
    amount = _amount(q)
    return Exact(_nano_of(amount), amount.format, _print(amount))


def _whole(nano: int, step: int) -> int:
    whole = -(-nano // step) if nano >= 0 else nano // step
    return max(-INT64_MAX, min(INT64_MAX, whole))


@lru_cache(maxsize=4096)
def _nano(text: str) -> int:
    digits, factor = (text[:-2], _FACTOR.get(text[-2:])) if text[-1:] == "i" else (text[:-1], _FACTOR.get(text[-1:]))
    if factor is not None and len(digits) < 10 and digits.isascii() and digits.isdigit():
        return int(digits) * factor
    return _nano_of(_amount(text))


@lru_cache(maxsize=4096)
def _canonical_text(text: str) -> str:
    return _print(_amount(text))


def _nano_of(amount: _Amount) -> int:
    shift = amount.exponent + 9
    if amount.mantissa == 0:
        return 0
    if shift < 0:  # cannot happen: parsing rounds to nano-units
        raise AssertionError(f"{amount} is finer than a nano-unit")
    if shift > 40:
        return MAX_NANO if amount.mantissa > 0 else -MAX_NANO
    return int(max(-MAX_NANO, min(MAX_NANO, amount.mantissa * 10**shift)))


# -- parsing ------------------------------------------------------------------------------------------------------------


def _amount(q: str | int | float) -> _Amount:
    if isinstance(q, str):
        return _read(q)
    if isinstance(q, bool) or not isinstance(q, (int, float)):
        raise _invalid(q, "a quantity is a number or a text such as 100m or 1Gi")
    if isinstance(q, float):
        if not math.isfinite(q):
            raise _invalid(q, "a quantity is finite")
        return _read(repr(q))
    if q.bit_length() > MAX_TEXT:  # far beyond the cap, and perhaps too long to print
        return _Amount(INT64_MAX if q > 0 else -INT64_MAX, 0, _Format.DECIMAL)
    return _read(str(q))


def _read(text: str) -> _Amount:
    found = _TEXT.fullmatch(text) if len(text) <= MAX_TEXT else None
    if found is None:
        raise _invalid(text, _WRONG_FORMAT)
    negative, digits, places, suffix = found[1] == "-", found[2], found[4] or "", found[5]
    if not digits and not places:
        raise _invalid(text, _WRONG_FORMAT)
    mantissa = int("0" + digits + places)
    if negative:
        mantissa = -mantissa
    if suffix in _BINARY:
        return _read_binary(text, mantissa, digits.lstrip("0"), places, _BINARY[suffix])
    exponent, family = _exponent(text, suffix)
    # Go counts the digits left of the point without leading zeros, but counts at least one.
    integer = digits.lstrip("0") or "0"
    scale = exponent - len(places)
    if len(integer) + len(places) <= 18 and scale >= -9:
        shifted = integer + places
        unchanged = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
        return _Amount(mantissa, scale, family, text if unchanged else "")
    return _round_to_nano(mantissa, scale, family)


def _exponent(text: str, suffix: str) -> tuple[int, _Format]:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], _Format.DECIMAL
    found = _EXPONENT.fullmatch(suffix)
    exponent = parse_int64(found[1]) if found else None
    if exponent is None:
        raise _invalid(text, _WRONG_SUFFIX)
    return exponent, _Format.EXPONENT


def _read_binary(text: str, mantissa: int, integer: str, places: str, power: int) -> _Amount:
    exact = mantissa << power
    if not places and 14 - len(integer or "0") - power * 3 // 10 >= 0:
        unchanged = mantissa & 7 != 0
        return _Amount(exact, 0, _Format.BINARY, text if unchanged else "")
    rounded = _round_to_nano(exact, -len(places), _Format.BINARY)
    ceiling = INT64_MAX * 10**-rounded.exponent
    if abs(rounded.mantissa) > ceiling:
        return _Amount(INT64_MAX if mantissa > 0 else -INT64_MAX, 0, _Format.BINARY, big=True)
    if 0 < abs(rounded.mantissa) < 10**-rounded.exponent:
        return rounded._replace(format=_Format.DECIMAL)
    return rounded


def _round_to_nano(mantissa: int, exponent: int, family: _Format) -> _Amount:
    """Round to nano-units, away from zero."""
    if exponent >= -9:
        return _Amount(mantissa, exponent, family, big=True)
    drop = -9 - exponent
    if drop > MAX_TEXT:  # far below one nano-unit, whatever the digits are
        return _Amount((mantissa > 0) - (mantissa < 0), -9, family, big=True)
    step = 10**drop
    whole = -(-abs(mantissa) // step)
    return _Amount(whole if mantissa >= 0 else -whole, -9, family, big=True)


def _invalid(q: object, why: str) -> QuantityError:
    shown = f"'{q}'" if isinstance(q, str) and q.isprintable() else repr(q)
    if len(shown) > 64:
        shown = shown[:60] + "…" + shown[-1]
    return QuantityError(f"cannot parse {shown}: {why}{_meant(q)}")


def _meant(q: object) -> str:
    """Return a hint for a size in bytes as people write it, such as 8GB or 512 mib; else ""."""
    found = _BYTES.fullmatch(q) if isinstance(q, str) and len(q) <= MAX_TEXT else None
    if found is None:
        return ""
    number, letter, binary = found[1], found[2].upper(), f"{found[1]}{found[2].upper()}i"
    decimal = "" if found[3] else f"{number}{'k' if letter == 'K' else letter} or "
    return f"; did you mean {decimal}{binary}?"


# -- printing -----------------------------------------------------------------------------------------------------------


def _print(amount: _Amount) -> str:
    if amount.mantissa == 0:
        return "0"
    if amount.text:
        return amount.text
    if amount.format is _Format.BINARY:
        units = _units(amount)
        if units is not None and abs(units) >= 1024:
            return _print_binary(units)
    return _print_decimal(amount)


def _units(amount: _Amount) -> int | None:
    """Return the amount in whole units, or None if it has a fraction."""
    if amount.exponent >= 0:
        return int(amount.mantissa * 10**amount.exponent)
    units, rest = divmod(amount.mantissa, 10**-amount.exponent)
    return None if rest else units


def _print_binary(units: int) -> str:
    power = 0
    while power < 6 and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _print_decimal(amount: _Amount) -> str:
    mantissa, exponent = amount.mantissa, amount.exponent
    while mantissa % 10 == 0:
        mantissa //= 10
        exponent += 1
    # Exponents are multiples of three; there is no suffix above E, so larger amounts keep their zeros.
    drop = exponent % 3 if amount.format is _Format.EXPONENT else exponent - min(18, exponent // 3 * 3)
    mantissa, exponent = mantissa * 10**drop, exponent - drop
    if amount.format is _Format.EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else f"{mantissa}"
    return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"
