"""Resolve a profile's plugin sets: merge them into the defaults, then expand ``multiPoint`` over the extension points.

The order at a point is: plugins that both the point and ``multiPoint`` enable (the point's entry replaces the other), then
plugins of ``multiPoint`` alone, then the other plugins that the point enables.

Source  kube-scheduler 1.36.2, apis/config/v1/default_plugins.go, mergePluginSet; framework/runtime/framework.go,
        updatePluginList, expandMultiPointPlugins and getValidScoreWeights
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moorage.api.quantity import INT64_MAX, INT64_MIN
from moorage.core.config.absent_plugins import hint
from moorage.core.config.configuration import PluginRef, Plugins, PluginSet
from moorage.core.config.release_plugins import POINTS, Sets
from moorage.errors import Fault

#: Every extension point that a profile may configure, in the order kube-scheduler visits them.
ALL_POINTS: Final = (
    "preFilter", "filter", "postFilter", "reserve", "preScore", "score", "preBind", "bind", "postBind", "permit", "preEnqueue",
    "queueSort", "placementGenerate", "placementScore",
)  # fmt: skip
_MAX_SCORE: Final = 100


def merge(defaults: PluginSet, given: PluginSet) -> PluginSet:
    """Merge a point's set into the defaults of that point.

    A default that is enabled again keeps its place and takes the new weight; a disabled one is removed; other enabled plugins
    follow. A plugin named twice is kept twice, and reported later.
    """
    disabled = (*given.disabled, *defaults.disabled)
    gone = {plugin.name for plugin in disabled}
    latest = {plugin.name: i for i, plugin in enumerate(given.enabled)}
    replacing: set[int] = set()
    enabled: list[PluginRef] = []
    for plugin in () if "*" in gone else defaults.enabled:
        if plugin.name in gone:
            continue
        at = latest.get(plugin.name)
        if at is None:
            enabled.append(plugin)
        else:
            enabled.append(given.enabled[at])
            replacing.add(at)
    enabled += [plugin for i, plugin in enumerate(given.enabled) if i not in replacing]
    return PluginSet(enabled=tuple(enabled), disabled=disabled)


@dataclass(slots=True)
class Expansion:
    """The plugins of each point, the weights of the Score plugins, and the faults."""

    points: dict[str, tuple[str, ...]] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    placement_weights: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


class ReadProfile(NamedTuple):
    """What the plugin sets of a profile are read with.

    ``catalogue``       plugin → the points it implements
    ``path``            leads to the profile's ``plugins``, for the paths of faults
    ``scheduler_name``  the profile's
    """

    catalogue: Mapping[str, tuple[str, ...]]
    path: str
    scheduler_name: str


def expand(given: Plugins, defaults: tuple[PluginRef, ...], of: ReadProfile, *, own_first: bool = False) -> Expansion:
    """Resolve the plugin sets of one profile.

    ``own_first``: plugins that a point enables run before all of ``multiPoint``, as up to 1.23
    """
    catalogue, path, scheduler_name = of
    multi_point = merge(PluginSet(enabled=defaults), given.multi_point)
    found = Expansion()
    found.faults += _unknown_in_multi_point(given, multi_point, catalogue, path)
    for point in ALL_POINTS:
        here = given.at(point)
        found.faults += faults_at(point, here, catalogue, f"{path}.{point}")
        spread = _spread(point, here, multi_point, catalogue)
        found.faults += _repeats(spread, f"{path}.multiPoint", point, given.multi_point)
        found.points[point] = _in_order(here, spread, {plugin.name for plugin in multi_point.enabled}, own_first=own_first)
    found.faults += faults_of_the_whole(found.points, path, scheduler_name)
    for point in ("score", "placementScore"):
        weights, overflows = weights_of((*given.at(point).enabled, *multi_point.enabled), point, catalogue)
        if overflows:
            found.faults.append(overflow(weights, point, path))
        of_plugins = {name: weights[name] for name in found.points[point] if name in weights}
        if point == "score":
            found.weights = of_plugins
        else:
            found.placement_weights = of_plugins
    found.faults = list({fault.field: fault for fault in reversed(found.faults)}.values())[::-1]  # the first of each place
    return found


def _spread(point: str, here: PluginSet, multi_point: PluginSet, catalogue: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the plugins that run at a point only because ``multiPoint`` enables them."""
    gone = here.disabled_names
    if "*" in gone:
        return ()
    own = {plugin.name for plugin in here.enabled}
    reaching = (plugin.name for plugin in multi_point.enabled if point in catalogue.get(plugin.name, ()))
    return tuple(name for name in reaching if name not in gone and name not in own)


