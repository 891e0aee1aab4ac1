"""Load a configuration from text: decode strictly, apply defaults, validate, and report every fault at once.

Invalid values are reported and left out; the rest is still validated, including whether the profiles can be built. A fault
that follows from another one at the same place is not reported.

Source  kube-scheduler 1.36.2, cmd/kube-scheduler/app/options/configfile.go; kube-scheduler/config/v1/types.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.core.config.api_versions import V1, ApiVersion, v1_of
from moorage.core.config.configuration import (
    Configuration,
    Plugins,
    PluginSet,
)
from moorage.core.config.configuration_defaults import with_defaults
from moorage.core.config.decoder import decode
from moorage.core.config.document_reader import KIND, SchedulerText, not_registered, read_text, refuse
from moorage.core.config.plain_addresses import address_faults
from moorage.core.config.plugin_arguments import with_args
from moorage.core.config.profiles import resolution_faults
from moorage.core.config.validation import validation_faults
from moorage.errors import Fault
from moorage.framework.registry import Registry

_HINT = f"apiVersion: {V1.name} and kind: {KIND}"


def default_configuration() -> Configuration:
    """Return the configuration of a scheduler that gets no document."""
    return with_defaults(Configuration())


def load(text: bytes, where: str, registry: Registry, gates: FeatureGates) -> Configuration:
    """Read one KubeSchedulerConfiguration v1, YAML or JSON, and validate it. ``where`` names the text in messages.

    Raises  ConfigError with every fault found, in the order of the checks; InputError for text that is neither YAML nor JSON
    """
    found = read_text(text, where, _HINT)
    if (found.kind, found.version) != (KIND, V1.name):
        refuse(where, [not_registered(found.kind, found.version, {KIND}, f"write {_HINT}")])
    return load_version(found, v1_of(gates.emulated), registry, gates)


def load_version(text: SchedulerText, version: ApiVersion, registry: Registry, gates: FeatureGates) -> Configuration:
    """Return the validated configuration of a document of this version.

    Raises  ConfigError with every fault found
    """
    document, found = decode(text.body, Configuration, "", KIND, version.lacks)
    faults = text.faults + [_of_version(fault, version) for fault in found]
    if document is None:
        refuse(text.where, faults)
        raise AssertionError("a document that cannot be decoded has faults")
    faults += address_faults(document, version.short, is_of_1_22="multiPoint" in version.lacks.get(Plugins, ()))
    configuration, found = with_args(_as_v1(document, version), version, registry, gates)
    faults += [_of_version(fault, version) for fault in found]
    configuration = with_defaults(configuration, gates.release)
    faults = joined(faults, validation_faults(configuration, gates, version))
    faults = joined(faults, resolution_faults(configuration, registry, gates, version))
    refuse(text.where, faults)
    return configuration


def _as_v1(document: Configuration, version: ApiVersion) -> Configuration:
    """Return the document without the addresses. A beta that reads ``preEnqueue`` leaves it out when it merges defaults."""
    profiles = document.profiles
    if version.short != "v1":
        without = [structs.replace(one.plugins, pre_enqueue=PluginSet()) for one in profiles]
        profiles = tuple(structs.replace(one, plugins=plugins) for one, plugins in zip(profiles, without, strict=True))
    return structs.replace(document, profiles=profiles, healthz_bind_address=None, metrics_bind_address=None)


def _of_version(fault: Fault, version: ApiVersion) -> Fault:
    """Name Go's types by the package of the version: ``[]v1beta1.Plugin``."""
    if version.name == V1.name or " of type " not in fault.detail:
        return fault
    text, of_type, kind = fault.detail.rpartition(" of type ")
    return Fault(fault.kind, fault.field, f"{text}{of_type}{kind.replace('v1.', f'{version.short}.')}", fault.value)


def joined(faults: list[Fault], later: Iterable[Fault]) -> list[Fault]:
    """Add the faults of a later check, without those at or below a place that already has a fault."""
    known = {fault.field for fault in faults}
    return faults + [fault for fault in later if not any(place in known for place in _places_above(fault.field))]


def _places_above(path: str) -> list[str]:
    return [path, *(path[: found.start()] for found in re.finditer(r"[.\[]", path))]
