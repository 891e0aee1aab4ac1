"""The flags of ``moorage run`` by release, and those of 1.19 to 1.22: validation, warnings, and how ``--config`` changes them.

Source  kube-scheduler 1.21 and 1.22, cmd/kube-scheduler/app/options: options.go, deprecated.go, insecure_serving.go;
        component-base, logs and metrics; apiserver, authentication.go
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click
from msgspec import structs

from moorage.api.releases import RELEASES, TODAY, Release, find_release, why_unknown
from moorage.basis import table_of
from moorage.core.config.algorithm import Algorithm
from moorage.core.config.api_versions import V1BETA1
from moorage.core.config.configuration import LeaderElection
from moorage.core.config.document_reader import KIND, read_text
from moorage.core.config.plain_addresses import Addresses, is_ip, join_host_port
from moorage.core.config.scheduler_document import POLICY
from moorage.core.config.validation import client_faults
from moorage.errors import Fault, InputError, MoorageError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.interfaces.cli.live.run_serving import empty_header_faults, live_release, metric_faults, run_endpoint
from moorage.interfaces.cli.option_tables import AUTO
from moorage.interfaces.cli.pflag import ASKS_HELP, SHOWN, Flag, FlagCommand, FlagError, Given, read_flags
from moorage.interfaces.cli.terminal import say

# The flags of ``moorage run``, from ``flags.toml``: kube-scheduler's of 1.37, Moorage's own, and those of 1.19 to 1.22.
#
# With ``--emulate``, flags that 1.37 still has are taken with the default of the older release. ``--help`` marks the flags that
# are accepted but have no effect.

_TABLE: Final = table_of("moorage.interfaces.cli.live", "flags.toml")
_GONE: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = _TABLE.pop("Gone")
_LEGACY: Final[Mapping[str, Any]] = _TABLE.pop("legacy")
#: Flag → what differs from 1.22 in releases that still have it.
SINCE_1_23: Final[Mapping[str, Mapping[str, Any]]] = _TABLE.pop("since_1_23")


def _flags(sections: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Flag]:
    for section, rows in sections.items():
        for name, row in rows.items():
            fields: dict[str, Any] = {field: tuple(given) if isinstance(given, list) else given for field, given in row.items()}
            fields.pop("idle", None)
            yield Flag(name, section=section, **fields)


FLAGS: Final = tuple(_flags(_TABLE))
_LEADER: Final = "Leader election"
#: Flag → the field of the configuration's leaderElection that it overrides.
LEADER_FIELDS: Final = {
    flag.name: flag.name.removeprefix("leader-elect-").replace("-", "_") for flag in FLAGS if flag.section == _LEADER
}


#: Flags of these releases that 1.37 does not have, and those of them that have no effect here.
GONE: Final = {flag.name: flag for flag in _flags(_GONE)}
IDLE: Final = frozenset(name for rows in _GONE.values() for name, row in rows.items() if row.get("idle"))
_TODAY: Final = {flag.name: flag for flag in FLAGS}
_SECTIONS: Final[Mapping[str, list[str]]] = {**_LEGACY["sections"], "Moorage": [*_TABLE["Moorage"]]}
_NOT_WITH_CONFIG: Final = frozenset(_LEGACY["not_with_config"])


def flags_of(name: str) -> tuple[Flag, ...]:
    """Return the flags of one of the releases 1.19 to 1.22, in the order of help."""
    release = RELEASES[name]
    has = release.own_flags | (_TODAY.keys() - release.lacks_flags)
    return tuple(_flag(flag, section, release) for section, names in _SECTIONS.items() for flag in names if flag in has)


def ignored_with_config(release: Release) -> frozenset[str]:
    """Return the flags that a configuration file overrides. A ``port`` of 0 still takes effect."""
    return _NOT_WITH_CONFIG if release.election_flags_override else _NOT_WITH_CONFIG.union(_SECTIONS[_LEADER])


def _flag(name: str, section: str, release: Release) -> Flag:
    flag = replace(GONE.get(name) or _TODAY[name], section=section)
    texts = _LEGACY["help"] if release.legacy_flags else {**_LEGACY["help"], **_LEGACY["help_1_22"]}
    changed: dict[str, Any] = {"help": texts.get(name, flag.help)}
    if name == "leader-elect-resource-lock":
        changed["default"] = release.default_lock
    elif name == "authorization-always-allow-paths":
        changed["default"] = release.open_paths
    if section == _LEADER and not release.election_flags_override:
        changed["help"] += " Not with --config."
    if name.startswith("lock-object-") and release.election_flags_override:
        changed["sets"] = ""  # --leader-elect-resource-… wins in any order
    return replace(flag, **changed)


# -- removed flags -----------------------------------------------------------------------------------------------------
# The flags of kube-scheduler since 1.23, for ``moorage run --emulate``: those of 1.37, and those that it no longer has.
#
# Source  kube-scheduler 1.23 to 1.27, cmd/kube-scheduler/app/options; component-base/logs

#: Deprecated flags → fields of the configuration's leaderElection that they set if there is no file.
LOCK_FIELDS: Final = {"lock-object-name": "resource_name", "lock-object-namespace": "resource_namespace"}

_SANITIZATION: Final = "experimental-logging-sanitization"
#: Flags of klog.
_KLOG: Final = IDLE - {_SANITIZATION}
_KLOG_REMOVED: Final = (
    "will be removed in a future release, see https://github.com/kubernetes/enhancements/tree/master/keps/"
    "sig-instrumentation/2845-deprecate-klog-specific-flags-in-k8s-components"
)
#: Flag → what differs from 1.22.
_CHANGED: Final[Mapping[str, Mapping[str, Any]]] = {
    **SINCE_1_23,
    **{name: {"sets": ""} for name in LOCK_FIELDS},  # --leader-elect-resource-… wins in any order
    **{name: {"instead": _KLOG_REMOVED} for name in _KLOG},
}


def flags_since_1_23(release: Release) -> tuple[Flag, ...]:
    """Return the flags of a release from 1.23 on, with Moorage's own. Those that 1.37 does not have come last."""
    removed = (replace(GONE[name], **_CHANGED.get(name, {})) for name in sorted(release.own_flags))
    return (*(flag for flag in FLAGS if flag.name not in release.lacks_flags), *removed)