def _in_order(here: PluginSet, spread: tuple[str, ...], in_multi_point: set[str], *, own_first: bool) -> tuple[str, ...]:
    own = tuple(dict.fromkeys(plugin.name for plugin in here.enabled))
    if own_first:
        return tuple(dict.fromkeys((*own, *spread)))
    gone = here.disabled_names
    overrides = () if "*" in gone else tuple(name for name in own if name in in_multi_point and name not in gone)
    return tuple(dict.fromkeys((*overrides, *spread, *own)))


def weights_of(
    plugins: Iterable[PluginRef], point: str, catalogue: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, int], bool]:
    """Return each plugin's weight, from its first entry, and whether their sum overflows 64 bits.

    The sum wraps as Go's does, so a negative weight with others after it is reported as an overflow.
    """
    weights: dict[str, int] = {}
    total = 0
    for plugin in plugins:
        if plugin.name in weights or point not in catalogue.get(plugin.name, ()):
            continue
        weights[plugin.name] = plugin.weight or 1
        share = weights[plugin.name] * _MAX_SCORE
        if share > _wrapped(INT64_MAX - total):
            return weights, True
        total = _wrapped(total + share)
    return weights, False


def _wrapped(number: int) -> int:
    return (number - INT64_MIN) % 2**64 + INT64_MIN


# -- v1beta1 and v1beta2 ------------------------------------------------------------------------------------------------
# Plugin sets without ``multiPoint``: each extension point on its own.
#
# Plugins that a profile enables come after the defaults that it keeps. In v1beta1 a default that is enabled again without being
# disabled appears twice, which is a fault; in v1beta2 it keeps its place and takes the new weight.
#
# Source  kube-scheduler 1.21, apis/config/types.go, mergePluginSets; framework/runtime/framework.go, NewFramework; 1.22,
#         apis/config/v1beta2/default_plugins.go, mergePluginSet


def appended(defaults: Sets, given: Plugins) -> dict[str, PluginSet]:
    """Merge a profile's sets into the defaults as v1beta1 does."""
    return {point: PluginSet(enabled=_behind(defaults.get(point, ()), given.at(point))) for point in POINTS}


def _behind(defaults: tuple[PluginRef, ...], given: PluginSet) -> tuple[PluginRef, ...]:
    gone = given.disabled_names
    left = () if "*" in gone else tuple(plugin for plugin in defaults if plugin.name not in gone)
    return (*left, *given.enabled)


def overlaid(defaults: Sets, given: Plugins) -> dict[str, PluginSet]:
    """Merge a profile's sets into the defaults as v1beta2 does."""
    return {point: merge(PluginSet(enabled=defaults.get(point, ())), given.at(point)) for point in POINTS}


def settled(sets: Mapping[str, PluginSet], given: Plugins, of: ReadProfile, *, weighs_scores_alone: bool = False) -> Expansion:
    """Return the plugins of each point, and the faults.

    ``given`` are the profile's own sets, for the paths of faults; ``weighs_scores_alone``: weights at other points than Score
    do not count, as from 1.23
    """
    catalogue, path, scheduler_name = of
    found = Expansion(points=dict.fromkeys(ALL_POINTS, ()))
    for point in POINTS:
        names = [plugin.name for plugin in sets[point].enabled]
        found.points[point] = tuple(dict.fromkeys(names))
        found.faults += faults_at(point, given.at(point), catalogue, f"{path}.{point}")
        if not any(fault.field.startswith(f"{path}.{point}.") for fault in found.faults):
            found.faults += _enabled_again(point, names, given.at(point), f"{path}.{point}")
    if weighs_scores_alone:
        found.weights, overflows = weights_of(sets["score"].enabled, "score", catalogue)
        found.faults += [overflow(found.weights, "score", path)] if overflows else []
    else:
        found.weights = {name: weight for name, weight in _weights(sets).items() if name in found.points["score"]}
        found.faults += _overflows(_weights(sets), given, path)
    found.faults += faults_of_the_whole(found.points, path, scheduler_name, "one queue sort plugin")
    return found


def _enabled_again(point: str, names: list[str], given: PluginSet, path: str) -> Iterator[Fault]:
    """Yield a fault for each default that is enabled again."""
    for i, plugin in enumerate(given.enabled):
        if names.count(plugin.name) > 1:
            text = (
                f"plugin {quoted(plugin.name)} already registered as {quoted(interface(point))}; disable it to enable it again"
            )
            yield Fault("Duplicate value", f"{path}.enabled[{i}]", text, plugin.name)


def _weights(sets: Mapping[str, PluginSet]) -> dict[str, int]:
    """Return the weight of every plugin, taken from the last point that names it; 1 if there is none."""
    return {plugin.name: plugin.weight or 1 for point in POINTS for plugin in sets[point].enabled}


