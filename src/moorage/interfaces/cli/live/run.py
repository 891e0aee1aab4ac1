"""``moorage run``: schedule the pods of a live cluster."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import click
from msgspec import structs

from moorage import __version__
from moorage.api.durations import format_duration
from moorage.api.releases import CURRENT, Release, find_release
from moorage.basis.client.gathering_selector import gathering_loop
from moorage.basis.client.rest import Rest, user_agent
from moorage.basis.files import read_bytes, replacing
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.config.configuration import Configuration, LeaderElection
from moorage.core.config.document_reader import one_line_error
from moorage.core.config.release_plugins import LOCKS
from moorage.core.config.scheduler_document import Loaded
from moorage.core.config.validation import leader_election_faults
from moorage.core.config.written_configuration import as_written
from moorage.errors import ClusterError, ConfigError, InputError, MoorageError
from moorage.framework.registry import load
from moorage.interfaces.cli.given_back_memory import collect_seldom
from moorage.interfaces.cli.live import release_flags
from moorage.interfaces.cli.live.run_process import Process, run_process, with_hidden_passwords
from moorage.interfaces.cli.live.run_serving import check_flags, check_tls, endpoint_of_file, open_serving, run_endpoint
from moorage.interfaces.cli.main import ERROR, OK
from moorage.interfaces.cli.pflag import Given
from moorage.live.runtime.extender_client import ExtenderClient
from moorage.live.runtime.leader_election import Timing
from moorage.live.server.certificates import authorities
from moorage.live.server.klog import Klog, adopt_other_loggers
from moorage.live.server.live_scheduler import LeaderSettings
from moorage.report.yaml_writing import yaml_text

# -- run loading -------------------------------------------------------------------------------------------------------

#: Deprecated flags → fields of clientConnection. Like --profiling, they only take effect without a configuration file.
_CONNECTION_FIELDS: Final = {
    "kubeconfig": "kubeconfig", "kube-api-content-type": "content_type", "kube-api-qps": "qps", "kube-api-burst": "burst",
}  # fmt: skip
#: ``read(kubeconfig, namespace, name)`` returns the Policy in a ConfigMap.
ReadConfigMap: TypeAlias = Callable[[str, str, str], bytes]
#: What a timer of the system takes, and more than anyone waits for a plugin.
_LONGEST_S: Final = 1e6
IGNORED_WITH_CONFIG: Final = frozenset([*_CONNECTION_FIELDS, *release_flags.LOCK_FIELDS, "profiling", "contention-profiling"])


def load_configuration(given: Given, era: release_flags.Era, read_config_map: ReadConfigMap) -> Loaded:
    """Return the effective configuration. ``era.config`` holds the text of the configuration file, if there is one.

    Raises  ConfigError, InputError
    """
    if given["plugins"]:
        # Like `python -m`, find modules in the current directory, but never in place of an installed module.
        sys.path.append(os.getcwd())
    return _load_legacy(release_flags.OldFlags(given, era), read_config_map) if era.is_old else _load_current(given, era)


def _source_of(given: Given, config: bytes | None, emulate: str | None, gates: str) -> ConfigSource:
    return ConfigSource(
        config,
        given["config"] or "the default configuration",
        emulate=emulate,
        feature_gates=gates,
        plugins=tuple(load(name) for name in given["plugins"]),
    )


def _load_current(given: Given, era: release_flags.Era) -> Loaded:
    """Return the configuration of the file or of deprecated flags; flags of leader election override both."""
    _check_emulated(given["emulated-version"])
    gates = ",".join(part.removeprefix("kube:") for part in given["feature-gates"])
    source = _source_of(given, era.config, era.asked, gates)
    loaded = _in_one_line(source.where, lambda: load_source(source))
    configuration = loaded.configuration if given["config"] else _with_connection(loaded.configuration, given)
    fields = (
        release_flags.LEADER_FIELDS if given["config"] else release_flags.LOCK_FIELDS | release_flags.LEADER_FIELDS
    )  # those of leader election win
    changed = {field: given[flag] for flag, field in fields.items() if flag in given.changed}
    configuration = structs.replace(configuration, leader_election=structs.replace(configuration.leader_election, **changed))
    # Like kube-scheduler, validate leader election here only if it comes from a file, otherwise when the elector is created.
    if given["config"]:
        _check_election(source.where, configuration.leader_election, loaded.gates.emulated)
    return replace(loaded, configuration=configuration)


def _load_legacy(flags: release_flags.OldFlags, read_config_map: ReadConfigMap) -> Loaded:
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
        raise one_line_error(where, faults)


def _in_one_line(where: str, load: Callable[[], Loaded]) -> Loaded:
    try:
        return load()
    except ConfigError as error:
        if not error.faults:
            raise
        if all(fault.field.startswith("featureGates.") for fault in error.faults):
            lines = [fault.detail or str(fault) for fault in error.faults]
            raise InputError(lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]") from None
        raise one_line_error(where, error.faults) from None


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


# -- config writing ----------------------------------------------------------------------------------------------------


def _as_yaml(document: Mapping[str, Any]) -> str:
    """Return a document in the format that kube-scheduler writes, so that both files can be compared."""
    return yaml_text(dict(document), width=float("inf"), quoted="go")


def write_config(path: Path, document: Mapping[str, Any]) -> None:
    """Write a configuration to the file that ``--write-config-to`` names.

    Raises  InputError
    """
    text = _as_yaml(document)
    try:
        path = path.resolve()  # write the target of a symbolic link and keep the link
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            with replacing(path, 0o666) as file:
                if path.exists():
                    os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
                file.write(text.encode())
    except OSError as error:
        raise InputError(f"--write-config-to {path}: {error.strerror}") from None


_EXAMPLES: Final = """Examples:

