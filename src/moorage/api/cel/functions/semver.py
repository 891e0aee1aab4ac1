"""Semantic versions: parsed strictly or leniently, and compared as semver.org specifies; build metadata does not count.

Source  github.com/blang/semver/v4; apiserver/pkg/cel/library/semverlib.go, normalizeAndParse
"""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]*")
_WORD = re.compile(r"[0-9A-Za-z-]*")


class SemverError(ValueError):
    """A text is not a semantic version."""


#: One part of a pre-release, by which numbers compare by value and precede words.
_Identifier = tuple[int, int, str]


class Semver:
    """A semantic version. ``text`` is its source."""

    __slots__ = ("_key", "major", "minor", "patch", "text")

    def __init__(self, text: str, numbers: tuple[int, int, int], prerelease: list[_Identifier]) -> None:
        self.text = text
        self.major, self.minor, self.patch = numbers
        # A version without a pre-release follows all versions with one.
        self._key = (numbers, not prerelease, prerelease)

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1."""
        return (self._key > other._key) - (self._key < other._key)

    def __str__(self) -> str:
        return self.text


def parse_semver(text: str, *, normalize: bool = False) -> Semver:
    """Parse ``major.minor.patch[-prerelease][+build]``; ``normalize`` accepts a ``v``, missing parts and leading zeros.

    Raises  SemverError with kube-scheduler's text
    """
    if normalize:
        text = _normalized(text)
    if not text:
        raise SemverError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise SemverError("No Major.Minor.Patch elements found")
    patch, _, build = parts[2].partition("+")
    has_build = "+" in parts[2]
    patch, dash, prerelease = patch.partition("-")
    numbers = (_number("major", parts[0]), _number("minor", parts[1]), _number("patch", patch))
    identifiers = [_identifier(part) for part in prerelease.split(".")] if dash else []
    for part in build.split(".") if has_build else ():
        if not part:
            raise SemverError("Build meta data is empty")
        if not _WORD.fullmatch(part):
            raise SemverError(f"Invalid character(s) found in build meta data {_quoted(part)}")
    return Semver(text, numbers, identifiers)


def _identifier(text: str) -> _Identifier:
    if not text:
        raise SemverError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise SemverError(f"Numeric PreRelease version must not contain leading zeroes {_quoted(text)}")
        return 0, _uint64(text), ""
    if _WORD.fullmatch(text):
        return 1, 0, text
    raise SemverError(f"Invalid character(s) found in prerelease {_quoted(text)}")


def _number(which: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise SemverError(f"Invalid character(s) found in {which} number {_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise SemverError(f"{which.title()} number must not contain leading zeroes {_quoted(text)}")
    return _uint64(text)


def _uint64(text: str) -> int:
    if not text:
        raise SemverError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) >= 2**64:
        raise SemverError(f"strconv.ParseUint: parsing {_quoted(text)}: value out of range")
    return int(text)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[at] = stripped if stripped[:1] in set("0123456789") else f"0{stripped}"
    if len(parts) < 3 and set(parts[-1]) & set("+-"):
        raise SemverError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, *["0"] * (3 - len(parts))])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
