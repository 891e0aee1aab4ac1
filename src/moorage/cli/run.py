"""``moorage run``: schedule the pods of a live cluster."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import yaml
from msgspec import structs

from moorage import __version__
from moorage.api.durations import format_duration
from moorage.api.yaml_writing import PrintableDumper
from moorage.cli.main import ERROR, OK
from moorage.cli.memory import collect_seldom
from moorage.cli.pflag import FlagCommand, Given
from moorage.cli.reading import CONFIG_LIMIT, read_file
from moorage.cli.run_flags import FLAGS, LEADER_FIELDS
from moorage.cli.run_process import Process, run_process, with_hidden_passwords
from moorage.cli.run_serving import check_flags, serving_rules
from moorage.client.endpoint import Endpoint
from moorage.client.extenders import ExtenderClient
from moorage.client.kubeconfig import Surroundings, in_cluster, read_kubeconfig
from moorage.config.document import Configuration
from moorage.config.scheduler_document import EMULATED, Loaded
from moorage.config.validation import leader_election_faults
from moorage.config.written import as_written
from moorage.errors import ConfigError, Fault, InputError, MoorageError
from moorage.framework.features import TODAY
from moorage.framework.registry import load
from moorage.runtime.leader import JITTER, Timing
from moorage.server.klog import Klog, hear_others
from moorage.server.live import LeaderSettings
from moorage.simulator.simulate import Options, load_options

__all__ = ["run"]

#: Flags of old → fields of clientConnection. Like --profiling they count only where there is no file.
_CONNECTION_FIELDS: Final = {
    "kubeconfig": "kubeconfig", "kube-api-content-type": "content_type", "kube-api-qps": "qps", "kube-api-burst": "burst",
}  # fmt: skip
_IGNORED_WITH_CONFIG: Final = frozenset([*_CONNECTION_FIELDS, "profiling", "contention-profiling"])
_TEXT: Final = "tag:yaml.org,2002:str"


@click.command(cls=FlagCommand)
def run(given: Given) -> int:
    """Schedule the pods of a live cluster.

    Takes kube-scheduler's flags with its meaning; with --config, of those that the file could say only the ones about leader
    election count. Exits with 0 after SIGTERM or SIGINT while standing for a lease, and with 1 when the lease was lost, when
    there is none to stand for, or when something is wrong. A second signal ends it at once.
    """
    if given["version"] != "false":
        _print_version(given["version"])
        return OK
    log = Klog()
    try:
        log = Klog(verbosity=given["v"], style=given["logging-format"], vmodule=given["vmodule"])
        return _scheduled(given, log)
    except MoorageError as error:
        log.error(error, "command failed")
        return ERROR


def _scheduled(given: Given, log: Klog) -> int:
    """Do what the flags say, until the end; return the exit status."""
    _check_log_flags(given)
    check_flags(given)
    if "@" in given["master"]:  # before anything is logged or served
        raise InputError("--master: an address holds no name and password; no API server takes them")
    for name, value in given.shown(FLAGS).items() if log.shows(1) else ():
        log.line(1, f'FLAG: --{name}="{value}"')
    loaded = _load(given)
    ignored = sorted(given.changed & _IGNORED_WITH_CONFIG) if given["config"] else []
    if ignored:
        log.warning(f"Ignored, because --config is given: --{', --'.join(ignored)}; say it in {given['config']}")
    extenders = ExtenderClient(loaded.configuration.extenders)
    document = as_written(loaded)
    if given["write-config-to"]:
        _write(Path(given["write-config-to"]), document)
        log.info(0, "Wrote configuration", file=given["write-config-to"])
        return OK
    if log.shows(2):
        log.info(2, "Using component config", config=_as_yaml(with_hidden_passwords(document)))
    warn = _once(log.warning)
    process = Process(
        loaded=loaded,
        document=document,
        given=given,
        leader=_leader(loaded.configuration),
        endpoint=_endpoint(loaded.configuration.client_connection.kubeconfig, given["master"], log, warn),
        extenders=extenders,
        max_disks=_max_disks(given),
        serving=serving_rules(given, lambda path: _kubeconfig(path, log, warn)),
        log=log,
    )
    hear_others(log)
    collect_seldom()
    try:
        status = asyncio.run(run_process(process))
    except* MemoryError:
        log.error(None, "Out of memory: the process was allowed too little to go on")
        status = ERROR
    return status


run.flags = FLAGS


def _print_version(asked: str) -> None:
    if asked == "raw":
        click.echo(f"moorage {__version__}, for Kubernetes {TODAY}, Python {platform.python_version()}, {sys.platform}")
    else:
        click.echo(f"Moorage v{__version__} (kube-scheduler {TODAY})")


def _check_log_flags(given: Given) -> None:
    """Refuse what needs a gate that is closed, and what makes no sense."""
    if given["log-flush-frequency"] <= 0:
        shown = format_duration(round(given["log-flush-frequency"] * 1e9))
        raise InputError(f'flushFrequency: Invalid value: "{shown}": Must be greater than zero')
    for form in ("text", "json"):
        if given[f"log-{form}-split-stream"]:
            raise InputError(f"options.{form}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled")
        if given[f"log-{form}-info-buffer-size"] != "0":
            raise InputError(f"options.{form}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled")


# -- the configuration --------------------------------------------------------------------------------------------------


def _load(given: Given) -> Loaded:
    """Return what is configured: by the file, or by the flags that say the same; leader election by flags in any case."""
    path = given["config"]
    if given["plugins"]:
        # A module that lies here is found, as with `python -m`, but never takes the place of an installed one.
        sys.path.append(os.getcwd())
    options = Options(
        read_file(path, CONFIG_LIMIT) if path else None,
        path or "the default configuration",
        emulate=_emulated(given["emulated-version"]),
        feature_gates=",".join(part.removeprefix("kube:") for part in given["feature-gates"]),
        plugins=tuple(load(name) for name in given["plugins"]),
    )
    try:
        loaded = load_options(options)
    except ConfigError as error:
        if not error.faults:
            raise
        if all(fault.field.startswith("featureGates.") for fault in error.faults):
            told = [fault.detail or str(fault) for fault in error.faults]
            raise InputError(told[0] if len(told) == 1 else f"[{', '.join(told)}]") from None
        raise _in_one_line(options.where, error.faults) from None
    configuration = loaded.configuration if path else _with_deprecated(loaded.configuration, given)
    changed = {field: given[flag] for flag, field in LEADER_FIELDS.items() if flag in given.changed}
    configuration = structs.replace(configuration, leader_election=structs.replace(configuration.leader_election, **changed))
    # As kube-scheduler has it: what no file says is not looked at before the lease is to be taken.
    if path and (faults := list(leader_election_faults(configuration.leader_election))):
        raise _in_one_line(options.where, faults)
    return replace(loaded, configuration=configuration)


def _in_one_line(where: str, faults: Iterable[Fault]) -> InputError:
    """Return all that is wrong as kube-scheduler tells it: in one line, several in brackets."""
    told = [str(fault) for fault in faults]
    return InputError(f"{where}: {told[0] if len(told) == 1 else '[' + ', '.join(told) + ']'}")


def _with_deprecated(configuration: Configuration, given: Given) -> Configuration:
    """Return a configuration with what flags of old say."""
    changed: dict[str, Any] = {field: given[flag] for flag, field in _CONNECTION_FIELDS.items() if flag in given.changed}
    connection = structs.replace(configuration.client_connection, **changed)
    profiling = {
        field: given[flag]
        for flag, field in (("profiling", "enable_profiling"), ("contention-profiling", "enable_contention_profiling"))
        if flag in given.changed
    }
    return structs.replace(configuration, client_connection=connection, **profiling)


def _max_disks(given: Given) -> int | None:
    """Return what the flag or KUBE_MAX_PD_VOLS says; None for nothing."""
    text = str(given["max-pd-vols"]) if "max-pd-vols" in given.changed else os.environ.get("KUBE_MAX_PD_VOLS", "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--max-pd-vols (or KUBE_MAX_PD_VOLS): {text} is no number of disks; use 1 or more")
    return int(text)


def _emulated(asked: list[str]) -> str | None:
    """Return the release that is to be emulated; None for today's.

    Raises  InputError for a release, or a component, that is not known
    """
    release: str | None = None
    for one in asked:
        component, equals, version = one.rpartition("=")
        if (equals and component != "kube") or version not in EMULATED:
            raise InputError(f"--emulated-version: {one} cannot be emulated; use one of {', '.join(EMULATED)}")
        release = version
    return None if release == TODAY else release


class _GoYaml(PrintableDumper):
    """Writes as kube-scheduler does, so that both files can be compared: a text that looks like a number is ``"123"``."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    as_it_stands = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(_TEXT, text, style=None if as_it_stands == _TEXT or text == "*" else '"')


