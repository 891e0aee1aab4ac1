"""The releases of Kubernetes that can be emulated: one object each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final

from moorage.api.releases.release import ALPHA, BETA, STABLE, Gate, Release
from moorage.api.releases.release_gates import gate_of, gates_of
from moorage.basis import table_of

__all__ = [
    "AFTER_1_36",
    "ALPHA",
    "BETA",
    "CURRENT",
    "EARLIER",
    "LATER",
    "LEGACY",
    "RELEASES",
    "STABLE",
    "TODAY",
    "WHOLE",
    "Gate",
    "Release",
    "find_release",
    "why_unknown",
]  # fmt: skip

#: The release that is emulated by default.
TODAY: Final = "1.37"
#: Fields whose items a row of the table adds to those of the release that it is like.
_ADDED: Final = ("lacks", "lacks_flags", "own_flags")

_ROWS: Final[dict[str, Mapping[str, Any]]] = dict(table_of("moorage.api.releases", "releases.toml"))
_READ_BY_DEFAULT: Final = _ROWS.pop("default")


@cache
def _release(name: str) -> Release:
    """Return the release of a row of ``releases.toml``."""
    row = {**_ROWS[name], **(_READ_BY_DEFAULT if name == TODAY else {})}
    base = _release(row["like"]) if "like" in row else Release(name)
    differing = {field.name: _value(row, field.name, base) for field in fields(base) if field.name in row}
    found = replace(base, **{"name": name, "patch": "", **differing})
    gates = gates_of(found.series)
    deciding = {**gates.deciding, **{gate: gate_of(step) for gate, step in row.get("gates", {}).items()}}
    closed = {gate: False for of in ("1.36", Release(TODAY).series) for gate in gates_of(of).deciding if gate not in deciding}
    return replace(
        found,
        own_flags=found.own_flags - {*row.get("without_own_flags", ())},
        gates=deciding,
        inert_gates=gates.inert,
        dependent_gates=gates.dependent,
        fixed_gates={**closed, **row.get("fixed_gates", {})},
    )


def _value(row: Mapping[str, Any], field: str, base: Release) -> Any:
    given, held = row[field], getattr(base, field)
    if field == "variants":
        ended = {plugin: release for release, plugins in given.items() for plugin in plugins.split()}
        return {plugin: release for plugin, release in {**held, **ended}.items() if release}
    if isinstance(given, dict):
        return {**held, **given}
    if isinstance(given, list):
        return type(held)([*(held if field in _ADDED else ()), *given])
    return given


#: All releases by name, oldest first.
RELEASES: Final[Mapping[str, Release]] = {name: _release(name) for name in reversed(_ROWS)}
CURRENT: Final = RELEASES[TODAY]
_ORDER: Final = tuple(RELEASES.values())
#: The releases with their own plugins, flags and configuration documents, oldest first.
LEGACY: Final = tuple(one for one in _ORDER if one.legacy_flags)
#: The releases before ``CURRENT`` with its flags and configuration documents, newest first.
EARLIER: Final = _ORDER[_ORDER.index(CURRENT) - 1 : len(LEGACY) - 1 : -1]
#: The releases after ``CURRENT``, which only ``--emulate`` selects, oldest first.
LATER: Final = _ORDER[_ORDER.index(CURRENT) + 1 :]

#: The releases after 1.36, whose variants name the release in which a rule begins, oldest first.
AFTER_1_36: Final = _ORDER[_ORDER.index(RELEASES["1.36"]) + 1 :]

#: The releases whose API server and controllers are followed, too, oldest first.
WHOLE: Final = tuple(one for one in _ORDER if one.minor >= RELEASES["1.36"].minor)

#: Version → the listed release with the same scheduler.
_SAME: Final[Mapping[str, str]] = {"1.32.2": "1.32.5", "1.33.0": "1.33.3", "1.36.3": "1.36", "1.37.1": "1.37", "1.37.2": "1.37"}
#: Names of releases that stand for their newest patch release, which ``_SAME`` lists too.
_SERIES: Final = frozenset(one.name for one in RELEASES.values() if one.patch in _SAME)


def find_release(version: str) -> Release | None:
    """Return the release of a version; None if it is not known.

    ``1.34.1`` is that patch release, ``1.34`` the newest patch release of 1.34 that is known, or else a pre-release of it.
    """
    version = version.removeprefix("v")
    name = _SAME.get(version, version)
    if name in RELEASES:
        return RELEASES[name]
    return next((one for one in reversed(tuple(RELEASES.values())) if one.series == version), None)


def why_unknown(version: str) -> str:
    """Return the message for a version that ``find_release`` does not find; it names the nearest known releases."""
    number = _number(version)
    if number is None:
        return f"{version!r} is no release; write {TODAY}, or a patch release such as {EARLIER[2]}"
    known = sorted((_number(name) or (), name) for name in (*RELEASES, *_SAME) if name not in _SERIES)
    older = [name for one, name in known if one < number]
    newer = [name for one, name in known if one >= number]
    nearest = [*older[-1:], *newer[:1]]
    return f"release {version} is not known; the nearest {'is' if len(nearest) == 1 else 'are'} {' and '.join(nearest)}"


def _number(version: str) -> tuple[int, ...] | None:
    parts = version.removeprefix("v").partition("-")[0].split(".")
    return tuple(map(int, parts)) if len(parts) in {2, 3} and all(part.isdecimal() for part in parts) else None
