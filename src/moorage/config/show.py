"""A configuration as people and programs read it: resolved, with every default written out.

As a document it is a KubeSchedulerConfiguration again: ``multiPoint`` is switched off and every extension point lists its
plugins, so that it loads to the same profiles wherever it is taken, whatever the defaults of that release are. As text it is
a table of what runs where. Private keys are not shown.

Source  kube-scheduler 1.36.2, cmd/kube-scheduler/app/options/configfile.go, for the idea of a written-out configuration
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import inspect, structs

from moorage.api.durations import format_duration
from moorage.config.decoding import fields_of, is_duration
from moorage.config.document import (
    Configuration,
    ExtenderTLSConfig,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
)
from moorage.config.profiles import ResolvedProfile
from moorage.config.release_1_36 import API_VERSION, KIND, PLUGIN_POINTS
from moorage.framework.points import POINTS

__all__ = ["as_document", "as_table"]

_HIDDEN = b"REDACTED"


def as_document(configuration: Configuration, profiles: Sequence[ResolvedProfile]) -> dict[str, Any]:
    """Return the configuration as plain data that loads to the same profiles."""
    written = structs.replace(configuration, profiles=tuple(_explicit(profile) for profile in profiles))
    return {"apiVersion": API_VERSION, "kind": KIND, **_plain_struct(written)}


def _explicit(profile: ResolvedProfile) -> Profile:
    sets: dict[str, PluginSet] = {}
    for point, attribute in zip(Plugins.__struct_encode_fields__, Plugins.__struct_fields__, strict=True):
        weights = profile.weights if point == "score" else {}
        enabled = tuple(PluginRef(name=name, weight=weights.get(name)) for name in profile.points.get(point, ()))
        if point == "multiPoint":
            sets[attribute] = PluginSet(disabled=(PluginRef(name="*"),))
        elif enabled:
            sets[attribute] = PluginSet(enabled=enabled)
    return Profile(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        plugins=Plugins(**sets),
        plugin_config=tuple(PluginConfig(name=name, args=_typed(name, args)) for name, args in sorted(profile.args.items())),
    )


def _typed(name: str, args: object) -> Any:
    """Say what the arguments are, as kube-scheduler does for plugins of its own."""
    plain = _plain(args, inspect.AnyType())
    if name not in PLUGIN_POINTS or not isinstance(args, msgspec.Struct):
        return plain
    return {"apiVersion": API_VERSION, "kind": f"{name}Args", **plain}


def _plain_struct(value: msgspec.Struct) -> dict[str, Any]:
    plain = {name: _plain(getattr(value, field.name), field.type) for name, field in fields_of(type(value)).items()}
    if isinstance(value, ExtenderTLSConfig) and value.key_data:
        plain["keyData"] = base64.b64encode(_HIDDEN).decode()
    return {name: one for name, one in plain.items() if one not in (None, [], {}, "")}


def _plain(value: Any, kind: inspect.Type) -> Any:
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one, inspect.AnyType()) for one in value]
    if isinstance(value, float) and is_duration(kind):
        return format_duration(round(value * 1e9))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


# -- text ---------------------------------------------------------------------------------------------------------------


def as_table(profiles: Sequence[ResolvedProfile]) -> str:
    """Return a table of what runs at each extension point of each profile, in order, with the weights of scores."""
    return "\n\n".join("\n".join(_profile_lines(profile)) for profile in profiles) + "\n"


def _profile_lines(profile: ResolvedProfile) -> Iterator[str]:
    rows = [("POINT", "PLUGIN", "WEIGHT")]
    for point in POINTS:
        for i, name in enumerate(profile.points.get(point, ())):
            weight = str(profile.weights[name]) if point == "score" else ""
            note = f"{weight}{' ' if weight else ''}(not in Moorage)" if name in profile.missing else weight
            rows.append((point if i == 0 else "", name, note))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    yield f"profile {profile.scheduler_name}"
    for point, name, note in rows:
        yield f"{point:<{widths[0]}}  {name:<{widths[1]}}  {note}".rstrip()