def flag_warnings(given: Given, flags: Iterable[Flag], ignored: Iterable[str]) -> Iterator[str]:
    """Yield a line for each deprecated flag, one for those ``ignored`` beside --config, and one for those without effect."""
    for flag in flags:
        if flag.instead and flag.name in given.changed:
            yield f"Flag --{flag.name} has been deprecated, {flag.instead}"
    if names := sorted(ignored):
        yield f"Ignored, because --config is given: --{', --'.join(names)}; set it in {given['config']}"
    if idle := sorted(given.changed & IDLE):
        yield f"No effect, because logs go to standard error: --{', --'.join(idle)}"


def port_faults(given: Given) -> Iterator[str]:
    """Yield the fault of 1.23's ``--port``, which accepts only 0."""
    if "port" in given.changed and given["port"]:
        yield str(Fault("Required value", "port", f"invalid port value {given['port']}: only zero is allowed"))


def format_faults(given: Given, flags: Iterable[Flag]) -> Iterator[str]:
    """Yield a fault for each flag of klog that the log format does not support."""
    form = given["logging-format"]
    for flag in sorted(flags, key=lambda flag: flag.name) if form != "text" else ():
        if flag.name in _KLOG and given[flag.name] != flag.default:
            yield str(Fault("Invalid value", "format", f"Non-default format doesn't honor flag: {flag.name}", form))


# -- run release -------------------------------------------------------------------------------------------------------
# Select the release of kube-scheduler that ``moorage run`` emulates, which determines its flags.
#
# ``--emulate`` names the release, or ``auto`` for that of the live cluster. Without it, a Policy, an algorithm provider and a
# v1beta1 configuration select 1.21, and everything else selects the current release. The release decides which flags exist,
# their defaults and their meaning.

