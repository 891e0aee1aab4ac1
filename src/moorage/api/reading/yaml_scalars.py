"""YAML scalars as kubectl parses them: go-yaml's rules, then JSON's numbers.

Kubernetes parses YAML 1.1 words (``yes``, ``on``, ``n`` are booleans, also as keys), C-like integers (``0777`` is octal,
``1_000`` is a thousand) and floats such as ``25105916e1``, but leaves dates and sexagesimal numbers as text. The values are
then converted to JSON, so ``1.0`` becomes the integer 1, and a key that is not text becomes text.

Source  go.yaml.in/yaml/v2, resolve.go; sigs.k8s.io/yaml, convertToJSONableObject; strconv.ParseInt and ParseFloat
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeAlias

from moorage.api.quantity import INT64_MAX, INT64_MIN

Scalar: TypeAlias = str | int | float | bool | None

_UINT64_MAX = 2**64 - 1
_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], math.inf),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], -math.inf),
}
_WORD_STARTS = frozenset("yYnNtTfFoO~")
_NUMBER_STARTS = frozenset("+-.0123456789")

_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)")
_BASES = {"0x": 16, "0o": 8, "0b": 2}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: A number that starts with its point has Go's stricter rule for underscores: only between digits.
_POINT_FLOAT = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")
#: go-yaml passes the text after ``0b`` to a parser that accepts a sign.
_SIGNED_BINARY = re.compile(r"0b([-+]?[01]+)")

#: Longer texts are resolved each time instead of cached.
_CACHED_SIZE = 40
_TAG = "tag:yaml.org,2002:"
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(([Tt][0-9:.]+(Z|[-+][0-9]{2}:[0-9]{2}))|( [0-9:.]+))?")


class ScalarError(ValueError):
    """A scalar contradicts its tag, or cannot be converted to JSON."""


def resolve_plain(text: str) -> Scalar:
    """Return the value of an unquoted, untagged scalar."""
    first = text[:1]
    if first in _NUMBER_STARTS:
        return _resolve_number(text) if len(text) <= _CACHED_SIZE else _resolve_number.__wrapped__(text)
    if not first or first in _WORD_STARTS:
        return _WORDS.get(text, text)
    return text


@lru_cache(maxsize=8192)
def _resolve_number(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _float(text, text.replace("_", "")) if _POINT_FLOAT.fullmatch(text) else text
    plain = text.replace("_", "")
    number = _integer(plain)
    if number is not None:
        return number
    if _FLOAT.fullmatch(plain):
        return _float(text, plain)
    if (found := _SIGNED_BINARY.fullmatch(plain)) and INT64_MIN <= (signed := int(found[1], 2)) <= INT64_MAX:
        return signed
    return text


def _integer(plain: str) -> int | None:
    """Parse a C-like integer of at most 64 bits; with a sign, of at most 63."""
    found = _INTEGER.fullmatch(plain)
    if found is None:
        return None
    sign, digits = found[1], found[2]
    if base := _BASES.get(digits[:2].lower()):
        number = int(sign + digits[2:], base)
    elif digits[0] == "0":
        number = int(sign + digits, 8)
    elif len(digits) <= 20:
        number = int(sign + digits)
    else:
        return None
    return number if INT64_MIN <= number <= (INT64_MAX if sign else _UINT64_MAX) else None


def _float(text: str, plain: str) -> Scalar:
    number = float(plain)
    return text if math.isinf(number) else number  # beyond the range of a float it stays text


def resolve_tagged(tag: str, text: str) -> Scalar:
    """Return the value of a scalar with an explicit tag. An unknown tag leaves the text as it is.

    Raises  ScalarError if the text contradicts the tag
    """
    name = tag.removeprefix(_TAG) if tag.startswith(_TAG) else ""
    if name == "binary":
        return _binary(text)
    if name not in {"bool", "int", "float", "null", "timestamp"}:
        return text
    if name == "timestamp":
        if _TIMESTAMP.fullmatch(text):
            return text
        raise ScalarError(f"cannot decode !!{_kind(resolve_plain(text))} `{text}` as a !!timestamp")
    value = resolve_plain(text)
    kind = _kind(value)
    if kind == name:
        return value
    if name == "float" and isinstance(value, int) and kind == "int":
        return float(value)
    raise ScalarError(f"cannot decode !!{kind} `{text}` as a !!{name}")


def _kind(value: Scalar) -> str:
    return "null" if value is None else type(value).__name__


def _binary(text: str) -> str:
    try:
        return base64.b64decode(re.sub(r"[\r\n]", "", text), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise ScalarError("!!binary value contains invalid base64 data") from None


# -- to JSON ------------------------------------------------------------------------------------------------------------


def to_json(value: float) -> int | float:
    """Return a float as JSON returns it: integral values below 1e21 become integers.

    Raises  ScalarError for NaN and infinities
    """
    if not math.isfinite(value):
        raise ScalarError(f"unsupported value: {_infinite(value)}")
    if value.is_integer() and abs(value) < 1e21:
        return int(value) if abs(value) < 2**53 else int(Decimal(repr(value)))
    return value


def _infinite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def key_text(value: Scalar) -> str:
    """Return a mapping key as text, as the conversion to JSON does: ``n:`` is ``"false"``, ``0x10:`` is ``"16"``.

    Raises  ScalarError for null and for integers beyond 63 bits
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        raise ScalarError("unsupported map key: null")
    if isinstance(value, int):
        if value > INT64_MAX:
            raise ScalarError(f"unsupported map key: {value}")
        return str(value)
    return _float_key(value)


def _float_key(value: float) -> str:
    """Print a float as Go's ``FormatFloat(value, 'g', -1, 32)`` does: shortest text that is the same 32-bit float."""
    if math.isnan(value):
        return ".nan"
    (single,) = struct.unpack("f", struct.pack("f", value))  # beyond 32 bits this is infinite
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    digits, exponent = _shortest(single)
    power = int(exponent)
    return format(Decimal(f"{digits}e{power}"), "f") if -4 <= power < 6 else f"{digits}e{power:+03d}"


def _shortest(single: float) -> tuple[str, str]:
    for precision in range(9):
        digits, exponent = f"{single:.{precision}e}".split("e")
        if struct.pack("f", float(f"{digits}e{exponent}")) == struct.pack("f", single):
            break
    return digits, exponent
