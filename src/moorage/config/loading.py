"""Text to a checked configuration: read strictly, defaults applied, every fault reported at once.

What cannot be read is left out and noted; the rest is checked all the same, down to whether the profiles can be built. A
fault that only follows from another one at the same place is not repeated.

Source  kube-scheduler 1.36.2, cmd/kube-scheduler/app/options/configfile.go; kube-scheduler/config/v1/types.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from moorage.api.documents import read_documents
from moorage.config.decoding import decode, fields_of
from moorage.config.defaults import with_defaults
from moorage.config.document import Configuration, PluginConfig, Profile
from moorage.config.profiles import resolution_faults
from moorage.config.release_1_36 import API_VERSION, KIND, PLUGIN_POINTS
from moorage.config.validation import validation_faults
from moorage.errors import ConfigError, Fault, InputError
from moorage.framework.features import FeatureGates
from moorage.framework.registry import Registry

__all__ = ["default_configuration", "load"]

#: How a reader of documents reports a field that is there twice: YAML by its key, JSON by its path.
_REPEATED = re.compile(
    r""":(?P<line>[0-9]+):\ (?: key\ (?P<key>"(?:[^"\\]|\\.)*")\ already\ set\ in\ map | duplicate\ field\ "(?P<path>.*)" )""",
    re.VERBOSE,
)
_SHOWN = 100


def default_configuration() -> Configuration:
    """Return the configuration of a scheduler that was given none."""
    return with_defaults(Configuration())


def load(text: bytes, where: str, registry: Registry, gates: FeatureGates) -> Configuration:
    """Read one KubeSchedulerConfiguration, YAML or JSON, and check it. ``where`` names the text in messages.

    Raises  ConfigError with every fault found, in the order of the checks; InputError for text that is neither YAML nor JSON
    """
    data, faults = _document(text, where)
    _refuse(where, _header_faults(data, text))
    body = {name: value for name, value in data.items() if name not in {"apiVersion", "kind"}}
    configuration, found = decode(body, Configuration, "", KIND)
    faults += found
    if configuration is None:
        raise _refused(where, faults)
    configuration, found = _with_args(configuration, registry, gates)
    faults += found
    configuration = with_defaults(configuration)
    faults = _joined(faults, validation_faults(configuration, gates))
    faults = _joined(faults, resolution_faults(configuration, registry, gates))
    _refuse(where, faults)
    return configuration


def _refuse(where: str, faults: list[Fault]) -> None:
    if faults:
        raise _refused(where, faults)


def _refused(where: str, faults: list[Fault]) -> ConfigError:
    return ConfigError(f"{where}: cannot be used as {KIND}:", faults)


def _joined(faults: list[Fault], later: Iterable[Fault]) -> list[Fault]:
    """Add the faults of a later check, leaving out those at or below a place that is known to be wrong."""
    known = {fault.field for fault in faults}
    return faults + [fault for fault in later if not any(place in known for place in _places_above(fault.field))]


def _places_above(path: str) -> list[str]:
    return [path, *(path[: found.start()] for found in re.finditer(r"[.\[]", path))]


# -- the document -------------------------------------------------------------------------------------------------------


def _document(text: bytes, where: str) -> tuple[Any, list[Fault]]:
    """Return the only document of a text, and a fault for each field that stands in it twice."""
    faults: list[Fault] = []
    try:
        documents = list(read_documents(text, where, strict=True))
    except InputError as error:
        faults = [_repeated_fault(found) for line in str(error).splitlines() if (found := _REPEATED.search(line))]
        if not faults:
            raise
        documents = list(read_documents(text, where))
    if len(documents) > 1:
        text_of_fault = f"found {len(documents)} documents; one file holds one {KIND}"
        raise _refused(where, [Fault("Too many", "", text_of_fault, len(documents))])
    return (documents[0].data if documents else {}), faults


def _repeated_fault(found: re.Match[str]) -> Fault:
    if found["path"] is not None:
        return Fault("Strict decoding error", found["path"], f'line {found["line"]}: duplicate field "{found["path"]}"')
    return Fault(
        "Strict decoding error", json.loads(found["key"]), f"line {found['line']}: key {found['key']} already set in map"
    )


