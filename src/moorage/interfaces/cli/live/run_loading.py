"""Load the configuration of ``moorage run``: from a file, from flags, or from both."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from msgspec import structs

from moorage.api.releases import CURRENT, Release, find_release
from moorage.core.building.loading import ConfigSource, load_source
from moorage.core.config.configuration import Configuration, LeaderElection
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.validation import leader_election_faults
from moorage.errors import ConfigError, Fault, InputError
from moorage.framework.registry import load
from moorage.interfaces.cli.live.legacy_options import OldFlags
from moorage.interfaces.cli.live.removed_flags import LOCK_FIELDS
from moorage.interfaces.cli.live.run_flags import LEADER_FIELDS
from moorage.interfaces.cli.live.run_release import Era
from moorage.interfaces.cli.pflag import Given

__all__ = ["IGNORED_WITH_CONFIG", "ReadConfigMap", "load_configuration"]

#: Deprecated flags → fields of clientConnection. Like --profiling, they only take effect without a configuration file.
_CONNECTION_FIELDS: Final = {
    "kubeconfig": "kubeconfig", "kube-api-content-type": "content_type", "kube-api-qps": "qps", "kube-api-burst": "burst",
}  # fmt: skip
#: ``read(kubeconfig, namespace, name)`` returns the Policy in a ConfigMap.
ReadConfigMap: TypeAlias = Callable[[str, str, str], bytes]
IGNORED_WITH_CONFIG: Final = frozenset([*_CONNECTION_FIELDS, *LOCK_FIELDS, "profiling", "contention-profiling"])


def load_configuration(given: Given, era: Era, read_config_map: ReadConfigMap) -> Loaded:
    """Return the effective configuration. ``era.config`` holds the text of the configuration file, if there is one.

    Raises  ConfigError, InputError
    """
    if given["plugins"]:
        # Like `python -m`, find modules in the current directory, but never in place of an installed module.
        sys.path.append(os.getcwd())
    return _load_legacy(OldFlags(given, era), read_config_map) if era.is_old else _load_current(given, era)


def _source_of(given: Given, config: bytes | None, emulate: str | None, gates: str) -> ConfigSource:
    return ConfigSource(
        config,
        given["config"] or "the default configuration",
        emulate=emulate,
        feature_gates=gates,
        plugins=tuple(load(name) for name in given["plugins"]),
    )


def _load_current(given: Given, era: Era) -> Loaded:
    """Return the configuration of the file or of deprecated flags; flags of leader election override both."""
    _check_emulated(given["emulated-version"])
    gates = ",".join(part.removeprefix("kube:") for part in given["feature-gates"])
    source = _source_of(given, era.config, era.asked, gates)
    loaded = _in_one_line(source.where, lambda: load_source(source))
    configuration = loaded.configuration if given["config"] else _with_connection(loaded.configuration, given)
    fields = LEADER_FIELDS if given["config"] else LOCK_FIELDS | LEADER_FIELDS  # those of leader election win
    changed = {field: given[flag] for flag, field in fields.items() if flag in given.changed}
    configuration = structs.replace(configuration, leader_election=structs.replace(configuration.leader_election, **changed))
    # Like kube-scheduler, validate leader election here only if it comes from a file, otherwise when the elector is created.
    if given["config"]:
        _check_election(source.where, configuration.leader_election, loaded.gates.emulated)
    return replace(loaded, configuration=configuration)


def _load_legacy(flags: OldFlags, read_config_map: ReadConfigMap) -> Loaded:
    """Return the configuration of a file, or of flags without one; the algorithm comes from either or from a Policy."""
    given, era = flags.given, flags.era
    source = _source_of(given, era.config if flags.has_config else None, era.asked, ",".join(given["feature-gates"]))
    kubeconfig = given["kubeconfig"]
    if flags.has_config and flags.config_map is not None:
        kubeconfig = _in_one_line(source.where, lambda: load_source(source)).configuration.client_connection.kubeconfig
    algorithm = flags.algorithm(lambda namespace, name: read_config_map(kubeconfig, namespace, name))
    loaded = _in_one_line(source.where, lambda: load_source(source, algorithm))
    if flags.has_config:
        election = flags.leader_election(loaded.configuration.leader_election)
        configuration = structs.replace(loaded.configuration, leader_election=election)
        if flags.era.emulated.election_flags_override:
            _check_election(source.where, election, era.emulated)
        return replace(loaded, configuration=configuration, addresses=flags.addresses_beside(loaded.addresses))
    configuration = _with_connection(loaded.configuration, given)
    configuration = structs.replace(configuration, leader_election=flags.leader_election())
    return replace(loaded, configuration=configuration, addresses=flags.addresses)


def _check_election(where: str, election: LeaderElection, release: Release) -> None:
    faults = list(leader_election_faults(election, release))
    if faults:
        raise _one_line_error(where, faults)


def _in_one_line(where: str, load: Callable[[], Loaded]) -> Loaded:
    try:
        return load()
    except ConfigError as error:
        if not error.faults:
            raise
        if all(fault.field.startswith("featureGates.") for fault in error.faults):
            lines = [fault.detail or str(fault) for fault in error.faults]
            raise InputError(lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]") from None
        raise _one_line_error(where, error.faults) from None


def _one_line_error(where: str, faults: Iterable[Fault]) -> InputError:
    """Return one error for all faults in kube-scheduler's form: a single line, several faults in brackets."""
    lines = [str(fault) for fault in faults]
    return InputError(f"{where}: {lines[0] if len(lines) == 1 else '[' + ', '.join(lines) + ']'}")


def _with_connection(configuration: Configuration, given: Given) -> Configuration:
    """Return a configuration with the deprecated flags for the connection and for profiling applied."""
    changed: dict[str, Any] = {field: given[flag] for flag, field in _CONNECTION_FIELDS.items() if flag in given.changed}
    connection = structs.replace(configuration.client_connection, **changed)
    profiling = {
        field: given[flag]
        for flag, field in (("profiling", "enable_profiling"), ("contention-profiling", "enable_contention_profiling"))
        if flag in given.changed
    }
    return structs.replace(configuration, client_connection=connection, **profiling)


def _check_emulated(asked: Iterable[str]) -> None:
    """Reject any --emulated-version other than the current release: feature gates of earlier ones are not emulated.

    Raises  InputError
    """
    for one in asked:
        component, equals, version = one.rpartition("=")
        found = find_release(version)
        if (equals and component != "kube") or found is not CURRENT:
            hint = f", or --emulate {version}" if found is not None else ""
            raise InputError(f"--emulated-version: {one} cannot be emulated; use {CURRENT}{hint}")