def _overflows(weights: Mapping[str, int], given: Plugins, path: str) -> Iterator[Fault]:
    """Yield faults for weights whose sum exceeds 64 bits, and for negative ones, which kube-scheduler reports as overflows."""
    text = "total score of Score plugins could overflow; weights are positive"
    below = {name: weight for name, weight in weights.items() if weight < 0}
    if not below and sum(weights.values()) * _MAX_SCORE < 2**63:
        return
    places = [i for i, plugin in enumerate(given.score.enabled) if (plugin.weight or 0) < 0]
    where = f"{path}.score.enabled[{places[0]}].weight" if places else f"{path}.score"
    yield Fault("Invalid value", where, text, next(iter(below.values()), None))


# -- faults -------------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a text as Go's ``%q`` writes it."""
    return json.dumps(text, ensure_ascii=False)


def interface(point: str) -> str:
    """Return an extension point's name in kube-scheduler's messages: ``preFilter`` is ``PreFilterPlugin``."""
    return f"{point[0].upper()}{point[1:]}Plugin"


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return kube-scheduler's message for an unknown plugin, and what to write instead.

    ``kind``: the interface of its point. Of ``multiPoint``, kube-scheduler names the first one that it visits; which of them
    the plugin has is not known.
    """
    return f"{kind} {quoted(name)} does not exist; {hint(name, known)}"


def faults_at(point: str, here: PluginSet, catalogue: Mapping[str, tuple[str, ...]], path: str) -> Iterator[Fault]:
    """Yield the faults of the plugins that one point enables, each on its own."""
    seen: set[str] = set()
    for i, plugin in enumerate(here.enabled):
        at, name = f"{path}.enabled[{i}]", plugin.name
        if name not in catalogue:
            yield Fault("Not found", at, _unknown(interface(point), name, catalogue), name)
        elif point not in catalogue[name]:
            text = f"plugin {quoted(name)} does not extend {interface(point)} plugin; it runs at {', '.join(catalogue[name])}"
            yield Fault("Invalid value", at, text, name)
        elif name in seen:
            yield Fault("Duplicate value", at, f"plugin {quoted(name)} already registered as {quoted(interface(point))}", name)
        seen.add(name)


def overflow(weights: Mapping[str, int], point: str, path: str) -> Fault:
    """Return the fault of weights whose sum overflows; ``path`` leads to ``plugins``."""
    kind = "score" if point == "score" else "placement score"
    text = f"{kind} plugins: total score of Score plugins could overflow; weights are positive"
    return Fault("Invalid value", f"{path}.{point}", text, {name: weight for name, weight in weights.items() if weight < 0})


def _unknown_in_multi_point(
    given: Plugins, merged: PluginSet, catalogue: Mapping[str, tuple[str, ...]], path: str
) -> Iterator[Fault]:
    visited = next((point for point in ALL_POINTS if "*" not in given.at(point).disabled_names), None)
    for name in dict.fromkeys(plugin.name for plugin in merged.enabled):
        if name not in catalogue and visited is not None:
            at = _place_in(given.multi_point, name, f"{path}.multiPoint")
            yield Fault("Not found", at, _unknown("plugin", name, catalogue), name)


def _repeats(spread: tuple[str, ...], path: str, point: str, given: PluginSet) -> Iterator[Fault]:
    seen: set[str] = set()
    for name in spread:
        if name in seen:
            text = f"plugin {quoted(name)} already registered as {quoted(interface(point))}"
            yield Fault("Duplicate value", _place_in(given, name, path), text, name)
        seen.add(name)


def _place_in(given: PluginSet, name: str, path: str) -> str:
    """Return the path of the last entry of that name, or of the set if only the defaults have it."""
    places = [i for i, plugin in enumerate(given.enabled) if plugin.name == name]
    return f"{path}.enabled[{places[-1]}]" if places else path


def faults_of_the_whole(
    points: Mapping[str, tuple[str, ...]], path: str, scheduler_name: str, needed: str = "only one queue sort plugin"
) -> Iterator[Fault]:
    """Yield faults of a profile that lacks a plugin or has too many; ``needed``: what QueueSort must have, in words."""
    profile = f"profile with scheduler name {quoted(scheduler_name)}"
    sorts = points["queueSort"]
    if len(sorts) != 1:
        text = f"{needed} required for {profile}, but got {len(sorts)}"
        yield Fault("Invalid value", f"{path}.queueSort", text, list(sorts))
    if not points["bind"]:
        yield Fault("Required value", f"{path}.bind", f"at least one bind plugin is needed for {profile}")
    if len(points["placementGenerate"]) > 1:
        text = f"at most one placement generate plugin is allowed for {profile}"
        yield Fault("Too many", f"{path}.placementGenerate", text, list(points["placementGenerate"]))
