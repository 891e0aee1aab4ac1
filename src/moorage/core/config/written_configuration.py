"""Write a configuration as kube-scheduler does for ``--write-config-to`` and ``/configz``.

The output has every default and keeps the plugin sets: ``multiPoint`` merged with the defaults, and each extension point
with the plugins that the profile enables or disables there. Every plugin has a weight, 0 if not set; arguments are those of
the enabled plugins, by name. A diff with kube-scheduler's own output shows only real differences.

Source  kube-scheduler 1.36.2, options/configfile.go, encodeConfig; framework/runtime/framework.go, NewFramework,
        captureProfile
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import structs

from moorage.core.config.api_versions import V1
from moorage.core.config.configuration import (
    Extender,
    KubeSchedulerProfile,
    PluginRef,
    Plugins,
    PluginSet,
)
from moorage.core.config.decoder import fields_of
from moorage.core.config.document_reader import KIND
from moorage.core.config.plugin_sets import merge
from moorage.core.config.profiles import args_of
from moorage.core.config.release_plugins import default_plugins
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.show import as_document, plain_struct, typed_args

#: The default timeout of an extender.
_EXTENDER_TIMEOUT_S: Final = 5.0


def as_written(loaded: Loaded) -> dict[str, Any]:
    """Return the configuration as plain data that loads to the same profiles. Versions other than v1 list each point."""
    given = loaded.configuration
    if loaded.version is not V1:
        return {**as_document(given, loaded.profiles, loaded.version), **_served(loaded)}
    document = {
        "apiVersion": V1.name,
        "kind": KIND,
        **plain_struct(given),
        "leaderElection": _whole(given.leader_election),
        "clientConnection": _whole(given.client_connection),
        "profiles": [_profile(loaded, profile) for profile in given.profiles],
    }
    if given.extenders:
        document["extenders"] = [_extender(one) for one in given.extenders]
    if not given.delay_cache_until_active:
        del document["delayCacheUntilActive"]
    return document


def _served(loaded: Loaded) -> dict[str, Any]:
    """Return the addresses of health and metrics over plain HTTP.

    As in upstream, v1beta1 reads "" back as the default. v1beta2 refuses "", so it is left out there.
    """
    if loaded.addresses is None:
        return {}
    served = {"healthzBindAddress": loaded.addresses.healthz, "metricsBindAddress": loaded.addresses.metrics}
    return {name: address for name, address in served.items() if address or loaded.version.is_old}


def _whole(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as data, including its empty fields."""
    return {**dict.fromkeys(fields_of(type(value)), ""), **plain_struct(value)}


def _extender(given: Extender) -> dict[str, Any]:
    """Return an extender without its empty fields, but always with its URL and timeout."""
    whole = structs.replace(given, http_timeout=given.http_timeout or _EXTENDER_TIMEOUT_S)
    found = {name: value for name, value in plain_struct(whole).items() if value}
    for nested in (found.get("tlsConfig"), *found.get("managedResources", ())):
        if nested is not None:
            for name in [name for name, value in nested.items() if not value]:
                del nested[name]
    return {"urlPrefix": given.url_prefix, **({"tlsConfig": {}} if given.tls_config is not None else {}), **found}


def _profile(loaded: Loaded, given: KubeSchedulerProfile) -> dict[str, Any]:
    sets = _merged(given.plugins, default_plugins(loaded.gates))
    needed = {plugin.name for one in sets.values() for plugin in one.enabled}
    args = args_of(loaded.configuration, given, sorted(needed), loaded.registry, loaded.gates)
    share = given.percentage_of_nodes_to_score
    return {
        "schedulerName": given.scheduler_name,
        **({} if share is None else {"percentageOfNodesToScore": share}),
        "plugins": {point: _set(one) for point, one in sets.items()},
        "pluginConfig": [{"name": name, "args": typed_args(name, found, V1)} for name, found in args.items()],
    }


def _merged(given: Plugins, defaults: tuple[PluginRef, ...]) -> dict[str, PluginSet]:
    """Return the set of every point by name; only ``multiPoint`` is merged with defaults."""
    points = Plugins.__struct_encode_fields__
    return {point: merge(PluginSet(enabled=defaults if point == "multiPoint" else ()), given.at(point)) for point in points}


def _set(given: PluginSet) -> dict[str, Any]:
    sets = {
        "enabled": [{"name": plugin.name, "weight": plugin.weight or 0} for plugin in given.enabled],
        "disabled": [{"name": plugin.name, "weight": 0} for plugin in given.disabled],
    }
    return {name: plugins for name, plugins in sets.items() if plugins}
