"""The formats of strings that schemas of custom kinds may demand.

Source  kube-openapi, pkg/validation/strfmt; apiextensions-apiserver, pkg/apiserver/validation/formats.go
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from moorage.api.durations import DurationError, parse_duration

#: Longer strings match no format but ``byte``, ``password`` and ``uri``, which bounds the work of a check.
_MAX_LENGTH: Final = 4096


def checked_format(schema_type: str, name: str) -> str:
    """Return the format that values of a type are checked against; "" for a format that does not apply to the type."""
    return name if is_recognized(schema_type, name) else ""


def is_recognized(schema_type: str, name: str) -> bool:
    """Return True for a format that applies to values of a type."""
    match schema_type:
        case "" | "string":
            return name.replace("-", "") in _FORMATS
        case "integer":
            return name in {"int32", "int64"}
        case "number":
            return name in {"double", "float"}
        case _:
            return False


def is_of_format(name: str, text: str) -> bool:
    """Return True if a string is of a recognized format."""
    plain = name.replace("-", "")
    if len(text) > _MAX_LENGTH and plain not in {"byte", "password", "uri"}:
        return False
    return _FORMATS[plain](text)


def _full(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    matches = re.compile(pattern, re.ASCII | flags).fullmatch
    return lambda text: matches(text) is not None


# -- networks ----------------------------------------------------------------------------------------------------------


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address like Go's sloppy parser, which allows leading zeros; None if it is invalid."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(re.sub(r"\b0+(?=\d)", "", text) if ":" not in text else text)
    except ValueError:
        return None


def _is_cidr(text: str) -> bool:
    address, _, bits = text.partition("/")
    found = _address(address)
    return found is not None and bool(re.fullmatch("[0-9]{1,3}", bits)) and int(bits) <= found.max_prefixlen


_HOST_LABEL: Final = re.compile(r"[^.]{1,63}")


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    if len(text.encode()) > 255 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        return False
    for letter in text:
        if not (letter in "-." or (letter.isascii() and letter.isalnum()) or unicodedata.category(letter)[0] in "LS"):
            return False
    if any(label.startswith("-") or label.endswith("-") for label in labels):
        return False
    return len(labels) == 1 or (len(labels[-1]) >= 2 and all(letter.isalpha() for letter in labels[-1]))


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NOT_IN_URI: Final = re.compile(r"[\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})")


def _is_uri(text: str) -> bool:
    if not text or _NOT_IN_URI.search(text):
        return False
    if text.startswith("/"):
        return True
    scheme = _SCHEME.match(text)
    if scheme is None:
        return False
    rest = text[scheme.end() :]
    host = re.split("[/?#]", rest[2:], maxsplit=1)[0] if rest.startswith("//") else ""
    return not re.search(r'[ <>"{}|\\^`]', host)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((i + 1) * (10 if letter == "X" else int(letter)) for i, letter in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(digit) * (3 if i % 2 else 1) for i, digit in enumerate(digits)) % 10 == 0


_CARD: Final = _full(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
    r"|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}|6[27][0-9]{14}"
)


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD(digits):
        return False
    doubled = [int(digit) * (1 + i % 2) for i, digit in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0


# -- times -------------------------------------------------------------------------------------------------------------


def _is_date(text: str) -> bool:
    try:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def _is_date_time(text: str) -> bool:
    day, separator, time = text.lower().partition("t")
    return bool(separator) and _is_date(day) and _TIME.fullmatch(time) is not None


_AMOUNT: Final = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_UNITS: Final = (
    ("ns", "nano"), ("us", "µs", "micro"), ("ms", "milli"), ("s", "sec"), ("m", "min"), ("h", "hr", "hour"), ("d", "day"),
    ("w", "wk", "week"),
)  # fmt: skip


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except (DurationError, ValueError):
        units = [unit.lower() for _, unit in _AMOUNT.findall(text)]
        return any(unit in names or unit.startswith(names[-1]) for unit in units for names in _UNITS)
    return True


_HEX: Final = "[0-9a-f]"
_TAIL: Final = f"{_HEX}{{3}}-?{_HEX}{{12}}"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_BYTE: Final = r"(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])"
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SHORT: Final = _full(_LABEL)
_LONG: Final = _full(rf"{_LABEL}(?:\.{_LABEL})*+")

#: Formats by name without dashes.
_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "bsonobjectid": _full(r"[0-9a-fA-F]{24}"),
    "byte": _full(_BASE64),
    "cidr": _is_cidr,
    "creditcard": _is_credit_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": _full(r'(?:[^<>@]*<)?(?:"[^"]+"|[^\s@<>",]+)@[^\s@<>",]+>?'),
    "hexcolor": _full(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": lambda text: "." in text and _address(text) is not None,
    "ipv6": lambda text: ":" in text and _address(text) is not None,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": lambda text: len(text) <= 253 and _LONG(text),
    "k8sshortname": lambda text: len(text) <= 63 and _SHORT(text),
    "mac": _full(
        r"(?:[0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\1){4}(?:(?:[0-9a-fA-F]{2}\1){2}|(?:[0-9a-fA-F]{2}\1){14})?[0-9a-fA-F]{2}"
        r"|(?:[0-9a-fA-F]{4}\.){2}(?:(?:[0-9a-fA-F]{4}\.)|(?:[0-9a-fA-F]{4}\.){7})?[0-9a-fA-F]{4}"
    ),
    "password": lambda _: True,
    "rgbcolor": _full(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "ssn": _full(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _is_uri,
    "uuid": _full(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}", re.IGNORECASE),
    "uuid3": _full(f"{_HEX}{{8}}-?{_HEX}{{4}}-?3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}", re.IGNORECASE),
    "uuid4": _full(f"{_HEX}{{8}}-?{_HEX}{{4}}-?4{_HEX}{{3}}-?[89ab]{_TAIL}", re.IGNORECASE),
    "uuid5": _full(f"{_HEX}{{8}}-?{_HEX}{{4}}-?5{_HEX}{{3}}-?[89ab]{_TAIL}", re.IGNORECASE),
}
