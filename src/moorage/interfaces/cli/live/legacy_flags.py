"""The flags of kube-scheduler 1.19 to 1.22, for ``moorage run --emulate``.

Flags that 1.36 still has are taken from ``run_flags`` with the default of the older release; the others are defined here.
``--help`` marks the flags that are accepted but have no effect.

Source  kube-scheduler 1.19 to 1.22, cmd/kube-scheduler/app/options; apiserver/pkg/server/options; component-base/config,
        logs and metrics; klog/v2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.releases import RELEASES, Release
from moorage.core.config.legacy_sets import DEFAULT_HOST, DEFAULT_PORT
from moorage.core.config.release_1_21 import LOCKS, PROVIDERS
from moorage.interfaces.cli.live.run_flags import FLAGS
from moorage.interfaces.cli.pflag import Flag

_ALONE: Final = "Not with --config."
_COMPATIBLE: Final = "accepted for compatibility."

_INSECURE: Final = (
    Flag(
        "address", "str", DEFAULT_HOST, "Insecure serving",
        f"DEPRECATED: the IP address to serve --port on (0.0.0.0 or :: for all interfaces). {_ALONE}",
        metavar="ADDRESS", instead="see --bind-address instead.",
    ),
    Flag(
        "port", "int", DEFAULT_PORT, "Insecure serving",
        "DEPRECATED: the port to serve health and metrics on over plain HTTP, without authentication; 0 disables it. "
        "With --config only the value 0 takes effect.",
        instead="see --secure-port instead.",
    ),
)  # fmt: skip
_ALGORITHM: Final = (
    Flag(
        "algorithm-provider", "str", "", "Deprecated",
        f"DEPRECATED: the algorithm provider to use: {' or '.join(PROVIDERS)}.",
        metavar="NAME", instead="configure plugins in the profiles of --config instead.",
    ),
    Flag(
        "policy-config-file", "str", "", "Deprecated",
        "DEPRECATED: file with a scheduler Policy; used without --policy-configmap or with --use-legacy-policy-config. Not "
        "with plugins in --config.",
        metavar="FILE", files=True, instead="configure plugins in the profiles of --config instead.",
    ),
    Flag(
        "policy-configmap", "str", "", "Deprecated",
        "DEPRECATED: name of the ConfigMap whose key policy.cfg holds a Policy; it must exist at startup. Not with plugins in "
        "--config.",
        metavar="NAME", instead="configure plugins in the profiles of --config instead.",
    ),
    Flag(
        "policy-configmap-namespace", "str", "kube-system", "Deprecated", "DEPRECATED: the namespace of --policy-configmap.",
        metavar="NAME", instead="configure plugins in the profiles of --config instead.",
    ),
    Flag(
        "use-legacy-policy-config", "bool", False, "Deprecated",
        "DEPRECATED: use the Policy of --policy-config-file and ignore --policy-configmap.",
        instead="configure plugins in the profiles of --config instead.",
    ),
)  # fmt: skip
_DEPRECATED: Final = (
    *_ALGORITHM,
    Flag(
        "hard-pod-affinity-symmetric-weight", "int", 1, "Deprecated",
        f"DEPRECATED: weight of the required pod affinity of placed pods in scores, 0-100. Not with a Policy. {_ALONE}",
        instead="set hardPodAffinityWeight in InterPodAffinityArgs of --config instead.",
    ),
    Flag(
        "lock-object-name", "str", "kube-scheduler", "Deprecated", f"DEPRECATED: the name of the lock object. {_ALONE}",
        sets="leader-elect-resource-name", instead="use --leader-elect-resource-name instead.",
    ),
    Flag(
        "lock-object-namespace", "str", "kube-system", "Deprecated", f"DEPRECATED: the namespace of the lock object. {_ALONE}",
        sets="leader-elect-resource-namespace", instead="use --leader-elect-resource-namespace instead.",
    ),
    Flag(
        "scheduler-name", "str", "default-scheduler", "Deprecated",
        f"DEPRECATED: name of the scheduler; it selects pods by spec.schedulerName. {_ALONE}",
        metavar="NAME", instead="name the profile in --config instead.",
    ),
)  # fmt: skip
_LOGS: Final = (
    Flag(
        "experimental-logging-sanitization", "bool", False, "Logs", f"Secrets are never logged; {_COMPATIBLE}"
    ),
    Flag("add-dir-header", "bool", False, "Global", f"Headers contain only the file name; {_COMPATIBLE}"),
    Flag("alsologtostderr", "bool", False, "Global", f"Logs always go to standard error; {_COMPATIBLE}"),
    Flag("log-backtrace-at", "str", ":0", "Global", f"Stack traces are never logged; {_COMPATIBLE}", metavar="FILE:N"),
    Flag("log-dir", "str", "", "Global", f"Logs go to standard error only; {_COMPATIBLE}", metavar="DIR"),
    Flag("log-file", "str", "", "Global", f"Logs go to standard error only; {_COMPATIBLE}", metavar="FILE"),
    Flag("log-file-max-size", "level", 1800, "Global", f"Logs go to standard error only; {_COMPATIBLE}", metavar="MIB"),
    Flag("logtostderr", "bool", True, "Global", f"Logs go to standard error only; {_COMPATIBLE}"),
    Flag("one-output", "bool", False, "Global", f"Each line is always written once; {_COMPATIBLE}"),
    Flag("skip-headers", "bool", False, "Global", f"Lines always have headers; {_COMPATIBLE}"),
    Flag("skip-log-headers", "bool", False, "Global", f"Logs go to standard error only; {_COMPATIBLE}"),
    Flag("stderrthreshold", "str", "2", "Global", f"Logs always go to standard error; {_COMPATIBLE}"),
)  # fmt: skip
_OWN: Final = {flag.name: flag for flag in (*_INSECURE, *_DEPRECATED, *_LOGS)}
_TODAY: Final = {flag.name: flag for flag in FLAGS}

#: Section of ``--help`` → its flags.
_SECTIONS: Final[Mapping[str, str]] = {
    "Misc": "config master write-config-to",
    "Secure serving": """
        bind-address cert-dir http2-max-streams-per-connection permit-address-sharing permit-port-sharing secure-port
        tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file tls-sni-cert-key
    """,
    "Insecure serving": "address port",
    "Authentication": """
        authentication-kubeconfig authentication-skip-lookup authentication-token-webhook-cache-ttl
        authentication-tolerate-lookup-failure client-ca-file requestheader-allowed-names requestheader-client-ca-file
        requestheader-extra-headers-prefix requestheader-group-headers requestheader-username-headers
    """,
    "Authorization": """
        authorization-always-allow-paths authorization-kubeconfig authorization-webhook-cache-authorized-ttl
        authorization-webhook-cache-unauthorized-ttl
    """,
    "Deprecated": """
        algorithm-provider contention-profiling hard-pod-affinity-symmetric-weight kube-api-burst kube-api-content-type
        kube-api-qps kubeconfig lock-object-name lock-object-namespace policy-config-file policy-configmap
        policy-configmap-namespace profiling scheduler-name use-legacy-policy-config
    """,
    "Leader election": """
        leader-elect leader-elect-lease-duration leader-elect-renew-deadline leader-elect-resource-lock
        leader-elect-resource-name leader-elect-resource-namespace leader-elect-retry-period
    """,
    "Feature gate": "feature-gates",
    "Metrics": "allow-metric-labels disabled-metrics show-hidden-metrics-for-version",
    "Logs": "experimental-logging-sanitization logging-format",
    "Global": """
        add-dir-header alsologtostderr log-backtrace-at log-dir log-file log-file-max-size log-flush-frequency logtostderr
        one-output skip-headers skip-log-headers stderrthreshold v version vmodule
    """,
    "Moorage": " ".join(flag.name for flag in FLAGS if flag.section == "Moorage"),
}
#: Help texts that differ from those of 1.36.
_HELP: Final = {
    "config": "A KubeSchedulerConfiguration v1beta1; without it, the flags are the configuration.",
    "leader-elect-resource-lock": f"The type of resource object used for locking: {', '.join(LOCKS)}.",
}
#: Help texts of 1.22 that differ from those of 1.21.
_HELP_1_22: Final = {
    "config": "A KubeSchedulerConfiguration v1beta1 or v1beta2; without it, the flags are the configuration.",
    "policy-config-file": "DEPRECATED: file with a scheduler Policy; used without --policy-configmap or with "
    "--use-legacy-policy-config. It replaces the profiles of --config.",
    "policy-configmap": "DEPRECATED: name of the ConfigMap whose key policy.cfg holds a Policy; it must exist at startup. It "
    "replaces the profiles of --config.",
}

#: Flags of these releases that 1.36 does not have, and those of them that have no effect here.
GONE: Final = _OWN
IDLE: Final = frozenset(flag.name for flag in _LOGS)
_NOT_WITH_CONFIG: Final = frozenset([
    "address", "contention-profiling", "hard-pod-affinity-symmetric-weight", "kube-api-burst", "kube-api-content-type",
    "kube-api-qps", "kubeconfig", "lock-object-name", "lock-object-namespace", "port", "profiling", "scheduler-name",
])  # fmt: skip


def flags_of(name: str) -> tuple[Flag, ...]:
    """Return the flags of one of the releases 1.19 to 1.22, in the order of help."""
    release = RELEASES[name]
    has = release.own_flags | (_TODAY.keys() - release.lacks_flags)
    return tuple(_flag(flag, section, release) for section, names in _SECTIONS.items() for flag in names.split() if flag in has)


def ignored_with_config(release: Release) -> frozenset[str]:
    """Return the flags that a configuration file overrides. A ``port`` of 0 still takes effect."""
    if release.election_flags_override:
        return _NOT_WITH_CONFIG
    return _NOT_WITH_CONFIG.union(_SECTIONS["Leader election"].split())


def _flag(name: str, section: str, release: Release) -> Flag:
    flag = replace(_OWN.get(name) or _TODAY[name], section=section)
    texts = _HELP if release.legacy_flags else {**_HELP, **_HELP_1_22}
    changed: dict[str, Any] = {"help": texts.get(name, flag.help)}
    if name == "leader-elect-resource-lock":
        changed["default"] = release.default_lock
    elif name == "authorization-always-allow-paths":
        changed["default"] = release.open_paths
    if section == "Leader election" and not release.election_flags_override:
        changed["help"] += f" {_ALONE}"
    if name.startswith("lock-object-") and release.election_flags_override:
        changed["sets"] = ""  # --leader-elect-resource-… wins in any order
    return replace(flag, **changed)