_GoYaml.add_representer(str, _text)


def _as_yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(dict(document), Dumper=_GoYaml, allow_unicode=True, width=float("inf"))


def _write(path: Path, document: Mapping[str, Any]) -> None:
    text = _as_yaml(document)
    try:
        path = path.resolve()  # a link goes on leading where it led
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise InputError(f"--write-config-to {path}: {error.strerror}") from None


def _replace(path: Path, text: str) -> None:
    """Put a file in the place of what is there, at once and as a whole: who reads it meanwhile sees the one or the other."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w", encoding="utf-8") as file:
        try:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            fresh.unlink()
            raise


def _leader(configuration: Configuration) -> LeaderSettings | None:
    election = configuration.leader_election
    if not election.leader_elect:
        return None
    if election.resource_lock != "leases":
        lock = election.resource_lock
        removed = lock in {"endpoints", "configmaps", "endpointsleases", "configmapsleases"}
        why = f"{lock} lock is removed, migrate to leases" if removed else f"Invalid lock-type {lock}"
        raise InputError(f"couldn't create resource lock: {why}")
    if not election.resource_name:
        raise InputError("couldn't create resource lock: resource name may not be empty")
    timing = Timing(election.lease_duration, election.renew_deadline, election.retry_period)
    if why := _timing_fault(timing):
        raise InputError(f"couldn't create leader elector: {why}")
    return LeaderSettings(election.resource_namespace, election.resource_name, timing)


def _timing_fault(timing: Timing) -> str:
    """Return what client-go's leader elector says of durations that make no sense; "" for good ones."""
    if timing.lease_s <= timing.renew_s:
        return "leaseDuration must be greater than renewDeadline"
    if timing.renew_s <= JITTER * timing.retry_s:
        return "renewDeadline must be greater than retryPeriod*JitterFactor"
    return "" if timing.retry_s > 0 else "retryPeriod must be greater than zero"


