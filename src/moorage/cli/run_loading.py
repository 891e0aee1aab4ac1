"""What ``moorage run`` schedules by: the configuration of a file, and what flags say beside it or in its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from msgspec import structs

from moorage.cli.legacy_options import OldFlags
from moorage.cli.pflag import Given
from moorage.cli.run_flags import LEADER_FIELDS
from moorage.cli.run_release import Era
from moorage.config.configuration import Configuration
from moorage.config.release_1_21 import RELEASES
from moorage.config.scheduler_document import Loaded
from moorage.config.validation import leader_election_faults
from moorage.errors import ConfigError, Fault, InputError
from moorage.framework.features import TODAY
from moorage.framework.registry import load
from moorage.simulator.simulate import Options, load_options

__all__ = ["IGNORED_WITH_CONFIG", "ReadConfigMap", "load_configuration"]

#: Deprecated flags → fields of clientConnection. Like --profiling they count only where there is no file.
_CONNECTION_FIELDS: Final = {
    "kubeconfig": "kubeconfig", "kube-api-content-type": "content_type", "kube-api-qps": "qps", "kube-api-burst": "burst",
}  # fmt: skip
#: ``read(kubeconfig, namespace, name)`` returns the Policy that a ConfigMap holds.
ReadConfigMap: TypeAlias = Callable[[str, str, str], bytes]
IGNORED_WITH_CONFIG: Final = frozenset([*_CONNECTION_FIELDS, "profiling", "contention-profiling"])


def load_configuration(given: Given, era: Era, read_config_map: ReadConfigMap) -> Loaded:
    """Return what is configured. The text of the configuration, if there is one, is the era's.

    Raises  ConfigError, InputError
    """
    if given["plugins"]:
        # A module that lies here is found, as with `python -m`, but never takes the place of an installed one.
        sys.path.append(os.getcwd())
    return _loaded_as_before(OldFlags(given, era), read_config_map) if era.is_old else _loaded_as_today(given, era)


def _options(given: Given, config: bytes | None, emulate: str | None, gates: str) -> Options:
    return Options(
        config,
        given["config"] or "the default configuration",
        emulate=emulate,
        feature_gates=gates,
        plugins=tuple(load(name) for name in given["plugins"]),
    )


def _loaded_as_today(given: Given, era: Era) -> Loaded:
    """Return what the file says, or flags that say the same; leader election by flags in any case."""
    _check_emulated(given["emulated-version"])
    gates = ",".join(part.removeprefix("kube:") for part in given["feature-gates"])
    options = _options(given, era.config, era.asked, gates)
    loaded = _in_one_line(options.where, lambda: load_options(options))
    configuration = loaded.configuration if given["config"] else _with_connection(loaded.configuration, given)
    changed = {field: given[flag] for flag, field in LEADER_FIELDS.items() if flag in given.changed}
    configuration = structs.replace(configuration, leader_election=structs.replace(configuration.leader_election, **changed))
    # As kube-scheduler has it: what no file says is not looked at before the lease is to be taken.
    if given["config"] and (faults := list(leader_election_faults(configuration.leader_election, loaded.version))):
        raise _told(options.where, faults)
    return replace(loaded, configuration=configuration)


def _loaded_as_before(flags: OldFlags, read_config_map: ReadConfigMap) -> Loaded:
    """Return what the file says of all but the algorithm, or what flags say in its place."""
    given, era = flags.given, flags.era
    options = _options(given, era.config if flags.has_config else None, era.asked, ",".join(given["feature-gates"]))
    kubeconfig = given["kubeconfig"]
    if flags.has_config and flags.config_map is not None:
        kubeconfig = _in_one_line(options.where, lambda: load_options(options)).configuration.client_connection.kubeconfig
    algorithm = flags.algorithm(lambda namespace, name: read_config_map(kubeconfig, namespace, name))
    loaded = _in_one_line(options.where, lambda: load_options(options, algorithm))
    if flags.has_config:
        return replace(loaded, addresses=flags.addresses_beside(loaded.addresses))
    configuration = _with_connection(loaded.configuration, given)
    configuration = structs.replace(configuration, leader_election=flags.leader_election)
    return replace(loaded, configuration=configuration, addresses=flags.addresses)


def _in_one_line(where: str, load: Callable[[], Loaded]) -> Loaded:
    try:
        return load()
    except ConfigError as error:
        if not error.faults:
            raise
        if all(fault.field.startswith("featureGates.") for fault in error.faults):
            told = [fault.detail or str(fault) for fault in error.faults]
            raise InputError(told[0] if len(told) == 1 else f"[{', '.join(told)}]") from None
        raise _told(where, error.faults) from None


def _told(where: str, faults: Iterable[Fault]) -> InputError:
    """Return all that is wrong as kube-scheduler tells it: in one line, several in brackets."""
    told = [str(fault) for fault in faults]
    return InputError(f"{where}: {told[0] if len(told) == 1 else '[' + ', '.join(told) + ']'}")


def _with_connection(configuration: Configuration, given: Given) -> Configuration:
    """Return a configuration with what deprecated flags say of the connection and of profiling."""
    changed: dict[str, Any] = {field: given[flag] for flag, field in _CONNECTION_FIELDS.items() if flag in given.changed}
    connection = structs.replace(configuration.client_connection, **changed)
    profiling = {
        field: given[flag]
        for flag, field in (("profiling", "enable_profiling"), ("contention-profiling", "enable_contention_profiling"))
        if flag in given.changed
    }
    return structs.replace(configuration, client_connection=connection, **profiling)


def _check_emulated(asked: Iterable[str]) -> None:
    """Refuse what --emulated-version cannot be here: any release but today's, whose gates it would emulate.

    Raises  InputError
    """
    for one in asked:
        component, equals, version = one.rpartition("=")
        if (equals and component != "kube") or version != TODAY:
            hint = f", or --emulate {version}" if version in RELEASES else ""
            raise InputError(f"--emulated-version: {one} cannot be emulated; use {TODAY}{hint}")