def _header_faults(data: Any, text: bytes) -> list[Fault]:
    """Return why a document is not what its apiVersion and kind should say, and nothing where it is."""
    if not isinstance(data, dict):
        return [Fault("Invalid value", "", f"couldn't get version/kind; a {KIND} is a mapping", "…")]
    kind, version = data.get("kind"), data.get("apiVersion")
    faults = [
        Fault("Invalid value", name, f"couldn't get version/kind; {name} must be a text", value)
        for name, value in (("kind", kind), ("apiVersion", version))
        if value is not None and not isinstance(value, str)
    ]
    if faults:
        return faults
    if not kind or not version:
        missing = "'Kind'" if not kind else "'apiVersion'"
        field = "kind" if not kind else "apiVersion"
        hint = f"write apiVersion: {API_VERSION} and kind: {KIND}"
        return [Fault("Required value", field, f"Object {missing} is missing in '{_excerpt(text)}'; {hint}")]
    return [] if (kind, version) == (KIND, API_VERSION) else [_not_registered(kind, version)]


def _not_registered(kind: str, version: str) -> Fault:
    text = f'no kind "{kind}" is registered for version "{version}"; write apiVersion: {API_VERSION} and kind: {KIND}'
    return Fault("Unsupported value", "kind" if kind != KIND else "apiVersion", text, kind if kind != KIND else version)


def _excerpt(text: bytes) -> str:
    shown = text[: _SHOWN + 1].decode("utf-8", "replace").replace("\n", "\\n")
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"


# -- plugin arguments ---------------------------------------------------------------------------------------------------


def _with_args(configuration: Configuration, registry: Registry, gates: FeatureGates) -> tuple[Configuration, list[Fault]]:
    """Decode the arguments of every plugin that is known; those of others stay as they are."""
    faults: list[Fault] = []
    profiles: list[Profile] = []
    for i, profile in enumerate(configuration.profiles):
        configs = []
        for j, config in enumerate(profile.plugin_config):
            args, found = _args(config, f"profiles[{i}].pluginConfig[{j}].args", registry, gates)
            configs.append(PluginConfig(name=config.name, args=args))
            faults += found
        profiles.append(structs.replace(profile, plugin_config=tuple(configs)))
    return structs.replace(configuration, profiles=tuple(profiles)), faults


def _args(config: PluginConfig, path: str, registry: Registry, gates: FeatureGates) -> tuple[Any, list[Fault]]:
    name, data = config.name, config.args
    args_type = registry.args_type(name)
    if args_type is None:
        refused = data and name in registry and name not in PLUGIN_POINTS
        return data, [Fault("Forbidden", path, f"plugin {name} takes no arguments")] if refused else []
    if isinstance(data, dict):
        faults = _args_header_faults(name, data, path)
        if faults:
            return None, faults
        declared = fields_of(args_type)
        data = {key: value for key, value in data.items() if key in declared or key not in {"apiVersion", "kind"}}
    decoded, faults = decode(data, args_type, path, f"{name}Args")
    if isinstance(decoded, msgspec.Struct) and hasattr(decoded, "completed"):
        decoded = decoded.completed(gates)
    return decoded, faults


def _args_header_faults(name: str, data: dict[str, Any], path: str) -> list[Fault]:
    """Arguments may say what they are; then it must be the plugin's own."""
    own = f"{name}Args"
    kind, version = data.get("kind") or own, data.get("apiVersion") or API_VERSION
    if kind != own:
        text = f"args for plugin {name} were not of type {own}, got {kind}"
        return [Fault("Unsupported value", f"{path}.kind", text, kind)]
    if name in PLUGIN_POINTS and version != API_VERSION:
        text = f'no kind "{own}" is registered for version "{version}"; write {API_VERSION}, or leave it out'
        return [Fault("Unsupported value", f"{path}.apiVersion", text, version)]
    return []
