"""Parameters of plugins, and other fields of a scheduler configuration, set by name.

``NodeResourcesFit.scoringStrategy.type`` is an argument of a plugin, ``NodeResourcesFit.weight`` its weight as a score plugin;
both are set in every profile. A name that starts in lower case is a field of the configuration: ``percentageOfNodesToScore``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from moorage.api.manifests import read_first_yaml
from moorage.errors import InputError

__all__ = ["with_parameters"]

_EMPTY: Final = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def with_parameters(text: bytes | None, where: str, parameters: Mapping[str, Any]) -> bytes | None:
    """Return a configuration with some of its fields set.

    Raises  InputError for a document that is no KubeSchedulerConfiguration, and for a name that leads to no field of it
    """
    if not parameters:
        return text
    found = copy.deepcopy(_EMPTY) if text is None else read_first_yaml(text, where)
    if not isinstance(found, dict) or found.get("kind") != _EMPTY["kind"]:
        raise InputError(f"{where}: parameters can only be set in a {_EMPTY['kind']}")
    document: dict[str, Any] = found
    for name, value in parameters.items():
        first, *rest = name.split(".")
        if not all((first, *rest)):
            raise InputError(f"{name}: expected PLUGIN.ARGUMENT, PLUGIN.weight or a field of the configuration")
        if first[0].islower():
            _set(document, [first, *rest], value, name)
        elif not rest:
            raise InputError(f"{name}: expected {name}.ARGUMENT or {name}.weight")
        else:
            for profile in _profiles(document, name):
                _set_in_profile(profile, first, rest, value, name)
    return json.dumps(document).encode()


def _profiles(document: MutableMapping[str, Any], name: str) -> list[dict[str, Any]]:
    profiles = document.get("profiles") or [{"schedulerName": "default-scheduler"}]
    document["profiles"] = profiles
    return [_mapping(profile, name) for profile in profiles]


def _set_in_profile(profile: dict[str, Any], plugin: str, rest: list[str], value: Any, name: str) -> None:
    if rest == ["weight"]:
        plugins = _mapping(profile.setdefault("plugins", {}), name)
        for point in ("score", "multiPoint"):
            held = _mapping(plugins.get(point) or {}, name)
            entry = next((one for one in held.get("enabled") or () if one.get("name") == plugin), None)
            if entry is not None:
                entry["weight"] = value
                return
        score = _mapping(plugins.setdefault("score", {}), name)
        score["enabled"] = [*(score.get("enabled") or ()), {"name": plugin, "weight": value}]
        return
    configs = profile["pluginConfig"] = list(profile.get("pluginConfig") or ())
    entry = next((one for one in configs if isinstance(one, dict) and one.get("name") == plugin), None)
    if entry is None:
        entry = {"name": plugin}
        configs.append(entry)
    if entry.get("args") is None:
        entry["args"] = {}
    _set(_mapping(entry["args"], name), rest, value, name)


def _set(held: MutableMapping[str, Any], path: list[str], value: Any, name: str) -> None:
    for step in path[:-1]:
        if held.get(step) is None:
            held[step] = {}
        held = _mapping(held[step], name)
    held[path[-1]] = value


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{name}: cannot be set: the configuration has {json.dumps(value)[:40]} in its path")
    return value