\b
    moorage run --kubeconfig ~/.kube/config --config scheduler.yaml
    moorage run --config scheduler.yaml --plugins ./rules.py:QuietNodes --ui
    moorage run --emulate auto --verify 0.01

What is served and written, and what differs: moorage help run
"""


@click.command(cls=release_flags.ReleaseCommand, epilog=_EXAMPLES)
def run(given: Given, era: release_flags.Era) -> int:
    """Schedule the pods of a live cluster.

    Takes kube-scheduler's flags with its meaning. With --config, the flags that the file can set are ignored, except those of
    leader election. With --emulate, a Policy or a v1beta1 configuration it takes the flags of that release. Exits with 0 after
    SIGTERM or SIGINT with leader election enabled, and with 1 after a lost lease, without leader election, or after an error. A
    second signal ends the process immediately.
    """
    if given["version"] != "false":
        if given["version"] == "raw":
            versions = f"moorage {__version__}, for Kubernetes {era.release}, Python {platform.python_version()}"
            click.echo(f"{versions}, {sys.platform}")
        else:
            click.echo(f"Moorage v{__version__} (kube-scheduler {era.release})")
        return OK
    log = Klog()
    try:
        era = era.with_text(given["config"])
        if era.is_old:
            release_flags.OldFlags(given, era).check()
        style = given["logging-format"]
        splits = bool(given.values.get(f"log-{style}-split-stream")) and opens_log_options(given["feature-gates"])
        log = Klog(verbosity=given["v"], style=style, vmodule=given["vmodule"], splits=splits)
        return _scheduled(given, era, log)
    except MoorageError as error:
        log.error(error, "command failed")
        return ERROR


def _scheduled(given: Given, era: release_flags.Era, log: Klog) -> int:
    """Run the command that the flags describe, until it ends; return the exit status."""
    if not era.is_old:
        _check_log_flags(given, era)
        check_flags(given, era.emulated)
        for fault in release_flags.port_faults(given):
            raise InputError(fault)
    if "@" in given["master"]:  # check this before anything is logged or served
        raise InputError("--master: the address must not contain a user name or a password")
    _check_amounts(given)
    for name, value in given.shown(era.flags).items() if log.shows(1) else ():
        log.line(1, f'FLAG: --{name}="{value}"')
    for line in _warnings(given, era):
        log.warning(line)
    warn = _without_repeats(log.warning)
    loaded = load_configuration(given, era, lambda *named: _policy(*named, master=given["master"], warn=warn))
    for line in (*loaded.gates.lacking, *filter(None, [loaded.note]), *loaded.warnings):
        log.warning(line)
    _check_names(loaded)
    extenders = ExtenderClient(loaded.configuration.extenders)
    document = as_written(loaded)
    if log.shows(2):
        log.info(2, "Using component config", config=_as_yaml(with_hidden_passwords(document)))
    if given["write-config-to"]:
        return _written(given, loaded, document, log, warn)
    process = Process(
        loaded=loaded,
        document=document,
        given=given,
        flags=era.flags,
        leader=_leader(loaded),
        endpoint=run_endpoint(loaded.configuration.client_connection.kubeconfig, given["master"], warn),
        extenders=extenders,
        max_disks=_max_disks(given),
        serving=open_serving(given, lambda path: endpoint_of_file(path, warn), loaded.addresses),
        log=log,
    )
    adopt_other_loggers(log)
    collect_seldom()
    try:
        with asyncio.Runner(loop_factory=gathering_loop) as runner:
            status = runner.run(run_process(process))
    except* MemoryError:
        log.error(None, "Out of memory: the memory limit of the process is too low")
        status = ERROR
    return status


def _written(
    given: Given, loaded: Loaded, document: Mapping[str, Any], log: Klog, warn: Callable[[str], None]
) -> int:  # fmt: skip
    """Write the configuration to a file, if the scheduler would start with it, but for a cluster that is not given."""
    _leader(loaded)
    _max_disks(given)
    kubeconfig = loaded.configuration.client_connection.kubeconfig
    if kubeconfig or given["master"]:
        run_endpoint(kubeconfig, given["master"], warn)
    for name in ("client-ca-file", "requestheader-client-ca-file"):
        if given[name]:
            try:
                authorities(read_bytes(Path(given[name])), given[name])
            except InputError as error:
                raise InputError(f"--{name} {given[name]}: {error}") from None
    if given["secure-port"]:
        check_tls(given)
    write_config(Path(given["write-config-to"]), document)
    log.info(0, "Wrote configuration", file=given["write-config-to"])
    for line in _losses(loaded):
        log.warning(line)
    return OK


def _check_names(loaded: Loaded) -> None:
    """Refuse the names of schedulers in MOORAGE_REFUSED_NAMES: a Deployment must not replace the scheduler that places it.

    Raises  InputError
    """
    refused = set(os.environ.get("MOORAGE_REFUSED_NAMES", "").replace(",", " ").split())
    for profile in loaded.profiles:
        if profile.scheduler_name in refused:
            raise InputError(
                f"schedulerName {profile.scheduler_name} is refused here (MOORAGE_REFUSED_NAMES): these manifests run beside "
                "the cluster's own scheduler; to take its place, use a static pod"
            )


def _check_amounts(given: Given) -> None:
    if not 0.0 <= given["verify"] <= 1.0:
        raise InputError(f"--verify: {given['verify']:g} must be a share from 0 to 1, such as 0.01")
    if given["hang-limit"] < 0:
        raise InputError(f"--hang-limit: {given['hang-limit']:g}s must not be negative; 0 for no limit")
    if not 0.0 <= given["plugin-timeout"] <= _LONGEST_S:
        raise InputError(f"--plugin-timeout: {given['plugin-timeout']:g} must be a number of seconds, 0 for no limit")


def _warnings(given: Given, era: release_flags.Era) -> Iterable[str]:
    """Return warnings about flags that are deprecated or that --config overrides."""
    if era.is_old:
        return release_flags.OldFlags(given, era).warnings()
    return release_flags.flag_warnings(given, era.flags, given.changed & IGNORED_WITH_CONFIG if given["config"] else ())


def _losses(loaded: Loaded) -> Iterable[str]:
    """Yield a warning for each setting that a written configuration cannot express."""
    if loaded.addresses is not None and not loaded.addresses.healthz:
        yield "A configuration cannot turn off plain HTTP serving: add --port=0"
    if any(profile.run_all_filters for profile in loaded.profiles):
        yield "only a Policy can set alwaysCheckAllPredicates"


def _check_log_flags(given: Given, era: release_flags.Era) -> None:
    """Reject log flags that need a disabled feature gate or the text format, and invalid values."""
    if faults := list(release_flags.format_faults(given, era.flags)):
        raise InputError(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
    if given["log-flush-frequency"] <= 0 and era.emulated.flush_fault:
        shown = format_duration(round(given["log-flush-frequency"] * 1e9))
        raise InputError(era.emulated.flush_fault.format(value=shown))
    gated = era.emulated.gates_log_options and not opens_log_options(given["feature-gates"])
    for form in ("text", "json") if gated else ():
        if given[f"log-{form}-split-stream"]:
            raise InputError(f"options.{form}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled")
        if given[f"log-{form}-info-buffer-size"] != "0":
            raise InputError(f"options.{form}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled")


def opens_log_options(gates: Iterable[str]) -> bool:
    """Return whether ``--feature-gates`` opens the gate of log options, by name or with all gates of its stage."""
    words = {
        name.strip(): word.strip().lower() in {"1", "t", "true"} for name, _, word in (one.partition("=") for one in gates)
    }
    return words.get("LoggingAlphaOptions", words.get("kube:LoggingAlphaOptions", words.get("AllAlpha", False)))


def _max_disks(given: Given) -> int | None:
    """Return the value of the flag or of KUBE_MAX_PD_VOLS; None if neither is set."""
    text = str(given["max-pd-vols"]) if "max-pd-vols" in given.changed else os.environ.get("KUBE_MAX_PD_VOLS", "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--max-pd-vols (or KUBE_MAX_PD_VOLS): {text} must be an integer of at least 1")
    return int(text)


def _leader(loaded: Loaded) -> LeaderSettings | None:
    election = loaded.configuration.leader_election
    if not election.leader_elect:
        return None
    if loaded.gates.serves("CoordinatedLeaderElection"):
        raise InputError(
            "--feature-gates: CoordinatedLeaderElection=true is not supported: this scheduler writes no LeaseCandidate and "
            "takes the lease itself; leave the gate closed, or do without leader election: --leader-elect=false"
        )
    lock = election.resource_lock
    allowed = LOCKS if loaded.version.is_old else loaded.gates.emulated.locks
    if lock not in allowed:
        instead = f"{lock}leases" if f"{lock}leases" in allowed else "leases"
        why = f"{lock} lock is removed, migrate to {instead}" if lock in LOCKS else f"Invalid lock-type {lock}"
        raise InputError(f"couldn't create resource lock: {why}")
    if not election.resource_name:
        raise InputError("couldn't create resource lock: resource name may not be empty")
    timing = Timing(election.lease_duration, election.renew_deadline, election.retry_period)
    if timing.fault:
        raise InputError(f"couldn't create leader elector: {timing.fault}")
    return LeaderSettings(election.resource_namespace, election.resource_name, timing, lock)


# -- the cluster --------------------------------------------------------------------------------------------------------


def _without_repeats(warn: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that reports each text once: a file may be read for several purposes."""
    reported: set[str] = set()

    def say(text: str) -> None:
        if text not in reported:
            reported.add(text)
            warn(text)

    return say


def _policy(kubeconfig: str, namespace: str, name: str, *, master: str, warn: Callable[[str], None]) -> bytes:
    """Read the Policy of a ConfigMap from the cluster.

    Raises  InputError
    """
    endpoint = run_endpoint(kubeconfig, master, warn)

    async def read() -> bytes:
        async with Rest(endpoint, agent=user_agent(__version__)) as rest:
            return await rest.get(f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}")

    try:
        found = json.loads(asyncio.run(read()))
    except ClusterError as error:
        raise InputError(f"couldn't get policy config map {namespace}/{name}: {error}") from None
    except ValueError:
        raise InputError(f"couldn't get policy config map {namespace}/{name}: the response is not a ConfigMap") from None
    return release_flags.policy_of(found.get("data") if isinstance(found, dict) else None)
