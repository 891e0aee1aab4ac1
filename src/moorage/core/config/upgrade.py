"""The changes for a profile when a later release reads it: rules of its plugins, and new default plugins.

The texts are by the release in which each rule ended; ``docs/reference/releases.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import AFTER_1_36, CURRENT, Release
from moorage.basis import table_of
from moorage.core.config.configuration import PluginRef
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.release_plugins import POINTS_1_21, default_plugins

_FIT: Final = "NodeResourcesFit"
_STRATEGY: Final = "scoringStrategy"
_RATIO: Final = "RequestedToCapacityRatio"

_TABLE: Final = table_of("moorage.core.config", "upgrade.toml")
#: Plugin → the last release with a rule → what the plugin does in later releases.
_CHANGES: Final[Mapping[str, Mapping[str, str]]] = _TABLE["plugins"]
#: A trait of ``Release``, the last release that has it, and what later releases do.
_TRAITS: Final = tuple((trait, *row) for trait, row in _TABLE["traits"].items())
#: Plugin or trait → the last release with a rule → the pull request or the KEP that ended it.
_SOURCES: Final[Mapping[str, Mapping[str, str]]] = _TABLE["sources"]


def changed_rules(profile: ResolvedProfile, release: Release) -> Iterator[str]:
    """Yield what the plugins of a profile do differently in the default release than in ``release``."""
    devices = "DynamicResources"
    if devices in profile.points.get("filter", ()) and devices not in profile.points.get("score", ()):
        yield f"{devices} scores in the default profile of {CURRENT.series}, with weight 2, and not in this profile"
    yield from (f"{name} {text}" for name, _, text in _changed(profile, release, CURRENT))


def rules_between(profile: ResolvedProfile, one: Release, other: Release) -> Iterator[str]:
    """Yield the differences between two releases for the plugins of a profile, each with the last release of the old rule."""
    older, newer = sorted((one, other), key=lambda release: _number(release.name))
    for name, ended, text in _changed(profile, older, newer):
        since = f"after {ended}" if _number(ended) < _number(newer.name) else f"from {newer.name}"
        yield f"{since}, {name} {text}"
    yield from _changed_traits(older, newer)
    if older.preempted_text != newer.preempted_text:
        text = newer.preempted_text.format(uid="UID", key="NAMESPACE/POD", node="NODE")
        yield f"after {'1.23' if '{key}' in older.preempted_text else '1.28'}, the event of an evicted pod is {text!r}"


def change_texts(profile: ResolvedProfile, one: Release, other: Release) -> dict[str, str]:
    """Return what differs between two releases for a profile, in words, by the plugin or the trait of ``Release``."""
    older, newer = sorted((one, other), key=lambda release: _number(release.name))
    found = {trait: text for trait, _, text in _TRAITS if getattr(older, trait) != getattr(newer, trait)}
    for name, _, text in _changed(profile, older, newer):
        found[name] = f"{found[name]}, and {text}" if name in found else f"{name} {text}"
    return found


def all_changes() -> list[tuple[str, str, str, str]]:
    """Return all changes of rules, newest first: the last release with the old rule, the plugin or the trait, text, source."""
    found = [
        (ended, name, text, _SOURCES.get(name, {}).get(ended, ""))
        for name, rows in _CHANGES.items()
        for ended, text in rows.items()
    ]
    found += [(ended, trait, text, _SOURCES.get(trait, {}).get(ended, "")) for trait, ended, text in _TRAITS]
    return sorted(found, key=lambda row: (_number(row[0]), row[1]), reverse=True)


def _changed_traits(older: Release, newer: Release) -> Iterator[str]:
    for trait, ended, text in _TRAITS:
        if getattr(older, trait) == getattr(newer, trait):
            continue
        if getattr(newer, trait) != getattr(CURRENT, trait):  # a patch release of an earlier minor release has the rule already
            yield f"in {older.name} and not in {newer.name}, {text}"
        elif _number(newer.name) <= _number(ended):
            yield f"from {newer.name}, {text}"
        else:
            yield f"after {ended}, {text}"


def _changed(profile: ResolvedProfile, older: Release, newer: Release) -> Iterator[tuple[str, str, str]]:
    """Yield a plugin, the last release with an old rule, and what the plugin does in later releases."""
    running = {name for names in profile.points.values() for name in names}
    is_later = newer in AFTER_1_36
    ended_before = {*older.variants, *(() if older.counts_sidecar_ports else ("NodePorts",))}
    began = set(newer.variants) if is_later else set()
    for name, changes in _CHANGES.items():
        for ended, text in changes.items():
            is_taken_back = ended.count(".") == 2 and not is_later and name not in newer.variants
            is_over = _number(ended) < _number(newer.name) or is_taken_back
            varying = began if _number(ended) >= _LAST_WITHOUT_BEGINNINGS else ended_before
            if name in running & varying and _number(older.name) <= _number(ended) and is_over:
                yield name, ended, text


def _number(version: str) -> tuple[int, ...]:
    """Return the version's numbers, to compare versions; a minor release ranks after all its patch releases."""
    major, minor, *patch = map(int, version.partition("-")[0].split("."))
    return (major, minor, *(patch or [99]))


#: Variants of releases after this one name rules that began.
_LAST_WITHOUT_BEGINNINGS: Final = _number("1.36")


def gained_plugins(gates: FeatureGates) -> list[PluginRef]:
    """Return the plugins of the default profile that the default profile of the gates' release does not run."""
    release = gates.emulated
    before = POINTS_1_21.keys() if release.legacy_flags else {plugin.name for plugin in default_plugins(gates)}
    return [plugin for plugin in default_plugins(FeatureGates()) if plugin.name not in before]


def with_plugin(names: list[str], plugin: str) -> list[str]:
    """Return the plugins of a point with one that the default release runs there: before the next default, or else last."""
    order = [one.name for one in default_plugins(FeatureGates())]
    later = {*order[order.index(plugin) + 1 :]}
    at = next((i for i, name in enumerate(names) if name in later), len(names))
    return [*names[:at], plugin, *names[at:]]


def without_refused(args: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of a profile's plugins without those that the default release refuses, and a note for each."""
    strategy = args.get(_FIT, {}).get(_STRATEGY, {})
    if strategy.get("type") == _RATIO or strategy.get("requestedToCapacityRatio") is None:
        return args, []
    plain = {name: value for name, value in strategy.items() if name != "requestedToCapacityRatio"}
    note = f"{_FIT}: requestedToCapacityRatio has no effect with type {strategy.get('type')}, and {CURRENT.series} refuses it"
    return {**args, _FIT: {**args[_FIT], _STRATEGY: plain}}, [note]
