"""The flags of ``moorage run``: those of kube-scheduler 1.36, with its meaning and its defaults, and a few of our own.

Source  cmd/kube-scheduler/app/options/options.go and deprecated.go; apiserver/pkg/server/options; component-base
"""

from __future__ import annotations

from typing import Final

from moorage.cli.pflag import Flag

__all__ = ["FLAGS", "LEADER_FIELDS"]

_MISC: Final = (
    Flag(
        "config",
        "str",
        "",
        "Misc",
        "A KubeSchedulerConfiguration; without it, kube-scheduler's defaults.",
        metavar="FILE",
        files=True,
    ),
    Flag("master", "str", "", "Misc", "The API server's address, in the place of the kubeconfig's.", metavar="URL"),
    Flag("write-config-to", "str", "", "Misc", "Write the configuration to this file, and exit.", metavar="FILE", files=True),
)
_SERVING: Final = (
    Flag("bind-address", "ip", "0.0.0.0", "Secure serving", "The address to serve on; 0.0.0.0 or :: for all there are."),  # noqa: S104
    Flag(
        "cert-dir",
        "str",
        "",
        "Secure serving",
        "Where kube-scheduler.crt and kube-scheduler.key are, or are put.",
        metavar="DIR",
        files=True,
    ),
    Flag("disable-http2-serving", "bool", False, "Secure serving", "HTTP/2 is never served here; accepted for compatibility."),
    Flag(
        "http2-max-streams-per-connection",
        "int",
        0,
        "Secure serving",
        "HTTP/2 is never served here; accepted for compatibility.",
    ),
    Flag("permit-address-sharing", "bool", False, "Secure serving", "Share the address with others (SO_REUSEADDR)."),
    Flag("permit-port-sharing", "bool", False, "Secure serving", "Share the port with other processes (SO_REUSEPORT)."),
    Flag("secure-port", "int", 10259, "Secure serving", "The port to serve HTTPS on; 0 serves nothing."),
    Flag(
        "tls-cert-file",
        "str",
        "",
        "Secure serving",
        "The certificate to serve with, and what vouches for it.",
        metavar="FILE",
        files=True,
    ),
    Flag("tls-cipher-suites", "list", (), "Secure serving", "The cipher suites to allow up to TLS 1.2, by their Go names."),
    Flag("tls-curve-preferences", "numbers", (), "Secure serving", "The key exchanges to allow, by Go's CurveID numbers."),
    Flag("tls-min-version", "str", "", "Secure serving", "VersionTLS10 to VersionTLS13; VersionTLS12 without it."),
    Flag("tls-private-key-file", "str", "", "Secure serving", "The key of --tls-cert-file.", metavar="FILE", files=True),
    Flag(
        "tls-sni-cert-key",
        "pair of files",
        (),
        "Secure serving",
        "Another certificate and key, for these names. May be repeated.",
        metavar="CERT,KEY[:NAMES]",
    ),
)
_AUTHENTICATION: Final = (
    Flag(
        "authentication-kubeconfig",
        "str",
        "",
        "Authentication",
        "The cluster to ask whose a token is.",
        metavar="FILE",
        files=True,
    ),
    Flag("authentication-skip-lookup", "bool", False, "Authentication", "Do not ask the cluster whom to trust."),
    Flag(
        "authentication-token-webhook-cache-ttl",
        "duration",
        10.0,
        "Authentication",
        "How long the cluster's word on a token holds.",
    ),
    Flag(
        "authentication-tolerate-lookup-failure",
        "bool",
        True,
        "Authentication",
        "Start even if the cluster does not say whom to trust.",
    ),
    Flag("client-ca-file", "str", "", "Authentication", "Who vouches for client certificates.", metavar="FILE", files=True),
    Flag(
        "requestheader-allowed-names",
        "list",
        (),
        "Authentication",
        "Common names of proxies that may speak for others; all, if empty.",
    ),
    Flag(
        "requestheader-client-ca-file",
        "str",
        "",
        "Authentication",
        "Who vouches for proxies that speak for others.",
        metavar="FILE",
        files=True,
    ),
    Flag(
        "requestheader-extra-headers-prefix",
        "list",
        ("x-remote-extra-",),
        "Authentication",
        "What headers about a user begin with.",
    ),
    Flag("requestheader-group-headers", "list", ("x-remote-group",), "Authentication", "Headers that name a user's groups."),
    Flag("requestheader-uid-headers", "list", (), "Authentication", "Headers that name a user's UID."),
    Flag("requestheader-username-headers", "list", ("x-remote-user",), "Authentication", "Headers that name a user."),
)
_AUTHORIZATION: Final = (
    Flag(
        "authorization-always-allow-paths",
        "list",
        ("/healthz", "/readyz", "/livez"),
        "Authorization",
        "Paths that everybody may read.",
    ),
    Flag(
        "authorization-kubeconfig",
        "str",
        "",
        "Authorization",
        "The cluster to ask who may do what.",
        metavar="FILE",
        files=True,
    ),
    Flag("authorization-webhook-cache-authorized-ttl", "duration", 10.0, "Authorization", "How long the cluster's yes holds."),
    Flag("authorization-webhook-cache-unauthorized-ttl", "duration", 10.0, "Authorization", "How long the cluster's no holds."),
)
_DEPRECATED: Final = (
    Flag("contention-profiling", "bool", True, "Deprecated", "There is no lock contention here; accepted for compatibility."),
    Flag("kube-api-burst", "int", 100, "Deprecated", "Requests saved up. Not with --config."),
    Flag("kube-api-content-type", "str", "application/vnd.kubernetes.protobuf", "Deprecated", "JSON is spoken in any case."),
    Flag(
        "kube-api-qps",
        "float",
        50.0,
        "Deprecated",
        "Requests a second; 0 means the default, less lifts the limit. Not with --config.",
    ),
    Flag(
        "kubeconfig",
        "str",
        "",
        "Deprecated",
        "How to reach the cluster; without it, KUBECONFIG or the pod's account. Not with --config.",
        metavar="FILE",
        files=True,
    ),
    Flag(
        "pod-max-in-unschedulable-pods-duration",
        "duration",
        300.0,
        "Deprecated",
        "After so long, a pod that waits for an event is tried all the same.",
    ),
    Flag("profiling", "bool", True, "Deprecated", "Serve /debug/pprof/ and /debug/flags/v. Not with --config."),
)
_LEADER: Final = (
    Flag("leader-elect", "bool", True, "Leader election", "Stand for a lease, so that one of several replicas schedules."),
    Flag("leader-elect-lease-duration", "duration", 15.0, "Leader election", "How long a lease holds that nobody renews."),
    Flag(
        "leader-elect-renew-deadline",
        "duration",
        10.0,
        "Leader election",
        "How long the leader tries to renew before it gives up.",
    ),
    Flag("leader-elect-resource-lock", "str", "leases", "Leader election", "The kind of object to hold; only leases."),
    Flag("leader-elect-resource-name", "str", "kube-scheduler", "Leader election", "The lease's name."),
    Flag("leader-elect-resource-namespace", "str", "kube-system", "Leader election", "The lease's namespace."),
    Flag("leader-elect-retry-period", "duration", 2.0, "Leader election", "How often a lease is tried for, and renewed."),
)
_GATES: Final = (
    Flag("emulated-version", "list", (), "Feature gate", "Emulate the gates of a release: 1.36 here.", metavar="VERSION"),
    Flag(
        "min-compatibility-version",
        "list",
        (),
        "Feature gate",
        "Nothing hangs on it here; accepted for compatibility.",
        metavar="VERSION",
    ),
    Flag("feature-gates", "pairs", (), "Feature gate", "Feature gates, as kube-scheduler takes them.", metavar="NAME=BOOL,…"),
)
_METRICS: Final = (
    Flag(
        "allow-metric-labels",
        "map",
        {},
        "Metrics",
        'The values that a metric\'s label may take; others become "unexpected".',
        metavar="METRIC,LABEL=VALUES",
    ),
    Flag("allow-metric-labels-manifest", "str", "", "Metrics", "A file that says the same.", metavar="FILE", files=True),
    Flag("disabled-metrics", "list", (), "Metrics", "Metrics to leave out."),
    Flag("show-hidden-metrics-for-version", "str", "", "Metrics", "No metric is hidden here; accepted for compatibility."),
)
_LOGS: Final = (
    Flag("log-flush-frequency", "duration", 5.0, "Logs", "Each line is written at once; accepted for compatibility."),
    Flag("log-json-info-buffer-size", "quantity", "0", "Logs", "Each line is written at once; accepted for compatibility."),
    Flag("log-json-split-stream", "bool", False, "Logs", "Needs the gate LoggingAlphaOptions, which is closed."),
    Flag("log-text-info-buffer-size", "quantity", "0", "Logs", "Each line is written at once; accepted for compatibility."),
    Flag("log-text-split-stream", "bool", False, "Logs", "Needs the gate LoggingAlphaOptions, which is closed."),
    Flag("logging-format", "str", "text", "Logs", "How to write the log: json or text."),
    Flag("v", "level", 0, "Logs", "How much to say; 0-10.", short="v", metavar="LEVEL"),
    Flag("vmodule", "levels", "", "Logs", "How much single files say.", metavar="FILE=LEVEL,…"),
)
_GLOBAL: Final = (Flag("version", "version", "false", "Global", "Print the version and exit; --version=raw says more."),)
_OWN: Final = (
    Flag(
        "emulate",
        "str",
        "",
        "Moorage",
        "Run as kube-scheduler of this release did: 1.19, 1.20 or 1.21, with its flags, which --help then shows.",
        metavar="RELEASE",
    ),
    Flag(
        "plugins",
        "each",
        (),
        "Moorage",
        "A plugin of your own, here or on the Python path. May be repeated.",
        metavar="MODULE:CLASS",
    ),
    Flag(
        "max-pd-vols",
        "int",
        0,
        "Moorage",
        "Disks of a built-in kind on a node that does not limit them itself, for rules of 1.19 to 1.21; without it, what "
        "KUBE_MAX_PD_VOLS says.",
        metavar="N",
    ),
    Flag("seed", "int", 0, "Moorage", "Another seed draws ties between equal nodes otherwise."),
)

FLAGS: Final = (
    *_MISC, *_SERVING, *_AUTHENTICATION, *_AUTHORIZATION, *_DEPRECATED, *_LEADER, *_GATES, *_METRICS, *_LOGS, *_GLOBAL, *_OWN,
)  # fmt: skip
#: Flag → field of the configuration's leaderElection, which it overrides.
LEADER_FIELDS: Final = {
    flag.name: flag.name.removeprefix("leader-elect-").replace("-", "_") for flag in _LEADER if flag.name != "leader-elect"
} | {"leader-elect": "leader_elect"}