# -- the cluster --------------------------------------------------------------------------------------------------------


def _around(log: Klog) -> Surroundings:
    return Surroundings(os.environ, time.monotonic, lambda: datetime.now(UTC), warn=log.warning)


def _once(warn: Callable[[str], None]) -> Callable[[str], None]:
    """Say the same only once: a file may be named for several purposes."""
    said: set[str] = set()

    def say(text: str) -> None:
        if text not in said:
            said.add(text)
            warn(text)

    return say


def _kubeconfig(path: str, log: Klog, warn: Callable[[str], None]) -> Endpoint:
    """Return the endpoint of a file that must be there."""
    return read_kubeconfig([Path(path)], must_exist=True, warn=warn).endpoint(_around(log))


def _endpoint(kubeconfig: str, master: str, log: Klog, warn: Callable[[str], None]) -> Endpoint:
    listed = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    if kubeconfig:
        endpoint = _kubeconfig(kubeconfig, log, warn)
    elif listed:
        endpoint = read_kubeconfig(listed, must_exist=False, warn=warn).endpoint(_around(log))
    elif master:
        endpoint = Endpoint("")
    else:
        endpoint = in_cluster(_around(log))
    if not master:
        return endpoint
    if not master.startswith(("http://", "https://")):
        raise InputError(f"--master {master}: an address starts with http:// or https://")
    return Endpoint(
        master.rstrip("/"), endpoint.credentials, endpoint.ca, endpoint.insecure, endpoint.server_name, endpoint.proxy,
        endpoint.headers, endpoint.namespace,
    )  # fmt: skip
