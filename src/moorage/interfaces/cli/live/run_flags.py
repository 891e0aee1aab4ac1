"""The flags of ``moorage run``: those of kube-scheduler 1.36 with its meaning and defaults, and Moorage's own.

Source  cmd/kube-scheduler/app/options/options.go and deprecated.go; apiserver/pkg/server/options; component-base
"""

from __future__ import annotations

from typing import Final

from moorage.interfaces.cli.pflag import Flag

_MISC: Final = (
    Flag(
        "config",
        "str",
        "",
        "Misc",
        "Path of a KubeSchedulerConfiguration file; without it, kube-scheduler's defaults apply.",
        metavar="FILE",
        files=True,
    ),
    Flag("master", "str", "", "Misc", "The address of the API server; overrides the value in the kubeconfig.", metavar="URL"),
    Flag(
        "write-config-to",
        "str",
        "",
        "Misc",
        "Write the effective configuration to this file and exit.",
        metavar="FILE",
        files=True,
    ),
)
_SERVING: Final = (
    Flag("bind-address", "ip", "0.0.0.0", "Secure serving", "The IP address to listen on; 0.0.0.0 or :: for all interfaces."),  # noqa: S104
    Flag(
        "cert-dir", "str", "", "Secure serving",
        "Directory of the TLS certificate kube-scheduler.crt and its key; created if they do not exist.", metavar="DIR",
        files=True,
    ),
    Flag("disable-http2-serving", "bool", False, "Secure serving", "HTTP/2 is not supported; accepted for compatibility."),
    Flag(
        "http2-max-streams-per-connection", "int", 0, "Secure serving", "HTTP/2 is not supported; accepted for compatibility."
    ),
    Flag("permit-address-sharing", "bool", False, "Secure serving", "Set SO_REUSEADDR when binding the port."),
    Flag(
        "permit-port-sharing", "bool", False, "Secure serving",
        "Set SO_REUSEPORT when binding the port, so that several processes can listen on it.",
    ),
    Flag("secure-port", "int", 10259, "Secure serving", "The port to serve HTTPS on; 0 disables HTTPS."),
    Flag(
        "tls-cert-file", "str", "", "Secure serving",
        "File with the TLS certificate, followed by its intermediate certificates.", metavar="FILE", files=True,
    ),
    Flag("tls-cipher-suites", "list", (), "Secure serving", "Cipher suites to allow up to TLS 1.2, by their Go names."),
    Flag(
        "tls-curve-preferences", "numbers", (), "Secure serving", "Key exchange mechanisms to allow, by Go's CurveID numbers."
    ),
    Flag(
        "tls-min-version", "str", "", "Secure serving",
        "Minimum TLS version: VersionTLS10 to VersionTLS13; VersionTLS12 by default.",
    ),
    Flag(
        "tls-private-key-file", "str", "", "Secure serving", "The private key of --tls-cert-file.", metavar="FILE", files=True
    ),
    Flag(
        "tls-sni-cert-key", "pair of files", (), "Secure serving",
        "Another certificate and key, with the server names to use them for. May be repeated.", metavar="CERT,KEY[:NAMES]",
    ),
)  # fmt: skip
_AUTHENTICATION: Final = (
    Flag(
        "authentication-kubeconfig", "str", "", "Authentication",
        "Kubeconfig of the cluster that reviews bearer tokens (TokenReview).", metavar="FILE", files=True,
    ),
    Flag(
        "authentication-skip-lookup", "bool", False, "Authentication",
        "Do not read the authentication configuration of the cluster.",
    ),
    Flag("authentication-token-webhook-cache-ttl", "duration", 10.0, "Authentication", "How long token reviews are cached."),
    Flag(
        "authentication-tolerate-lookup-failure", "bool", True, "Authentication",
        "Start even if the authentication configuration of the cluster cannot be read.",
    ),
    Flag(
        "client-ca-file", "str", "", "Authentication", "CA bundle that signs client certificates.", metavar="FILE", files=True
    ),
    Flag(
        "requestheader-allowed-names", "list", (), "Authentication",
        "Common names of the client certificates of front proxies; empty allows all.",
    ),
    Flag(
        "requestheader-client-ca-file", "str", "", "Authentication",
        "CA bundle that signs the client certificates of front proxies.", metavar="FILE", files=True,
    ),
    Flag(
        "requestheader-extra-headers-prefix", "list", ("x-remote-extra-",), "Authentication",
        "Prefixes of the request headers that hold extra attributes of the user.",
    ),
    Flag(
        "requestheader-group-headers", "list", ("x-remote-group",), "Authentication",
        "Request headers that hold the user's groups.",
    ),
    Flag("requestheader-uid-headers", "list", (), "Authentication", "Request headers that hold the user's UID."),
    Flag(
        "requestheader-username-headers", "list", ("x-remote-user",), "Authentication",
        "Request headers that hold the user name.",
    ),
)  # fmt: skip
_AUTHORIZATION: Final = (
    Flag(
        "authorization-always-allow-paths", "list", ("/healthz", "/readyz", "/livez"), "Authorization",
        "Paths that are served without authorization.",
    ),
    Flag(
        "authorization-kubeconfig", "str", "", "Authorization",
        "Kubeconfig of the cluster that reviews access (SubjectAccessReview).", metavar="FILE", files=True,
    ),
    Flag(
        "authorization-webhook-cache-authorized-ttl", "duration", 10.0, "Authorization",
        "How long 'authorized' responses are cached.",
    ),
    Flag(
        "authorization-webhook-cache-unauthorized-ttl", "duration", 10.0, "Authorization",
        "How long 'unauthorized' responses are cached.",
    ),
)  # fmt: skip
_DEPRECATED: Final = (
    Flag("contention-profiling", "bool", True, "Deprecated", "There are no locks to profile; accepted for compatibility."),
    Flag("kube-api-burst", "int", 100, "Deprecated", "Burst of requests to the API server. Not with --config."),
    Flag(
        "kube-api-content-type", "str", "application/vnd.kubernetes.protobuf", "Deprecated",
        "Requests always use JSON; accepted for compatibility.",
    ),
    Flag(
        "kube-api-qps", "float", 50.0, "Deprecated",
        "Requests to the API server a second; 0 means the default, a negative value no limit. Not with --config.",
    ),
    Flag(
        "kubeconfig", "str", "", "Deprecated",
        "Kubeconfig of the cluster; without it, KUBECONFIG or the service account of the pod. Not with --config.",
        metavar="FILE", files=True,
    ),
    Flag(
        "pod-max-in-unschedulable-pods-duration", "duration", 300.0, "Deprecated",
        "The longest time that a pod stays unschedulable before it is retried without an event.",
    ),
    Flag("profiling", "bool", True, "Deprecated", "Serve profiling at /debug/pprof/, and /debug/flags/v. Not with --config."),
)  # fmt: skip
_LEADER: Final = (
    Flag("leader-elect", "bool", True, "Leader election", "Enable leader election, so that one of several replicas schedules."),
    Flag(
        "leader-elect-lease-duration", "duration", 15.0, "Leader election",
        "How long candidates wait before they take over a lease that is not renewed.",
    ),
    Flag(
        "leader-elect-renew-deadline", "duration", 10.0, "Leader election",
        "How long the leader tries to renew the lease before it stops leading.",
    ),
    Flag(
        "leader-elect-resource-lock", "str", "leases", "Leader election",
        "The type of resource object used for locking; only leases.",
    ),
    Flag("leader-elect-resource-name", "str", "kube-scheduler", "Leader election", "The name of the lease."),
    Flag("leader-elect-resource-namespace", "str", "kube-system", "Leader election", "The namespace of the lease."),
    Flag("leader-elect-retry-period", "duration", 2.0, "Leader election", "How often to try to acquire or renew the lease."),
)  # fmt: skip
_GATES: Final = (
    Flag(
        "emulated-version", "list", (), "Feature gate", "The release whose feature gates are emulated; only 1.36.",
        metavar="VERSION",
    ),
    Flag(
        "min-compatibility-version", "list", (), "Feature gate", "Has no effect; accepted for compatibility.", metavar="VERSION"
    ),
    Flag("feature-gates", "pairs", (), "Feature gate", "Feature gates, in kube-scheduler's format.", metavar="NAME=BOOL,…"),
)  # fmt: skip
_METRICS: Final = (
    Flag(
        "allow-metric-labels", "map", {}, "Metrics", 'The values that a metric\'s label may have; others become "unexpected".',
        metavar="METRIC,LABEL=VALUES",
    ),
    Flag(
        "allow-metric-labels-manifest", "str", "", "Metrics", "File with the lists of --allow-metric-labels.", metavar="FILE",
        files=True,
    ),
    Flag("disabled-metrics", "list", (), "Metrics", "Metrics to disable."),
    Flag(
        "show-hidden-metrics-for-version", "str", "", "Metrics",
        "Show metrics that the previous minor release, which is the only value allowed, deprecated; 1.36 hides none.",
    ),
)  # fmt: skip
_LOGS: Final = (
    Flag("log-flush-frequency", "duration", 5.0, "Logs", "Every line is written immediately; accepted for compatibility."),
    Flag(
        "log-json-info-buffer-size", "quantity", "0", "Logs", "Every line is written immediately; accepted for compatibility."
    ),
    Flag("log-json-split-stream", "bool", False, "Logs", "Needs the feature gate LoggingAlphaOptions, which is disabled."),
    Flag(
        "log-text-info-buffer-size", "quantity", "0", "Logs", "Every line is written immediately; accepted for compatibility."
    ),
    Flag("log-text-split-stream", "bool", False, "Logs", "Needs the feature gate LoggingAlphaOptions, which is disabled."),
    Flag("logging-format", "str", "text", "Logs", "The log format: json or text."),
    Flag("v", "level", 0, "Logs", "The log level verbosity, 0-10.", short="v", metavar="LEVEL"),
    Flag("vmodule", "levels", "", "Logs", "The log level verbosity of single files.", metavar="FILE=LEVEL,…"),
)  # fmt: skip
_GLOBAL: Final = (Flag("version", "version", "false", "Global", "Print the version and exit; --version=raw prints details."),)
_OWN: Final = (
    Flag(
        "emulate", "str", "", "Moorage",
        "Emulate an earlier kube-scheduler: 1.34 or 1.34.1 for example, with its flags, or auto, the release of the cluster.",
        metavar="RELEASE",
    ),
    Flag(
        "plugins", "each", (), "Moorage",
        "A custom plugin, in the current directory or on the Python path, or FILE.py:CLASS. May be repeated.",
        metavar="MODULE:CLASS",
    ),
    Flag(
        "max-pd-vols",
        "int",
        0,
        "Moorage",
        "Maximum number of disks of an in-tree type on a node that sets no limit itself, for 1.19 to 1.21; KUBE_MAX_PD_VOLS "
        "by default.",
        metavar="N",
    ),
    Flag("seed", "int", 0, "Moorage", "Seed for breaking ties between equally scored nodes."),
    Flag(
        "verify", "float", 0.0, "Moorage",
        "Share of decisions to repeat without caches, 0 to 1, to find plugins whose reuse does not hold. 0.01 costs little.",
        metavar="SHARE",
    ),
    Flag(
        "record", "str", "", "Moorage",
        "Record what the scheduler watches into a log in this directory, for -f of the other commands.", metavar="DIR",
    ),
    Flag("ui", "bool", False, "Moorage", "Serve the web interface under /ui/ on the secure port; it changes nothing."),
)  # fmt: skip

FLAGS: Final = (
    *_MISC, *_SERVING, *_AUTHENTICATION, *_AUTHORIZATION, *_DEPRECATED, *_LEADER, *_GATES, *_METRICS, *_LOGS, *_GLOBAL, *_OWN,
)  # fmt: skip
#: Flag → the field of the configuration's leaderElection that it overrides.
LEADER_FIELDS: Final = {
    flag.name: flag.name.removeprefix("leader-elect-").replace("-", "_") for flag in _LEADER if flag.name != "leader-elect"
} | {"leader-elect": "leader_elect"}
