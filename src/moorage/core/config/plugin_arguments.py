"""The arguments of the plugins of a configuration, decoded as each plugin wants them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.core.config.api_versions import ApiVersion
from moorage.core.config.configuration import (
    Configuration,
    KubeSchedulerProfile,
    PluginConfig,
)
from moorage.core.config.decoder import decode, fields_of
from moorage.errors import Fault
from moorage.framework.registry import Registry


def with_args(
    configuration: Configuration, version: ApiVersion, registry: Registry, gates: FeatureGates
) -> tuple[Configuration, list[Fault]]:
    """Return the configuration with plugin arguments decoded and defaulted, and the faults in them."""
    faults: list[Fault] = []
    profiles: list[KubeSchedulerProfile] = []
    for i, profile in enumerate(configuration.profiles):
        configs = []
        for j, config in enumerate(profile.plugin_config):
            args, found = _args(config, f"profiles[{i}].pluginConfig[{j}].args", version, registry, gates)
            configs.append(PluginConfig(name=config.name, args=args))
            faults += found
        profiles.append(structs.replace(profile, plugin_config=tuple(configs)))
    return structs.replace(configuration, profiles=tuple(profiles)), faults


def _args(
    config: PluginConfig, path: str, version: ApiVersion, registry: Registry, gates: FeatureGates
) -> tuple[Any, list[Fault]]:
    name, data = config.name, config.args
    args_type = registry.args_type(name)
    if args_type is None:
        refused = data and name in registry and name not in version.plugin_points
        return data, [Fault("Forbidden", path, f"plugin {name} takes no arguments")] if refused else []
    if isinstance(data, dict):
        faults = _header_faults(name, data, path, version)
        if faults:
            return None, faults
        declared = fields_of(args_type)
        data = {key: value for key, value in data.items() if key in declared or key not in {"apiVersion", "kind"}}
        if version.short == "v1beta1" and data.get("defaultConstraints") and not data.get("defaultingType"):
            data = {**data, "defaultingType": "List"}
    decoded, faults = decode(data, args_type, path, f"{name}Args")
    if isinstance(decoded, msgspec.Struct) and hasattr(decoded, "completed"):
        decoded = decoded.completed(gates)
    return decoded, faults


def _header_faults(name: str, data: dict[str, Any], path: str, version: ApiVersion) -> list[Fault]:
    """Return faults for ``kind`` and ``apiVersion``, which are optional but must match the plugin's arguments."""
    own = f"{name}Args"
    kind, spelled = data.get("kind") or own, data.get("apiVersion") or version.name
    if kind != own:
        text = f"args for plugin {name} were not of type {own}, got {kind}"
        return [Fault("Unsupported value", f"{path}.kind", text, kind)]
    if name in version.plugin_points and spelled != version.name:
        text = f'no kind "{own}" is registered for version "{spelled}"; write {version.name}, or leave it out'
        return [Fault("Unsupported value", f"{path}.apiVersion", text, spelled)]
    return []
