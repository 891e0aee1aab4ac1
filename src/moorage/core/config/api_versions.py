"""The versions of KubeSchedulerConfiguration: the schema and defaults of each, and the release whose plugins run.

=======  ==========  ====================  ===============================================================================
version  read by     rules of              defaults
=======  ==========  ====================  ===============================================================================
v1       1.25-1.37   1.37                  ``multiPoint``
v1beta3  1.23-1.28   1.37                  ``multiPoint``
v1beta2  1.22-1.27   1.37                  each extension point by itself; a default that is enabled again is replaced;
                                           ``multiPoint`` has no effect
v1beta1  1.19-1.22   1.21                  DefaultProvider; a default that is enabled again must be disabled first
=======  ==========  ====================  ===============================================================================

Versions of 1.22 to 1.28 run the plugins of 1.37, since from 1.22 scores have the same form as in 1.37: the version says how a
profile is written and what weight a default has without one; the release says which plugins there are. So kube-scheduler 1.26
to 1.28 added SchedulingGates to the defaults of v1beta3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import Value
from moorage.api.releases import CURRENT, EARLIER, LATER, LEGACY, RELEASES, TODAY, Release
from moorage.core.config import release_plugins
from moorage.core.config.configuration import Configuration, KubeSchedulerProfile, PluginRef, Plugins, PluginSet
from moorage.core.config.decoder import Fields
from moorage.core.config.plugin_sets import ALL_POINTS, Expansion, ReadProfile, appended, expand, overlaid, settled

#: ``expand(profile, gates, catalogue, path)`` returns the plugins of a profile; ``path`` leads to its ``plugins``.
Expand = Callable[[KubeSchedulerProfile, FeatureGates, Mapping[str, tuple[str, ...]], str], Expansion]


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version.

    ``rules``          the release whose plugins and gates run
    ``emulated``       the releases that can be emulated and that read this version
    ``plugin_points``  plugins that may be named without a registered class, and their extension points
    ``idle_points``    plugin → extension points at which it may be listed, and has nothing to do
    ``removed``        plugins rejected by name → the message
    ``checked``        plugins whose arguments are always validated, not only if the plugin runs
    ``sorts``          defaults of QueueSort, into which a profile's own are merged before validation
    ``lacks``          fields of ``Configuration`` and of the structs in it that it does not have
    """

    name: str
    rules: str
    emulated: tuple[str, ...]
    plugin_points: Mapping[str, tuple[str, ...]]
    expand: Expand
    idle_points: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    checked: frozenset[str] = frozenset()
    sorts: tuple[PluginRef, ...] = ()
    lacks: Fields = field(default_factory=dict)

    @property
    def has_multi_point(self) -> bool:
        return self.short in {"v1", "v1beta3"}

    @property
    def is_old(self) -> bool:
        """True if the plugins and validation of an earlier release apply."""
        return RELEASES[self.rules].legacy_flags

    @property
    def read_by(self) -> str:
        """The releases of Kubernetes that read it, in words: ``1.23 to 1.28``."""
        series = [RELEASES[name].series for name in self.emulated]
        return f"{min(series, key=_numbers)} to {max(series, key=_numbers)}"

    @property
    def last_reader(self) -> str:
        """The newest release of Kubernetes that reads it."""
        return self.read_by.rpartition(" ")[2]

    @property
    def short(self) -> str:
        """The version without its group: ``v1beta1``."""
        return self.name.rpartition("/")[2]


def _numbers(series: str) -> tuple[int, ...]:
    return tuple(map(int, series.split(".")))


def _multi_point(defaults: Callable[[FeatureGates], tuple[PluginRef, ...]]) -> Expand:
    def expanded(
        profile: KubeSchedulerProfile, gates: FeatureGates, catalogue: Mapping[str, tuple[str, ...]], path: str
    ) -> Expansion:
        of = ReadProfile(catalogue, path, profile.scheduler_name or "")
        own_first = gates.emulated.runs_own_plugins_first
        return expand(profile.plugins, (*defaults(gates), *_spreading(gates)), of, own_first=own_first)

    return expanded