_ERA: Final = "moorage.era"
#: Flags that only earlier releases have.
ALGORITHM: Final = ("policy-config-file", "policy-configmap", "use-legacy-policy-config", "algorithm-provider")
_EVERY: Final = (*FLAGS, *(flag for flag in GONE.values()))
#: A flag that releases up to 1.23 do not have: seconds before an unschedulable pod is retried. Its default, and their constant.
_RETRY: Final = "pod-max-in-unschedulable-pods-duration"
_RETRIED_S: Final = 300.0
_RETRIED_OLD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Era:
    """A release and its flags. ``chosen`` names the flag or file that selected it; "" for the default.

    ``config`` is the text of the configuration, if it was read to select the release: standard input can be read once.
    """

    release: str = TODAY
    chosen: str = ""
    config: bytes | None = None

    @property
    def emulated(self) -> Release:
        return RELEASES[self.release]

    @property
    def is_old(self) -> bool:
        return self.emulated.policy_flags

    @property
    def asked(self) -> str | None:
        """The release that --emulate names; None without it."""
        return self.release if self.chosen == "--emulate" else None

    @property
    def flags(self) -> tuple[Flag, ...]:
        if self.is_old:
            return flags_of(self.release)
        return flags_since_1_23(self.emulated)

    @property
    def retried_s(self) -> float:
        """Return after how many seconds an unschedulable pod is retried by default."""
        return _RETRIED_OLD_S if self.is_old or _RETRY in self.emulated.lacks_flags else _RETRIED_S

    def with_text(self, path: str) -> Era:
        """Return the Era with the text of the configuration file at ``path``; unchanged if ``path`` is empty.

        Raises  InputError if it cannot be read
        """
        return replace(self, config=read_file(path, CONFIG_LIMIT)) if path and self.config is None else self

    def completed(self, given: Given) -> Given:
        """Return the flags, completed with those that only other releases have, at their values for this release."""
        if not self.is_old and not self.emulated.lacks_flags:
            return given
        flags = (*GONE.values(), *FLAGS) if self.is_old else FLAGS
        values: dict[str, Any] = {flag.key: flag.default for flag in flags}
        return Given({**values, _RETRY: self.retried_s, **given.values}, given.changed)


class ReleaseCommand(FlagCommand):
    """A command that takes the flags of the release that it emulates. Its callback receives ``given`` and ``era``."""

    flags = FLAGS

    def read(self, ctx: click.Context, args: Sequence[str]) -> tuple[Given, list[str]]:
        era = _asked(args, connects=not ctx.resilient_parsing) or (Era() if ctx.resilient_parsing else _chosen(args))
        ctx.meta[SHOWN] = era.flags
        try:
            given, rest = read_flags([*era.flags, ASKS_HELP], args)
        except FlagError as error:
            raise _with_release(error, era) from None
        ctx.meta[_ERA] = era
        return era.completed(given), rest

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        ctx.params["era"] = ctx.meta[_ERA]
        return rest


def _asked(args: Sequence[str], *, connects: bool) -> Era | None:
    """Return the release that --emulate names; the last occurrence wins. None without it.

    ``connects``  whether to ask the cluster for its release, if --emulate says so
    """
    found: str | None = None
    for i, word in enumerate(args):
        if word == "--":
            break
        if word == "--emulate" and i + 1 < len(args):
            found = args[i + 1]
        elif word.startswith("--emulate="):
            found = word.partition("=")[2]
    if found is None:
        return None
    if found == AUTO:
        return _live(args) if connects else Era()
    release = find_release(found)
    if release is None:
        raise FlagError(f'invalid argument "{found}" for "--emulate" flag: {why_unknown(found)}')
    return Era(release.name, "--emulate")


def _live(args: Sequence[str]) -> Era:
    """Return the release of the cluster that the flags name; the current one if they only ask for help or the version.

    Raises  InputError
    """
    given = _leniently(args)
    if given is None or given["help"] or given["version"] != "false":
        return Era()
    era = Era().with_text(given["config"])
    kubeconfig = given["kubeconfig"] if era.config is None else _connection(era.config)
    endpoint = run_endpoint(kubeconfig, given["master"], lambda warning: say(f"warning: {warning}", err=True))
    release = live_release(endpoint, lambda note: say(f"note: {note}", err=True))
    return replace(era, release=release.name, chosen="--emulate")


def _connection(config: bytes) -> str:
    """Return the kubeconfig that a configuration names; "" without one. Its faults are reported later."""
    try:
        found = read_text(config, "", "").body.get("clientConnection")
    except MoorageError:
        return ""
    kubeconfig = found.get("kubeconfig") if isinstance(found, dict) else None
    return kubeconfig if isinstance(kubeconfig, str) else ""


def _chosen(args: Sequence[str]) -> Era:
    """Return the release that other flags or the configuration select. Faults in either are reported later."""
    given = _leniently(args)
    if given is None or given["help"]:
        return Era()
    return era_of(given["config"], [name for name in ALGORITHM if name in given.changed])


def era_of(config: str, named: Sequence[str]) -> Era:
    """Return the release that a configuration file and the given flags of ``ALGORITHM`` select."""
    if named:
        return Era(V1BETA1.rules, f"--{named[0]}")
    try:
        era = Era().with_text(config)
    except MoorageError:
        return Era()
    if era.config and _kind_of(era.config) in {(KIND, V1BETA1.name), (POLICY, "v1")}:
        return replace(era, release=V1BETA1.rules, chosen=config)
    return era


