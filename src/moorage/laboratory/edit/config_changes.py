"""Changes of the configuration: a plugin disabled, an argument of a plugin, or one more profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace as with_fields
from typing import Any, Final

import msgspec

from moorage.basis.printable import close_to, one_line
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.scheduler_document import Loaded
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.framework.profile import Profile, attach, make_profile
from moorage.framework.registry import Handle

#: Points that a profile cannot do without.
_NEEDED: Final = frozenset(["queueSort", "bind"])
#: A step of a path: ``defaultConstraints`` or ``defaultConstraints[0]``.
_STEP: Final = re.compile(r"([A-Za-z]+)((?:\[\d+\])*)")


def reconfigure(loaded: Loaded, change: Change) -> Loaded:
    """Return a changed configuration. A plugin is disabled at all extension points of a profile that can do without it.

    Raises  InputError if no such profile runs the plugin, or the plugin has no such argument
    """
    if change.verb == "profile":
        return with_fields(loaded, profiles=(*loaded.profiles, with_fields(loaded.profiles[0], scheduler_name=str(change.new))))
    name, _, plugin = change.target.removeprefix("config/").rpartition("/")
    names = [one.scheduler_name for one in loaded.profiles]
    if change.verb not in {"disable-plugin", "plugin-argument"} or name not in names:
        raise InputError(one_line(f"{change.target}: write config/PROFILE/PLUGIN; profiles: {', '.join(names)}"))
    return with_fields(
        loaded,
        profiles=tuple(_changed(one, plugin, change, loaded) if one.scheduler_name == name else one for one in loaded.profiles),
    )


def _changed(profile: ResolvedProfile, plugin: str, change: Change, loaded: Loaded) -> ResolvedProfile:
    if not any(plugin in at_point for at_point in profile.points.values()):
        close = close_to(plugin, sorted({name for names in profile.points.values() for name in names}))
        raise InputError(one_line(f"{change.target}: profile {profile.scheduler_name} does not run {plugin}{close}"))
    if change.verb == "disable-plugin":
        return with_fields(profile, points=_without(profile.points, plugin))
    args_type = loaded.registry.args_type(plugin)
    if args_type is None:
        raise InputError(one_line(f"{change.target}: plugin {plugin} takes no arguments"))
    given = profile.args.get(plugin)
    args = _with_argument(args_type() if given is None else given, change, loaded)
    return with_fields(profile, args={**profile.args, plugin: args})


def _without(points: Mapping[str, tuple[str, ...]], plugin: str) -> dict[str, tuple[str, ...]]:
    """Return the points of a profile without one plugin. It keeps those that a profile cannot do without."""
    left = {at: names if at in _NEEDED else tuple(n for n in names if n != plugin) for at, names in points.items()}
    return {at: names for at, names in left.items() if names}


def _with_argument(args: Any, change: Change, loaded: Loaded) -> Any:
    """Return arguments with one value set, removed (None), or appended to a list.

    Raises  InputError if there is no such argument, or kube-scheduler would refuse the value
    """
    fields = msgspec.json.decode(msgspec.json.encode(args))
    _set(fields, _steps(change), change.new, change)
    try:
        found = msgspec.convert(fields, type(args))
    except msgspec.ValidationError as error:
        raise InputError(one_line(f"{change.target} {change.path}: {error}")) from None
    faults = found.faults("", loaded.gates) if hasattr(found, "faults") else []
    if faults:
        raise InputError(one_line(f"{change.target}: {'; '.join(map(str, faults))}"))
    return found


def _steps(change: Change) -> list[str | int]:
    steps: list[str | int] = []
    for part in change.path.split("."):
        found = _STEP.fullmatch(part)
        if found is None:
            raise InputError(one_line(f"{change.target}: {change.path!r} names no argument; write it as in the configuration"))
        steps += [found[1], *map(int, re.findall(r"\d+", found[2]))]
    return steps


def _set(holder: Any, steps: list[str | int], new: Any, change: Change) -> None:
    """Set the value at a path of dicts and lists."""
    *way, last = steps
    for step in way:
        known = step in holder if isinstance(holder, dict) else isinstance(step, int) and step < len(holder)
        if not known or not isinstance(holder[step], dict | list):
            raise InputError(one_line(f"{change.target}: there is no {change.path}"))
        holder = holder[step]
    if isinstance(holder, list):
        raise InputError(one_line(f"{change.target}: {change.path} is one of a list; name a field of it"))
    if new is None:
        holder.pop(last, None)
    elif isinstance(holder.get(last), list):
        holder[last] = [*holder[last], new]
    else:
        holder[last] = new


def reconfigured_profile(profile: Profile, changes: Iterable[Change], loaded: Loaded, handle: Handle) -> Profile:
    """Return the profile of a running scheduler after changes of the configuration.

    Plugins whose arguments change are created again; the others are those of the profile.

    Raises  InputError
    """
    held = list(changes)
    plugins = dict(profile.plugins)
    for change in held:
        loaded = reconfigure(loaded, change)
    found = next(one for one in loaded.profiles if one.scheduler_name == profile.scheduler_name)
    for name in {one.target.rpartition("/")[2] for one in held if one.verb == "plugin-argument"}:
        plugins[name] = loaded.registry.build(name, found.args.get(name))
        attach(plugins[name], handle)
    made = make_profile(profile.scheduler_name, plugins, found.points, profile.weights, profile.percentage_of_nodes_to_score)
    return with_fields(profile, steps=made.steps, plugins=plugins)
