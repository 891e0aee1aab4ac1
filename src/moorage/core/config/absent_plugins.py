"""Why a release does not have a plugin that a configuration names, and what to write instead.

A plugin of kube-scheduler that ended has a successor, one that a later release added names that release, and a name of no
release is probably a plugin of one's own, whose class ``--plugins`` gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

from moorage.api.releases import RELEASES, Release
from moorage.basis import table_of
from moorage.core.config.release_plugins import POINTS_1_21, POINTS_1_36

_TABLE: Final = table_of("moorage.core.config", "release_plugins.toml")
#: Plugin that kube-scheduler had → what to write instead.
SUCCESSORS: Final[dict[str, str]] = _TABLE["successors"]
#: How alike a name and a known one are at least if one is a mistyped form of the other: a letter or two apart.
_ALIKE: Final = 0.85
_OWN: Final = "is it one of yours? --plugins MODULE:CLASS or FILE.py:CLASS loads it"


def hint(name: str, known: Iterable[str]) -> str:
    """Return what to write for a plugin that the release does not have; ``known`` are those that it has."""
    if name in SUCCESSORS:
        return f"it ended with {_last_with(name)}: {SUCCESSORS[name]}"
    if name in POINTS_1_36:
        return f"it came with {_first_with(name)}, which --emulate {_first_with(name)} runs"
    near = max(known, key=lambda one: _likeness(name, one), default="")
    if near and _likeness(name, near) >= _ALIKE:
        return f"did you mean {json.dumps(near)}?"
    return _OWN


def successor(name: str) -> str:
    """Return what to write instead of a plugin that a version refuses by name, as the end of a sentence, or ""."""
    return f"; {SUCCESSORS[name]}" if name in SUCCESSORS else ""


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.lower()).ratio()


def _has(release: Release, name: str) -> bool:
    if release.legacy_flags:
        return name in POINTS_1_21
    return name in release.removed_plugins or (name in POINTS_1_36 and name not in release.lacks)


def _last_with(name: str) -> str:
    return next((release.series for release in reversed(tuple(RELEASES.values())) if _has(release, name)), "1.18")


def _first_with(name: str) -> str:
    return next(release.series for release in RELEASES.values() if _has(release, name))
