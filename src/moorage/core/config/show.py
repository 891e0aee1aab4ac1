"""Show a resolved configuration, with every default written out, as a document or as a table.

The document is a KubeSchedulerConfiguration of the version that was read: it disables the defaults and lists the plugins of
every extension point, so that it loads to the same profiles under any defaults. (A Policy is written as v1beta1.) The table
lists the plugins of each point. Private keys are not shown.

Source  kube-scheduler 1.36.2, cmd/kube-scheduler/app/options/configfile.go, for the idea of a written-out configuration
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect, structs

from moorage.api.durations import format_duration
from moorage.basis.printable import one_line
from moorage.core.config.api_versions import V1, ApiVersion
from moorage.core.config.configuration import (
    Configuration,
    ExtenderTLSConfig,
    KubeSchedulerProfile,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
)
from moorage.core.config.decoder import fields_of, is_duration
from moorage.core.config.document_reader import KIND
from moorage.core.config.profiles import ResolvedProfile
from moorage.core.config.release_plugins import POINTS as OLD_POINTS
from moorage.framework.points import POINTS

_HIDDEN = b"REDACTED"


def as_document(configuration: Configuration, profiles: Sequence[ResolvedProfile], version: ApiVersion = V1) -> dict[str, Any]:
    """Return the configuration as plain data of a version, which loads to the same profiles."""
    known = _points_of(version)
    written = structs.replace(configuration, profiles=tuple(_explicit(profile, version, known) for profile in profiles))
    plain = {name: value for name, value in plain_struct(written).items() if name not in version.lacks[Configuration]}
    return {"apiVersion": version.name, "kind": KIND, **plain}


def _points_of(version: ApiVersion) -> tuple[str, ...]:
    """Return the extension points that a version's profiles list, including ``multiPoint`` if it has that."""
    if version.name == V1.name:
        return tuple(Plugins.__struct_encode_fields__)
    return (*OLD_POINTS, "multiPoint") if version.has_multi_point else OLD_POINTS


def _explicit(profile: ResolvedProfile, version: ApiVersion, known: Sequence[str]) -> KubeSchedulerProfile:
    sets: dict[str, PluginSet] = {}
    everything = (PluginRef(name="*"),)
    for point, attribute in zip(Plugins.__struct_encode_fields__, Plugins.__struct_fields__, strict=True):
        if point not in known:
            continue
        enabled = _enabled(profile, point, version)
        if point == "multiPoint" and "preEnqueue" not in known:
            # The version has no preEnqueue, so what runs there is in multiPoint; every other point lists its own plugins.
            sets[attribute] = PluginSet(enabled=_enabled(profile, "preEnqueue", version), disabled=everything)
        elif point == "multiPoint":
            sets[attribute] = PluginSet(disabled=everything)
        elif "preEnqueue" in known and version.has_multi_point and enabled:
            sets[attribute] = PluginSet(enabled=enabled)
        elif "preEnqueue" not in known or not version.has_multi_point:
            sets[attribute] = PluginSet(enabled=enabled, disabled=everything)
    return KubeSchedulerProfile(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score if version.name == V1.name else None,
        plugins=Plugins(**sets),
        plugin_config=tuple(
            PluginConfig(name=name, args=typed_args(name, args, version)) for name, args in sorted(profile.args.items())
        ),
    )


def _enabled(profile: ResolvedProfile, point: str, version: ApiVersion) -> tuple[PluginRef, ...]:
    """Return what a point lists, with weights."""
    weights = _weights(profile, point)
    return tuple(PluginRef(name=name, weight=weights.get(name)) for name in listed(profile, point, version))


def listed(profile: ResolvedProfile, point: str, version: ApiVersion) -> list[str]:
    """Return the plugins of an extension point, without those that do not run there in the emulated release."""
    return [name for name in profile.points.get(point, ()) if point in version.plugin_points.get(name, (point,))]


def _weights(profile: ResolvedProfile, point: str) -> Mapping[str, int]:
    return profile.weights if point == "score" else profile.placement_weights if point == "placementScore" else {}


def typed_args(name: str, args: object, version: ApiVersion) -> Any:
    """Return arguments with ``kind`` and ``apiVersion``, as kube-scheduler writes them for its own plugins."""
    plain = _plain(args, inspect.AnyType())
    if name not in version.plugin_points or not isinstance(args, msgspec.Struct):
        return plain
    return {"apiVersion": version.name, "kind": f"{name}Args", **plain}


def plain_struct(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as data with wire names, without absent or empty values. Numbers and booleans are always included."""
    plain = {name: _plain(getattr(value, field.name), field.type) for name, field in fields_of(type(value)).items()}
    if isinstance(value, ExtenderTLSConfig) and value.key_data:
        plain["keyData"] = base64.b64encode(_HIDDEN).decode()
    return {name: one for name, one in plain.items() if one not in (None, [], {}, "")}


def _plain(value: Any, kind: inspect.Type) -> Any:
    if isinstance(value, msgspec.Struct):
        return plain_struct(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one, inspect.AnyType()) for one in value]
    if isinstance(value, float) and is_duration(kind):
        return format_duration(round(value * 1e9))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


# -- text ---------------------------------------------------------------------------------------------------------------


def as_table(profiles: Sequence[ResolvedProfile], heading: str = "", version: ApiVersion = V1) -> str:
    """Return a table of the plugins at each extension point of each profile, in order, with Score weights.

    ``heading`` is the first line, unless it is empty.
    """
    parts = [one_line(heading)] if heading else []
    lines = ("\n".join(map(one_line, _profile_lines(profile, version))) for profile in profiles)
    return "\n\n".join([*parts, *lines]) + "\n"


def _profile_lines(profile: ResolvedProfile, version: ApiVersion) -> Iterator[str]:
    rows = [("POINT", "PLUGIN", "WEIGHT")]
    for point in POINTS:
        for i, name in enumerate(listed(profile, point, version)):
            weight = str(_weights(profile, point).get(name, ""))
            note = f"{weight}{' ' if weight else ''}(not in Moorage)" if name in profile.missing else weight
            rows.append((point if i == 0 else "", name, note))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    yield f"profile {profile.scheduler_name}" + (" (every filter is asked about every node)" if profile.run_all_filters else "")
    for point, name, note in rows:
        yield f"{point:<{widths[0]}}  {name:<{widths[1]}}  {note}".rstrip()