def _spreading(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the plugin that spreads pods without constraints, while a gate of 1.23 is closed."""
    names = gates.emulated.gates
    return (PluginRef(name="SelectorSpread", weight=1),) if _SPREADS in names and not gates[_SPREADS] else ()


def _by_capacity(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the plugin that scores nodes by their storage, while an alpha gate of releases up to 1.32 is open."""
    names = gates.emulated.gates
    return (PluginRef(name="VolumeBinding", weight=1),) if _SCORES_STORAGE in names and gates[_SCORES_STORAGE] else ()


def _v1beta1(provider: str) -> Expand:
    def expanded(
        profile: KubeSchedulerProfile, gates: FeatureGates, catalogue: Mapping[str, tuple[str, ...]], path: str
    ) -> Expansion:
        defaults = release_plugins.provider(provider, gates)
        sets = appended(defaults, profile.plugins)
        found = settled(sets, profile.plugins, ReadProfile(catalogue, path, profile.scheduler_name or ""))
        if not gates.emulated.legacy_flags:
            found.faults += release_plugins.conflicts(sets["score"], f"{path}.score")
        return found

    return expanded


def _v1beta2(
    profile: KubeSchedulerProfile, gates: FeatureGates, catalogue: Mapping[str, tuple[str, ...]], path: str
) -> Expansion:
    # It reads multiPoint, and leaves it out when it merges the defaults.
    given = structs.replace(profile.plugins, multi_point=PluginSet())
    defaults = _defaults_of_v1beta2(gates, catalogue)
    sets = overlaid(defaults, given)
    of = ReadProfile(catalogue, path, profile.scheduler_name or "")
    found = settled(sets, given, of, weighs_scores_alone=gates.emulated.has_multi_point)
    found.points["preEnqueue"] = tuple(plugin.name for plugin in defaults.get("preEnqueue", ()))
    return found


def _defaults_of_v1beta2(gates: FeatureGates, catalogue: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[PluginRef, ...]]:
    """Return the plugins of each point: those of 1.22, and those that gates, 1.27 or a release that does not read it add."""
    if gates.emulated.name not in V1BETA2.emulated:
        plugins = release_plugins.default_plugins(gates)
        sets = release_plugins.V1BETA2_DEFAULTS
        filters = release_plugins.in_order_of_names(sets["filter"], gates)
        return _with_plugins_of_release({**sets, "filter": filters}, plugins, catalogue)
    defaults, spreading = release_plugins.V1BETA2_DEFAULTS, _spreading(gates)
    added = {
        point: tuple(PluginRef(name=name) for name in names if point in catalogue.get(name, ()))
        for point, names in release_plugins.ADDED_BY_1_27.items()
    }
    *before, affinity = defaults["preFilter"]
    is_gated = "PodSchedulingReadiness" in gates.emulated.gates and gates["PodSchedulingReadiness"]
    return {
        **defaults,
        "preEnqueue": (PluginRef(name="SchedulingGates"),) if is_gated else (),
        "preFilter": (*before, *added["preFilter"], affinity),
        "preScore": (*defaults["preScore"], *added["preScore"], *spreading),
        "score": (*defaults["score"], *_by_capacity(gates), *spreading),
    }


def _with_plugins_of_release(
    defaults: release_plugins.Sets, plugins: tuple[PluginRef, ...], catalogue: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[PluginRef, ...]]:
    """Return the defaults of each point with the plugins that a release runs there, in its order, and none that it lacks.

    A plugin that the defaults do not have runs before the next one that they have, or else last.
    """
    found: dict[str, tuple[PluginRef, ...]] = {}
    for point in ALL_POINTS:
        here = {plugin.name: plugin for plugin in defaults.get(point, ()) if plugin.name in catalogue}
        order, waiting = list(here), list[str]()
        for plugin in plugins:
            if point not in catalogue.get(plugin.name, ()):
                continue
            if plugin.name not in here:
                here[plugin.name] = plugin if point == "score" else PluginRef(name=plugin.name)
                waiting.append(plugin.name)
            else:
                at = order.index(plugin.name)
                order[at:at], waiting = waiting, []
        found[point] = tuple(here[name] for name in (*order, *waiting))
    return found


def _without_devices(gates: FeatureGates) -> tuple[PluginRef, ...]:
    """Return the defaults of v1beta3 in a release that reads it: DynamicResources, behind an alpha gate, joins v1 alone."""
    return tuple(plugin for plugin in release_plugins.default_plugins(gates) if plugin.name != "DynamicResources")


#: While this gate of 1.23 is closed, SelectorSpread spreads pods without constraints.
_SPREADS: Final = "DefaultPodTopologySpread"
#: While this gate is open, VolumeBinding is a default Score plugin of v1beta2; elsewhere ``multiPoint`` makes it one.
_SCORES_STORAGE: Final = "VolumeCapacityPriority"
#: Upstream's message names the core group's version "v1" for removed plugins.
_INVALID: Final = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{release_plugins.V1}")'
_REMOVED: Final = (
    f'was removed in version "{release_plugins.V1BETA2}" (KubeSchedulerConfiguration is version "{release_plugins.V1BETA2}")'
)
_IN_TREE: Final = dict.fromkeys(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"), ("filter",))


#: Version → the release as which a document of it is read, unless another one is emulated.
_READS: Final = {"v1beta3": RELEASES["1.28.8"], "v1beta2": RELEASES["1.27.16"], "v1beta1": RELEASES["1.22.6"]}


def _lacking(version: str, release: Release) -> Fields:
    """Return the fields that a version of the document does not have, as a release reads it.

    Source  kube-scheduler config/v1beta1/types.go (1.21), v1beta2/types.go (1.22), v1beta3/types.go (1.24), v1/types.go (1.25)
    """
    is_v1, adds_points = version == "v1", release.has_pre_enqueue
    document = {
        "healthzBindAddress": version in {"v1beta1", "v1beta2"},
        "metricsBindAddress": version in {"v1beta1", "v1beta2"},
        "delayCacheUntilActive": is_v1 and release.delays_cache,
    }
    points = {
        "preEnqueue": adds_points and version != "v1beta1",
        "multiPoint": version != "v1beta1" and release.has_multi_point,
        "placementGenerate": is_v1 and release.has_placement_points,
        "placementScore": is_v1 and release.has_placement_points,
    }
    profile = {"percentageOfNodesToScore": is_v1 and adds_points}
    known: Mapping[type[Value], Mapping[str, bool]] = {Configuration: document, KubeSchedulerProfile: profile, Plugins: points}
    return {struct: [name for name, is_there in fields.items() if not is_there] for struct, fields in known.items()}


def _idle_points(release: Release) -> dict[str, tuple[str, ...]]:
    return {name: tuple(points.split()) for name, points in release.idle_points.items()}


V1: Final = ApiVersion(
    name=release_plugins.V1,
    rules=TODAY,
    emulated=(*(one.name for one in EARLIER if "v1" in one.documents), TODAY, *(one.name for one in LATER)),
    plugin_points=release_plugins.POINTS_1_36,
    idle_points=_idle_points(CURRENT),
    expand=_multi_point(release_plugins.default_plugins),
    removed=dict.fromkeys(release_plugins.REMOVED_IN_V1, _INVALID),
    checked=release_plugins.CHECKED_WHEN_LOADED,
    lacks=_lacking("v1", CURRENT),
)

V1BETA3: Final = ApiVersion(
    name=release_plugins.V1BETA3,
    rules=TODAY,
    emulated=tuple(one.name for one in EARLIER if "v1beta3" in one.documents),
    plugin_points=release_plugins.POINTS_1_36,
    expand=_multi_point(release_plugins.default_plugins),
    checked=release_plugins.CHECKED_WHEN_LOADED,
    lacks=_lacking("v1beta3", _READS["v1beta3"]),
)

V1BETA2: Final = ApiVersion(
    name=release_plugins.V1BETA2,
    rules=TODAY,
    emulated=tuple(one.name for one in EARLIER if "v1beta2" in one.documents),
    plugin_points=release_plugins.POINTS_1_36,
    expand=_v1beta2,
    removed=dict.fromkeys(release_plugins.REMOVED_IN_V1BETA2, _REMOVED),
    checked=release_plugins.CHECKED_WHEN_LOADED,
    sorts=release_plugins.V1BETA2_DEFAULTS["queueSort"],
    lacks=_lacking("v1beta2", _READS["v1beta2"]),
)

V1BETA1: Final = ApiVersion(
    name=release_plugins.V1BETA1,
    rules="1.21",
    emulated=tuple(one.name for one in (*LEGACY, *EARLIER) if "v1beta1" in one.documents),
    plugin_points=release_plugins.POINTS_1_21,
    expand=_v1beta1(release_plugins.DEFAULT_PROVIDER),
    lacks=_lacking("v1beta1", _READS["v1beta1"]),
)


def v1_of(release: Release) -> ApiVersion:
    """Return v1 as a release reads it: with the plugins and the extension points that it has."""
    if RELEASES[V1.rules] is release:
        return V1
    gone = ("SelectorSpread",) if "SelectorSpread" in release.removed_plugins else ()
    return replace(
        V1,
        lacks=_lacking("v1", release),
        plugin_points=dict(_points_in(release)),
        idle_points=_idle_points(release),
        removed=dict.fromkeys(gone, _INVALID) if release.limits_in_tree_disks else V1.removed,
    )


def version_of(version: ApiVersion, release: Release) -> ApiVersion:
    """Return a version as a release reads it."""
    if version is V1:
        return v1_of(release)
    if release.name not in version.emulated:
        return version
    same, lacks = v1_of(release), _lacking(version.short, release)
    if version is V1BETA3:
        return replace(same, name=version.name, lacks=lacks, removed={}, expand=_multi_point(_without_devices))
    if version is V1BETA1 and not release.legacy_flags:
        points = {**release_plugins.POINTS_1_21, **release_plugins.POINTS_1_22}
        return replace(
            version, plugin_points=points, checked=release_plugins.CHECKED_WHEN_LOADED | release_plugins.CHECKED_IN_V1BETA1
        )
    if version is V1BETA2 and not release.has_multi_point:
        return replace(version, lacks=lacks, plugin_points=release_plugins.POINTS_1_22)
    if version is V1BETA2:
        return replace(version, lacks=lacks, plugin_points=same.plugin_points)
    return version


def _points_in(release: Release) -> Iterator[tuple[str, tuple[str, ...]]]:
    disks = {name: ("preFilter", "filter") for name in _IN_TREE if name in release.removed_plugins}
    for name, points in {**V1.plugin_points, **disks}.items():
        if name not in release.lacks:
            gone, more = release.lacks_points.get(name, "").split(), release.more_points.get(name, "").split()
            yield name, (*(point for point in points if point not in gone), *more)
    if "SelectorSpread" in release.removed_plugins:
        yield "SelectorSpread", release_plugins.POINTS_1_22["SelectorSpread"]


def default_version(release: Release) -> ApiVersion:
    """Return the version whose defaults a release runs without a configuration."""
    return v1_of(release) if release.documents & {"v1", "v1beta3"} else version_of(V1BETA2, release)


def v1beta1_over(provider: str) -> ApiVersion:
    """Return v1beta1 with the plugin sets of an algorithm provider as its defaults."""
    return replace(V1BETA1, expand=_v1beta1(provider))


#: The versions by ``apiVersion``.
API_VERSIONS: Final[Mapping[str, ApiVersion]] = {one.name: one for one in (V1, V1BETA3, V1BETA2, V1BETA1)}