def _leniently(args: Sequence[str]) -> Given | None:
    """Parse flags of any release; return None if that fails."""
    try:
        return read_flags([*_EVERY, ASKS_HELP], args)[0]
    except FlagError:
        return None


def _kind_of(text: bytes) -> tuple[str, str]:
    """Return the kind and the version of a document; "" for both if it cannot be read."""
    try:
        found = read_text(text, "", "")
    except MoorageError:
        return "", ""
    return found.kind, found.version


def releases_with(flag: str) -> list[str]:
    """Return the releases that have a flag; for a flag of the current release, this one and those of 1.19 to 1.22."""
    if all(one.name != flag for one in FLAGS):
        return [one.name for one in RELEASES.values() if flag in one.own_flags]
    return [*(one.name for one in RELEASES.values() if one.policy_flags and flag not in one.lacks_flags), TODAY]


def _with_release(error: FlagError, era: Era) -> FlagError:
    """Return the error for an unknown flag, completed with the releases that have the flag."""
    has = releases_with(error.unknown)
    if not has:
        return error
    why = f", which {era.chosen} chose," if era.chosen else ""
    hint = f"not a flag of {era.release}{why} but of {', '.join(has)}; choose the release with --emulate"
    return FlagError(f"{error.message}: {hint}", error.unknown)


#: Key of a ConfigMap's data that holds a Policy.
POLICY_KEY: Final = "policy.cfg"
_SYSTEM: Final = "kube-system"
_MOST_PORT: Final = 65535
#: Flag for the lock object → the flag of leader election that replaces it.
_LOCK_OBJECT: Final = {
    "lock-object-name": "leader-elect-resource-name", "lock-object-namespace": "leader-elect-resource-namespace",
}  # fmt: skip
_FORMATS: Final = ("json", "text")
#: Flags that only the text log format supports, spelled as klog spells them.
_FOR_TEXT: Final = (*sorted((IDLE | {"vmodule"}) - {"experimental-logging-sanitization"}), "log-flush-frequency")


