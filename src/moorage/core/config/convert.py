"""Convert an old configuration to v1, with notes on everything that has no equivalent.

Most plugins that 1.37 lacks map to arguments of others: resource scoring plugins become a strategy of NodeResourcesFit,
required labels become affinity added by NodeAffinity, and limits on in-tree disks become NodeVolumeLimits on CSI volumes.
Avoidance annotations, ServiceAffinity and preferred labels have no equivalent. Notes also name plugins that keep their name but
score differently.

Source  kube-scheduler 1.22, apis/config/v1beta2; Kubernetes documentation, scheduler configuration
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import CURRENT
from moorage.basis import table_of
from moorage.core.config.api_versions import V1
from moorage.core.config.configuration import Configuration, Plugins
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.release_plugins import REMOVED_IN_V1
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.show import as_document
from moorage.core.config.upgrade import changed_rules, gained_plugins, with_plugin, without_refused
from moorage.framework.points import POINTS
from moorage.framework.registry import Registry

_FIT: Final = "NodeResourcesFit"
_AFFINITY: Final = "NodeAffinity"
_TABLE: Final = table_of("moorage.core.config", "upgrade.toml")["removed"]
#: Score plugin → the strategy of NodeResourcesFit that replaces it.
_STRATEGIES: Final[Mapping[str, str]] = _TABLE["strategies"]
#: Plugins without an equivalent → the nearest alternative.
_NOTHING: Final[Mapping[str, str]] = _TABLE["alternatives"]
#: Plugins of 1.21 that keep their name → what they do today.
_SAME_NAME: Final[Mapping[str, str]] = _TABLE["scores"]


@dataclass(slots=True)
class Converted:
    """The document, and ``notes`` on what it drops or changes."""

    document: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def convert(loaded: Loaded, today: Registry) -> Converted:
    """Return a loaded configuration as a v1 document. ``today`` are the plugins of 1.37."""
    notes = [f"{name} has no equivalent; {text}" for name, text in loaded.unused.items()]
    profiles = []
    for i, (profile, given) in enumerate(zip(loaded.profiles, loaded.configuration.profiles, strict=True)):
        one = _Profile(profile, today, loaded.version.plugin_points)
        profiles.append(one.converted())
        profiles[i], gained = _with_gained(profiles[i], given.plugins, loaded.gates)
        one.notes += gained
        notes += [f"profiles[{i}]: {note}" for note in one.notes]
        notes += [f"profiles[{i}]: {note}" for note in _changed(profile, loaded.gates)]
    configuration, lease_notes = _with_leases(loaded.configuration)
    return Converted(as_document(configuration, profiles, V1), [*lease_notes, *notes])


def _with_leases(given: Configuration) -> tuple[Configuration, list[str]]:
    """Return the configuration with a Lease as resource lock, and a note for replicas that still use another lock."""
    election = given.leader_election
    lock = election.resource_lock
    if lock == "leases":
        return given, []
    seen = "replicas that hold both see it" if lock.endswith("leases") else "stop the others first, as they do not see it"
    leases = structs.replace(election, resource_lock="leases")
    return structs.replace(given, leader_election=leases), [f"leaderElection.resourceLock: {lock} is leases now; {seen}"]


def _changed(profile: ResolvedProfile, gates: FeatureGates) -> Iterator[str]:
    if gates.emulated is CURRENT:
        return
    if not gates.emulated.legacy_flags:
        yield from changed_rules(profile, gates.emulated)
        return
    for name in profile.points.get("score", ()):
        if name in _SAME_NAME:
            yield f"{name} scores otherwise today: it {_SAME_NAME[name]}"


def _with_gained(profile: ResolvedProfile, given: Plugins, gates: FeatureGates) -> tuple[ResolvedProfile, list[str]]:
    """Return the profile with the default plugins that its release does not have, and a note for each.

    They decide on what objects of that release do not have: scheduling gates, resource claims. A point at which the profile
    disables all defaults does without.
    """
    if gates.emulated is CURRENT:
        return profile, []
    points, weights = {point: list(names) for point, names in profile.points.items()}, dict(profile.weights)
    notes = []
    for plugin in gained_plugins(gates):
        name = plugin.name
        if any(name in names for names in points.values()):
            continue
        here = [point for point in V1.plugin_points[name] if not _is_disabled(name, point, given)]
        for point in here:
            points[point] = with_plugin(points.get(point, []), name)
        if "score" in here:
            weights[name] = plugin.weight or 1
        added = "is added" if here else "does not run in this profile, which disables it"
        notes.append(
            f"{name} is a default plugin of {CURRENT.series}, which {gates.emulated.series} does not have, and {added}"
        )
    in_order = {point: tuple(points[point]) for point in POINTS if points.get(point)}
    return replace(profile, points=in_order, weights=weights), notes


def _is_disabled(name: str, point: str, given: Plugins) -> bool:
    return not given.multi_point.disabled_names.isdisjoint({"*", name}) or not given.at(point).disabled_names.isdisjoint(
        {"*", name}
    )


class _Profile:
    """The conversion of one profile to v1."""

    def __init__(self, profile: ResolvedProfile, today: Registry, known: Mapping[str, tuple[str, ...]]) -> None:
        self._given = profile
        self._today = today
        #: Plugin → the points at which it runs in the release that the profile is of.
        self._known = known
        self.notes: list[str] = []
        self._points = {point: list(names) for point, names in profile.points.items()}
        self._weights = dict(profile.weights)
        self._args, refused = without_refused({name: _plain(args) for name, args in profile.args.items()})
        self.notes += refused

    def converted(self) -> ResolvedProfile:
        self._scores_by_resources()
        self._labels()
        self._removed()
        if self._given.run_all_filters:
            self.notes.append(
                "alwaysCheckAllPredicates has no equivalent: only the first plugin that refuses a node is reported"
            )
        self._prepare()
        points = {point: tuple(names) for point, names in self._points.items() if names}
        running = {name for names in points.values() for name in names}
        return replace(
            self._given,
            points=points,
            weights={name: self._weights[name] for name in points.get("score", ())},
            args={name: self._typed(name, args) for name, args in self._args.items() if name in running},
            missing=(),
            run_all_filters=False,
        )

    def _typed(self, name: str, args: Any) -> Any:
        """Return arguments as the 1.37 plugin's type."""
        args_type = self._today.args_type(name)
        return args if args_type is None or not isinstance(args, dict) else msgspec.convert(args, args_type)

    # -- plugins that map to others -----------------------------------------------------------------------------------

    def _scores_by_resources(self) -> None:
        """Turn the first resource scorer into NodeResourcesFit's only strategy, unless NodeResourcesFit scores itself."""
        scorers = [name for name in self._points.get("score", ()) if name in _STRATEGIES or name == _FIT]
        name = _FIT if _FIT in scorers else next(iter(scorers), "")
        for other in scorers:
            if other != name:
                self.notes.append(f"{other} has no equivalent beside {name}: {_FIT} scores by one strategy")
                self._drop(other)
        if name not in _STRATEGIES:
            return
        given = self._args.pop(name, {})
        strategy: dict[str, Any] = {"type": _STRATEGIES[name], "resources": given.get("resources", [])}
        if name == "RequestedToCapacityRatio":
            strategy["requestedToCapacityRatio"] = {"shape": given.get("shape", [])}
        self._args[_FIT] = {**self._args.get(_FIT, {}), "scoringStrategy": strategy}
        self._points["score"][self._points["score"].index(name)] = _FIT
        self._weights[_FIT] = self._weights.pop(name)
        self.notes.append(f"{name} is the scoring strategy {strategy['type']} of {_FIT} now, which leaves out what nodes lack")

    def _labels(self) -> None:
        """Turn the labels that NodeLabel requires into node affinity of every pod."""
        args = self._args.pop("NodeLabel", {})
        preferred = [*args.get("presentLabelsPreference", ()), *args.get("absentLabelsPreference", ())]
        if "NodeLabel" in self._points.get("score", ()) and preferred:
            self.notes.append(f"NodeLabel's preferences ({', '.join(preferred)}) have no equivalent: add node affinity to pods")
        required = [
            *({"key": key, "operator": "Exists"} for key in args.get("presentLabels", ())),
            *({"key": key, "operator": "DoesNotExist"} for key in args.get("absentLabels", ())),
        ]
        if "NodeLabel" in self._points.get("filter", ()) and required:
            self._add_affinity(required)
            self.notes.append(f"NodeLabel's required labels are affinity that {_AFFINITY} adds to every pod now")
        self._drop("NodeLabel")

    def _add_affinity(self, asked: Sequence[Mapping[str, Any]]) -> None:
        args = self._args.setdefault(_AFFINITY, {})
        added = args["addedAffinity"] = {**(args.get("addedAffinity") or {})}
        before = added.get("requiredDuringSchedulingIgnoredDuringExecution") or {"nodeSelectorTerms": [{}]}
        terms = [
            {**term, "matchExpressions": [*term.get("matchExpressions", ()), *asked]} for term in before["nodeSelectorTerms"]
        ]
        added["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        for point in ("preFilter", "filter"):
            names = self._points.setdefault(point, [])
            if _AFFINITY not in names:
                names.append(_AFFINITY)

    def _removed(self) -> None:
        for name, near in _NOTHING.items():
            if any(name in names for names in self._points.values()):
                weight = f" (weight {self._weights[name]})" if name in self._weights else ""
                self.notes.append(f"{name}{weight} has no equivalent; {near}")
                self._drop(name)
                if name == "SelectorSpread":
                    self._spread_by_default()
        disks = [name for name in REMOVED_IN_V1 if name in self._points.get("filter", ())]
        for name in disks:
            self._drop(name)
        if disks:
            self.notes.append(f"{', '.join(disks)}: such disks are CSI volumes now, which NodeVolumeLimits counts")
            if "NodeVolumeLimits" not in self._points["filter"]:
                self._points["filter"].append("NodeVolumeLimits")

    def _spread_by_default(self) -> None:
        """Let PodTopologySpread use system defaults, if it scores and has no default constraints."""
        args = self._args.get("PodTopologySpread", {})
        if "PodTopologySpread" in self._points.get("score", ()) and not args.get("defaultConstraints"):
            self._args["PodTopologySpread"] = {**args, "defaultingType": "System"}

    def _drop(self, name: str) -> None:
        for names in self._points.values():
            while name in names:
                names.remove(name)
        self._weights.pop(name, None)
        self._args.pop(name, None)

    def _prepare(self) -> None:
        """Add plugins to the points at which they run today before another, and did not in the profile's release."""
        for point, before in (("filter", "preFilter"), ("score", "preScore"), ("postFilter", "preEnqueue")):
            there = self._points.setdefault(before, [])
            for name in self._points.get(point, ()):
                is_new = before in V1.plugin_points.get(name, ()) and before not in self._known.get(name, ())
                if is_new and name not in there:
                    there.append(name)


def _plain(args: object) -> Any:
    """Return arguments as plain data; other values unchanged."""
    if not isinstance(args, msgspec.Struct):
        return args
    return {name: value for name, value in msgspec.to_builtins(args).items() if value is not None}
