"""The flags of ``moorage run``, from ``flags.toml``: kube-scheduler's of 1.36, Moorage's own, and those of 1.19 to 1.22.

With ``--emulate``, flags that 1.36 still has are taken with the default of the older release. ``--help`` marks the flags that
are accepted but have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.releases import RELEASES, Release
from moorage.basis import table_of
from moorage.interfaces.cli.pflag import Flag

_TABLE: Final = table_of("moorage.interfaces.cli.live", "flags.toml")
_GONE: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = _TABLE.pop("Gone")
_LEGACY: Final[Mapping[str, Any]] = _TABLE.pop("legacy")
#: Flag → what differs from 1.22 in releases that still have it.
SINCE_1_23: Final[Mapping[str, Mapping[str, Any]]] = _TABLE.pop("since_1_23")


def _flags(sections: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Flag]:
    for section, rows in sections.items():
        for name, row in rows.items():
            fields: dict[str, Any] = {field: tuple(given) if isinstance(given, list) else given for field, given in row.items()}
            fields.pop("idle", None)
            yield Flag(name, section=section, **fields)


FLAGS: Final = tuple(_flags(_TABLE))
_LEADER: Final = "Leader election"
#: Flag → the field of the configuration's leaderElection that it overrides.
LEADER_FIELDS: Final = {
    flag.name: flag.name.removeprefix("leader-elect-").replace("-", "_") for flag in FLAGS if flag.section == _LEADER
}


# -- 1.19 to 1.22 -------------------------------------------------------------------------------------------------------

#: Flags of these releases that 1.36 does not have, and those of them that have no effect here.
GONE: Final = {flag.name: flag for flag in _flags(_GONE)}
IDLE: Final = frozenset(name for rows in _GONE.values() for name, row in rows.items() if row.get("idle"))
_TODAY: Final = {flag.name: flag for flag in FLAGS}
_SECTIONS: Final[Mapping[str, list[str]]] = {**_LEGACY["sections"], "Moorage": [*_TABLE["Moorage"]]}
_NOT_WITH_CONFIG: Final = frozenset(_LEGACY["not_with_config"])


def flags_of(name: str) -> tuple[Flag, ...]:
    """Return the flags of one of the releases 1.19 to 1.22, in the order of help."""
    release = RELEASES[name]
    has = release.own_flags | (_TODAY.keys() - release.lacks_flags)
    return tuple(_flag(flag, section, release) for section, names in _SECTIONS.items() for flag in names if flag in has)


def ignored_with_config(release: Release) -> frozenset[str]:
    """Return the flags that a configuration file overrides. A ``port`` of 0 still takes effect."""
    return _NOT_WITH_CONFIG if release.election_flags_override else _NOT_WITH_CONFIG.union(_SECTIONS[_LEADER])


def _flag(name: str, section: str, release: Release) -> Flag:
    flag = replace(GONE.get(name) or _TODAY[name], section=section)
    texts = _LEGACY["help"] if release.legacy_flags else {**_LEGACY["help"], **_LEGACY["help_1_22"]}
    changed: dict[str, Any] = {"help": texts.get(name, flag.help)}
    if name == "leader-elect-resource-lock":
        changed["default"] = release.default_lock
    elif name == "authorization-always-allow-paths":
        changed["default"] = release.open_paths
    if section == _LEADER and not release.election_flags_override:
        changed["help"] += " Not with --config."
    if name.startswith("lock-object-") and release.election_flags_override:
        changed["sets"] = ""  # --leader-elect-resource-… wins in any order
    return replace(flag, **changed)
