"""The semantics of the flags of kube-scheduler 1.19 to 1.22: validation, warnings, and their combination with ``--config``.

Source  kube-scheduler 1.21 and 1.22, cmd/kube-scheduler/app/options: options.go, deprecated.go, insecure_serving.go;
        component-base, logs and metrics; apiserver, authentication.go
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from moorage.core.config.algorithm import Algorithm
from moorage.core.config.configuration import LeaderElection
from moorage.core.config.decoder import read_text
from moorage.core.config.legacy_sets import Addresses, is_ip, join_host_port
from moorage.core.config.scheduler_document import POLICY
from moorage.core.config.validation import leader_election_faults
from moorage.errors import Fault, InputError, MoorageError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.interfaces.cli.live.removed_flags import flag_warnings
from moorage.interfaces.cli.live.run_flags import IDLE, LEADER_FIELDS, ignored_with_config
from moorage.interfaces.cli.live.run_release import Era
from moorage.interfaces.cli.live.run_serving import empty_header_faults, metric_faults
from moorage.interfaces.cli.pflag import Given

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
        return self.era.config is not None and is_policy(self.era.config)

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
            yield from self._component_faults()
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
        yield from self._metric_faults()
        yield from self._log_faults()

    def _component_faults(self) -> Iterator[str]:
        burst = self.given["kube-api-burst"]
        if burst < 0:
            yield str(Fault("Invalid value", "clientConnection.burst", "must be non-negative", burst))
        yield from map(str, leader_election_faults(self.leader_election(), self.era.emulated))

    def _metric_faults(self) -> Iterator[str]:
        yield from metric_faults(self.given, self.era.emulated, self.given["allow-metric-labels"])

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

    # -- warnings -------------------------------------------------------------------------------------------------------

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


def is_policy(text: bytes) -> bool:
    """Return True for a document whose kind is Policy."""
    try:
        return read_text(text, "", "").kind == POLICY
    except MoorageError:
        return False


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