@dataclass(frozen=True, slots=True)
class OldFlags:
    """The parsed flags of one of these releases. ``era.config`` holds the text of ``--config``, if it was given."""

    given: Given
    era: Era

    @property
    def is_policy(self) -> bool:
        """True if ``--config`` names a Policy instead of a configuration."""
        return self.era.config is not None and _kind_of(self.era.config)[0] == POLICY

    @property
    def has_config(self) -> bool:
        """True if a configuration file overrides flags. A Policy overrides none."""
        return self.era.config is not None and not self.is_policy

    # -- validation -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Reject what kube-scheduler rejects before it reads any file; report all faults at once.

        Raises  InputError
        """
        wrong = list(self._faults())
        if wrong:
            raise InputError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")

    def _faults(self) -> Iterator[str]:
        given = self.given
        if self.era.emulated.legacy_flags:
            yield from map(str, client_faults(given["kube-api-burst"], self.leader_election(), self.era.emulated))
        if not 0 <= given["secure-port"] <= _MOST_PORT:
            yield f"--secure-port {given['secure-port']} must be between 0 and 65535, inclusive. 0 for turning off secure port"
        if not 0 <= given["port"] <= _MOST_PORT:
            yield f"--port {given['port']} must be between 0 and 65535, inclusive. 0 for turning off insecure (HTTP) port"
        if not is_ip(given["address"]):
            yield f"--address {given['address']} is an invalid IP address"
        if not self.era.emulated.legacy_flags:
            yield from empty_header_faults(given)
        if given["use-legacy-policy-config"] and not given["policy-config-file"]:
            yield str(Fault("Required value", "policyConfigFile", "required when --use-legacy-policy-config is true"))
        weight = given["hard-pod-affinity-symmetric-weight"]
        if not 0 <= weight <= 100:
            detail = f"not in valid range {self.era.emulated.weight_range}"
            yield str(Fault("Invalid value", "hardPodAffinitySymmetricWeight", detail, weight))
        if self.is_policy and (self.policy_file or self.config_map):
            yield f"{given['config']}: a Policy given with --config excludes another Policy"
        yield from metric_faults(given, self.era.emulated, given["allow-metric-labels"])
        yield from self._log_faults()

    def _log_faults(self) -> Iterator[str]:
        given, form = self.given, self.given["logging-format"]
        names_field = not self.era.emulated.legacy_flags
        if form != "text":
            changed = [flag for flag in self.era.flags if flag.name in _FOR_TEXT and given[flag.key] != flag.default]
            for flag in sorted(changed, key=lambda flag: _FOR_TEXT.index(flag.name)):
                name = flag.name if flag.name == "log-flush-frequency" else flag.name.replace("-", "_")
                if names_field:
                    yield _format_fault(form, f"Non-default format doesn't honor flag: {name}")
                else:
                    yield f"non-default logging format doesn't honor flag: {name}"
        if form not in _FORMATS:
            yield _format_fault(form, "Unsupported log format") if names_field else f"unsupported log format: {form}"

    def warnings(self) -> Iterator[str]:
        """Yield a line for each deprecated flag, one for overridden flags and one for flags without effect."""
        given = self.given
        overridden = given.changed & ignored_with_config(self.era.emulated) if self.has_config else ()
        ignored = (name for name in overridden if name != "port" or given["port"])
        yield from flag_warnings(given, self.era.flags, ignored)
        beside = [name for name in ("algorithm-provider", "hard-pod-affinity-symmetric-weight") if name in given.changed]
        if beside and (self.policy_file or self.config_map or self.is_policy):
            yield f"Ignored, because a Policy is given: --{', --'.join(beside)}"

    # -- the algorithm --------------------------------------------------------------------------------------------------

    @property
    def policy_file(self) -> str:
        """Path of the file with the active Policy; "" for none."""
        given = self.given
        path: str = given["policy-config-file"]
        return path if given["use-legacy-policy-config"] or not given["policy-configmap"] else ""

    @property
    def config_map(self) -> tuple[str, str] | None:
        """Namespace and name of the ConfigMap with the active Policy; None for none."""
        given = self.given
        if given["use-legacy-policy-config"] or not given["policy-configmap"]:
            return None
        return given["policy-configmap-namespace"] or _SYSTEM, given["policy-configmap"]

    def algorithm(self, read_config_map: Callable[[str, str], bytes]) -> Algorithm | None:
        """Return the algorithm to run; None for that of the configuration alone.

        ``read_config_map(namespace, name)`` returns the Policy of a ConfigMap.

        Raises  InputError for a Policy that cannot be read
        """
        given = self.given
        policy, where = None, ""
        if self.policy_file:
            policy, where = policy_text(self.policy_file), self.policy_file
        elif self.config_map is not None:
            namespace, name = self.config_map
            policy, where = read_config_map(namespace, name), f"configmap {namespace}/{name}"
        elif self.is_policy:
            policy, where = self.era.config, given["config"]
        elif not self.era.emulated.legacy_flags:
            return None
        weight = given["hard-pod-affinity-symmetric-weight"]
        return Algorithm(
            given["algorithm-provider"],
            policy,
            where,
            given["scheduler-name"],
            weight if "hard-pod-affinity-symmetric-weight" in given.changed else None,
        )

    # -- serving and leader election ------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Addresses:
        """The plain HTTP addresses of health and metrics when no configuration file is given."""
        port = self.given["port"]
        address = join_host_port(self.given["address"], str(port)) if port else ""
        return Addresses(address, address)

    def addresses_beside(self, addresses: Addresses | None) -> Addresses | None:
        """Return the addresses in a configuration file, or none with --port=0: only that flag can turn plain HTTP off."""
        off = "port" in self.given.changed and not self.given["port"]
        return Addresses("", "") if off else addresses

    def leader_election(self, configured: LeaderElection | None = None) -> LeaderElection:
        """Return the settings of the flags, or those ``configured`` in a file, with the flags that override it."""
        given, overrides = self.given, self.era.emulated.election_flags_override
        if configured is not None:
            changed = {field: given[flag] for flag, field in LEADER_FIELDS.items() if flag in given.changed and overrides}
            return structs.replace(configured, **changed)
        values = {field: given[flag] for flag, field in LEADER_FIELDS.items()}
        for flag, newer in _LOCK_OBJECT.items() if overrides else ():
            if newer not in given.changed:
                values[LEADER_FIELDS[newer]] = given[flag]
        return LeaderElection(**values)


def _format_fault(form: str, detail: str) -> str:
    return str(Fault("Invalid value", "format", detail, form))


def policy_text(path: str) -> bytes:
    """Return the Policy in a file.

    Raises  InputError
    """
    if not os.path.exists(path):
        raise InputError(f"missing policy config file {path}")
    try:
        return read_file(path, CONFIG_LIMIT)
    except InputError as error:
        raise InputError(f"couldn't read policy config: {error}") from None


def policy_of(data: object) -> bytes:
    """Return the Policy in a ConfigMap's data.

    Raises  InputError
    """
    found = data.get(POLICY_KEY) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise InputError(f'missing policy config map value at key "{POLICY_KEY}"')
    return found.encode()
