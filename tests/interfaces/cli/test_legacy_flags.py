"""The flags of ``moorage run --emulate``: those of the release, with its defaults, refusals and warnings."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from moorage.api.releases import RELEASES
from moorage.errors import InputError
from moorage.interfaces.cli.live.release_flags import FLAGS, GONE, Era, flags_of, ignored_with_config, policy_of
from moorage.interfaces.cli.live.run import run
from moorage.interfaces.cli.pflag import FlagError, Given, read_flags
from tests.interfaces.cli.test_run import PAGE, run_here

OWN = {"emulate", "hang-limit", "max-pd-vols", "plugin-timeout", "plugins", "record", "seed", "ui", "verify"}

#: From the sources of kube-scheduler 1.19.7: every flag, with its default. (The generated reference pages of these releases
#: also list --azure-container-registry-config, which their generator links in and kube-scheduler does not.)
UPSTREAM_1_19 = """
add-dir-header=false address=0.0.0.0 algorithm-provider= alsologtostderr=false authentication-kubeconfig=
authentication-skip-lookup=false authentication-token-webhook-cache-ttl=10s authentication-tolerate-lookup-failure=true
authorization-always-allow-paths=[/healthz] authorization-kubeconfig= authorization-webhook-cache-authorized-ttl=10s
authorization-webhook-cache-unauthorized-ttl=10s bind-address=0.0.0.0 cert-dir= client-ca-file= config=
contention-profiling=true feature-gates= hard-pod-affinity-symmetric-weight=1 http2-max-streams-per-connection=0
kube-api-burst=100 kube-api-content-type=application/vnd.kubernetes.protobuf kube-api-qps=50 kubeconfig= leader-elect=true
leader-elect-lease-duration=15s leader-elect-renew-deadline=10s leader-elect-resource-lock=endpointsleases
leader-elect-resource-name=kube-scheduler leader-elect-resource-namespace=kube-system leader-elect-retry-period=2s
lock-object-name=kube-scheduler lock-object-namespace=kube-system log-backtrace-at=:0 log-dir= log-file=
log-file-max-size=1800 log-flush-frequency=5s logging-format=text logtostderr=true master= permit-port-sharing=false
policy-config-file= policy-configmap= policy-configmap-namespace=kube-system port=10251 profiling=true
requestheader-allowed-names=[] requestheader-client-ca-file= requestheader-extra-headers-prefix=[x-remote-extra-]
requestheader-group-headers=[x-remote-group] requestheader-username-headers=[x-remote-user] scheduler-name=default-scheduler
secure-port=10259 show-hidden-metrics-for-version= skip-headers=false skip-log-headers=false stderrthreshold=2 tls-cert-file=
tls-cipher-suites=[] tls-min-version= tls-private-key-file= tls-sni-cert-key=[] use-legacy-policy-config=false v=0
version=false vmodule= write-config-to=
"""
#: What 1.20.15 and 1.21.9 added, or gave another default.
ADDED_1_20 = "experimental-logging-sanitization=false leader-elect-resource-lock=leases one-output=false"
ADDED_1_21 = """
allow-metric-labels=[] authorization-always-allow-paths=[/healthz,/readyz,/livez] disabled-metrics=[]
permit-address-sharing=false
"""
#: What 1.22.6 removed; nothing was added.
REMOVED_1_22 = ("algorithm-provider=", "hard-pod-affinity-symmetric-weight=1", "scheduler-name=default-scheduler")
UPSTREAM_1_21 = f"{UPSTREAM_1_19} {ADDED_1_20} {ADDED_1_21}"
UPSTREAM = {
    "1.19": UPSTREAM_1_19,
    "1.20": f"{UPSTREAM_1_19} {ADDED_1_20}",
    "1.21": UPSTREAM_1_21,
    "1.22.6": " ".join(word for word in UPSTREAM_1_21.split() if word not in REMOVED_1_22),
}


@pytest.mark.parametrize(("release", "text"), UPSTREAM.items(), ids=UPSTREAM)
def test_the_flags_are_those_of_the_release(release, text):
    flags = flags_of(release)
    shown = read_flags(flags, [])[0].shown(flags)
    assert {name: value for name, value in shown.items() if name not in OWN} == dict(
        word.split("=", 1) for word in text.split()
    )
    assert shown.keys() >= OWN
    assert RELEASES[release].own_flags == shown.keys() & GONE
    assert len(flags) == len(shown)


def is_taken(release, name):
    """Return whether the command knows a flag, whatever it makes of its value."""
    try:
        run.make_context("run", ["--emulate", release, f"--{name}=1"])
    except FlagError as error:
        return error.unknown != name
    return True


@pytest.mark.parametrize("release", UPSTREAM)
def test_the_command_takes_the_flags_of_the_release_and_no_others(release):
    known = {word.partition("=")[0] for word in UPSTREAM[release].split()} | OWN
    every = {flag.name for flag in FLAGS} | set(GONE)
    assert {name for name in every if is_taken(release, name)} == known


def test_deprecated_flags_say_what_to_use():
    for release in UPSTREAM:
        deprecated = {flag.name for flag in flags_of(release) if flag.help.startswith("DEPRECATED")}
        assert {flag.name for flag in flags_of(release) if flag.instead} == deprecated
        assert deprecated >= {"port", "policy-config-file", "lock-object-name"}


@pytest.mark.parametrize("release", UPSTREAM)
def test_flags_overridden_by_a_file_exist_with_a_notice(release):
    overridden = ignored_with_config(RELEASES[release])
    assert ("leader-elect" in overridden) is (release != "1.22.6")
    for flag in flags_of(release):
        assert ("Not with --config" in flag.help or "With --config" in flag.help) is (
            flag.name in overridden and flag.name not in {"contention-profiling", "kube-api-content-type"}
        ), flag.name


def test_the_reference_page_has_every_removed_flag():
    page = PAGE.read_text("utf-8")
    for name, flag in GONE.items():
        (row,) = re.findall(rf"^\| `--{name}(?: [^`]*)?` \|(.*)\|.*\|$", page, re.MULTILINE)
        assert row.strip() == ("" if flag.default in ("", False) else f"`{flag.shown(flag.default)}`"), name
        assert flag.help in page


# -- which release -------------------------------------------------------------------------------------------------------


def test_help_shows_the_flags_of_the_release():
    for release in UPSTREAM:
        said = run_here("--help", "--emulate", release, secure=False)[1]
        for flag in flags_of(release):
            assert f"--{flag.name}" in said
        assert "--emulated-version" not in said
    assert "--policy-config-file" not in run_here("--help", secure=False)[1]


def test_the_version_is_that_of_the_release():
    for release in UPSTREAM:
        assert f"(kube-scheduler {release})" in run_here("--emulate", release, "--version")[1]


def test_a_flag_that_only_today_has_is_at_its_default_for_the_release():
    given = Era("1.20").completed(read_flags(flags_of("1.20"), [])[0])
    assert {flag.name for flag in FLAGS} <= given.values.keys()
    assert given["pod-max-in-unschedulable-pods-duration"] == 60
    assert Era().completed(Given({}, frozenset())).values == {}
    for release, seconds in (("1.22.6", 60), ("1.23.5", 60), ("1.24.17", 300)):
        later = Era(release)
        assert later.completed(read_flags(later.flags, [])[0])["pod-max-in-unschedulable-pods-duration"] == seconds


# -- what is written -----------------------------------------------------------------------------------------------------

V1BETA1 = "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n"
V1BETA2 = V1BETA1.replace("v1beta1", "v1beta2")
LABELS = json.dumps({
    "apiVersion": "v1", "kind": "Policy",
    "predicates": [{"name": "ssd", "argument": {"labelsPresence": {"labels": ["disk"], "presence": True}}}],
    "priorities": [{"name": "SelectorSpreadPriority", "weight": 2}],
})  # fmt: skip
EVERYWHERE = "0.0.0.0:10251"
TWO_PROFILES = f"""{V1BETA2}
profiles: [{{schedulerName: a, plugins: {{score: {{disabled: [{{name: '*'}}]}}}}}}, {{schedulerName: b}}]
podMaxBackoffSeconds: 30
extenders: [{{urlPrefix: 'http://e', filterVerb: f}}]
"""
WRITTEN = {  # file, flags → what is written of it
    "1.19": (None, ["--emulate=1.19"], {"resourceLock": "endpointsleases", "healthzBindAddress": EVERYWHERE}),
    "1.21": (None, ["--emulate=1.21"], {"resourceLock": "leases", "metricsBindAddress": EVERYWHERE, "burst": 100}),
    "flags": (
        None,
        ["--emulate=1.20", "--kube-api-qps=9", "--leader-elect-resource-lock=configmaps", "--port=80", "--address=::1",
         "--profiling=false", "--scheduler-name=mine", "--hard-pod-affinity-symmetric-weight=7"],
        {"qps": 9, "resourceLock": "configmaps", "healthzBindAddress": "[::1]:80", "enableProfiling": False,
         "schedulerName": "mine", "hardPodAffinityWeight": 7},
    ),
    "the last name of the lock": (
        None,
        ["--emulate=1.20", "--leader-elect-resource-name=a", "--lock-object-name=b", "--lock-object-namespace=c",
         "--leader-elect-resource-namespace=d"],
        {"resourceName": "b", "resourceNamespace": "d"},
    ),
    "port 0": (None, ["--emulate=1.21", "--port=0"], {"healthzBindAddress": "", "metricsBindAddress": ""}),
    "a provider": (None, ["--algorithm-provider=ClusterAutoscalerProvider"], {"score": "NodeResourcesMostAllocated"}),
    "a file": (
        f"{V1BETA1}leaderElection: {{resourceLock: endpoints}}\nhealthzBindAddress: 127.0.0.1:1\n",
        [],
        {"resourceLock": "endpoints", "healthzBindAddress": "127.0.0.1:1", "metricsBindAddress": EVERYWHERE},
    ),
    "a file, flags do not count": (
        V1BETA1,
        ["--kube-api-qps=9", "--lock-object-name=a", "--port=1", "--scheduler-name=a", "--leader-elect=false"],
        {"qps": 50, "resourceName": "kube-scheduler", "healthzBindAddress": EVERYWHERE, "schedulerName": "default-scheduler",
         "leaderElect": True},
    ),
    "a file, and nothing over plain HTTP": (V1BETA1, ["--port=0"], {"healthzBindAddress": "", "metricsBindAddress": ""}),
    "a file and a provider": (
        V1BETA1, ["--algorithm-provider=ClusterAutoscalerProvider"], {"score": "NodeResourcesMostAllocated"},
    ),
    "a Policy": (None, ["--policy-config-file={policy}"], {"filter": "NodeLabel", "score": "PodTopologySpread"}),
    "a Policy of 1.19": (None, ["--policy-config-file={policy}", "--emulate=1.19"], {"score": "SelectorSpread"}),
    "a Policy with a name": (
        None, ["--policy-config-file={policy}", "--scheduler-name=mine"], {"filter": "NodeLabel", "schedulerName": "mine"},
    ),
    "a Policy whatever the ConfigMap": (
        None, ["--policy-config-file={policy}", "--use-legacy-policy-config", "--policy-configmap=x"], {"filter": "NodeLabel"},
    ),
    "a Policy beside a file": (
        f"{V1BETA1}profiles: [{{schedulerName: theirs}}]\npodMaxBackoffSeconds: 30\n", ["--policy-config-file={policy}"],
        {"filter": "NodeLabel", "schedulerName": "theirs", "podMaxBackoffSeconds": 30},
    ),
    "a Policy in the place of a file": (
        LABELS, ["--scheduler-name=mine", "--lock-object-name=a"],
        {"filter": "NodeLabel", "schedulerName": "mine", "resourceName": "a"},
    ),
    "1.22": (None, ["--emulate=1.22"], {"resourceLock": "leases", "healthzBindAddress": EVERYWHERE, "burst": 100}),
    "flags of 1.22": (
        None, ["--emulate=1.22", "--kube-api-qps=9", "--leader-elect-resource-lock=configmaps", "--port=80", "--address=::1"],
        {"qps": 9, "resourceLock": "configmaps", "healthzBindAddress": "[::1]:80", "metricsBindAddress": "[::1]:80"},
    ),
    "no name of the lock comes after that of leader election in 1.22": (
        None, ["--emulate=1.22", "--leader-elect-resource-name=a", "--lock-object-name=b", "--lock-object-namespace=c"],
        {"resourceName": "a", "resourceNamespace": "c"},
    ),
    "port 0 in 1.22": (None, ["--emulate=1.22", "--port=0"], {"healthzBindAddress": None, "metricsBindAddress": None}),
    "a v1beta1 file in 1.22": (
        V1BETA1, ["--emulate=1.22", "--kube-api-qps=9", "--port=1", "--leader-elect-resource-name=a", "--lock-object-name=b"],
        {"qps": 50, "resourceName": "a", "healthzBindAddress": EVERYWHERE},
    ),
    "a v1beta2 file in 1.22": (
        f"{V1BETA2}leaderElection: {{resourceLock: endpoints}}\nhealthzBindAddress: 127.0.0.1:1\n",
        ["--emulate=1.22", "--leader-elect=false", "--lock-object-name=b"],
        {"leaderElect": False, "resourceLock": "endpoints", "resourceName": "kube-scheduler",
         "healthzBindAddress": "127.0.0.1:1", "metricsBindAddress": EVERYWHERE},
    ),
    "a file of 1.22, and nothing over plain HTTP": (
        V1BETA2, ["--emulate=1.22", "--port=0"], {"healthzBindAddress": None, "metricsBindAddress": None},
    ),
    "a Policy of 1.22": (
        None, ["--emulate=1.22", "--policy-config-file={policy}"],
        {"filter": "NodeLabel", "schedulerName": "default-scheduler"},
    ),
    "a Policy in the place of the profiles of a file in 1.22": (
        TWO_PROFILES,
        ["--emulate=1.22", "--policy-config-file={policy}"],
        {"filter": "NodeLabel", "score": "PodTopologySpread", "schedulerName": "default-scheduler",
         "podMaxBackoffSeconds": 30, "extenders": []},
    ),
    "a Policy in the place of a v1beta1 file's profile in 1.22": (
        f"{V1BETA1}profiles: [{{schedulerName: theirs}}]\n",
        ["--emulate=1.22", "--policy-config-file={policy}", "--use-legacy-policy-config", "--policy-configmap=x"],
        {"filter": "NodeLabel", "schedulerName": "default-scheduler"},
    ),
}  # fmt: skip


def flat(written):
    (profile,) = written["profiles"]
    args = {name: value for one in profile["pluginConfig"] for name, value in one["args"].items() if name not in written}
    names = {point: [one["name"] for one in found.get("enabled", ())] for point, found in profile["plugins"].items()}
    return {
        "extenders": [],
        **args,
        **names,
        **profile,
        **written["leaderElection"],
        **written["clientConnection"],
        **written,
        **names,
    }


@pytest.mark.parametrize(("file", "flags", "found"), WRITTEN.values(), ids=WRITTEN)
def test_a_configuration_of_that_version_is_written_and_is_valid(tmp_path, moorage, file, flags, found):
    (tmp_path / "policy.json").write_text(LABELS)
    given = [flag.replace("{policy}", str(tmp_path / "policy.json")) for flag in flags]
    if file is not None:
        (tmp_path / "config.yaml").write_text(file)
        given += ["--config", tmp_path / "config.yaml"]
    out = tmp_path / "out.yaml"
    status, said = run_here(*given, "--write-config-to", out)
    assert status == 0, said
    written = yaml.safe_load(out.read_text())
    assert written["apiVersion"].endswith(("/v1beta1", "/v1beta2") if "--emulate=1.22" in flags else "/v1beta1")
    is_as = flat(written)
    for name, value in found.items():
        is_named = isinstance(value, str) and isinstance(is_as[name], list)
        assert value in is_as[name] if is_named else value == is_as.get(name), name
    release = [f"--emulate={flag.partition('=')[2]}" for flag in flags if flag.startswith("--emulate")]
    checked = moorage("config", "validate", out, *release)
    assert (checked.status, checked.err) == (0, "")
    again = tmp_path / "again.yaml"
    assert (
        run_here(*release, "--config", out, "--write-config-to", again, *(["--port=0"] if "--port=0" in flags else []))[0] == 0
    )
    assert again.read_text() == out.read_text()


def test_what_a_file_cannot_say_is_reported(tmp_path):
    (tmp_path / "policy.json").write_text(LABELS.replace("{", '{"alwaysCheckAllPredicates": true, ', 1))
    out = tmp_path / "out.yaml"
    said = run_here("--policy-config-file", tmp_path / "policy.json", "--port=0", "--write-config-to", out)[1]
    assert "A configuration cannot turn off plain HTTP serving: add --port=0" in said
    assert "only a Policy can set alwaysCheckAllPredicates" in said


def test_a_configuration_on_standard_input_is_read_once(tmp_path, moorage):
    for release in ([], ["--emulate", "1.20"]):
        ran = moorage("run", *release, "--config=-", "--write-config-to", tmp_path / "out.yaml", stdin=V1BETA1.encode())
        assert ran.status == 0, ran.err
        assert "v1beta1" in (tmp_path / "out.yaml").read_text()


# -- warnings ------------------------------------------------------------------------------------------------------------

WARNED = {  # file, flags → lines of the log
    "deprecated flags": (
        None,
        ["--emulate=1.21", "--port=0", "--address=127.0.0.1", "--lock-object-name=a"],
        ["Flag --port has been deprecated, see --secure-port instead.",
         "Flag --address has been deprecated, see --bind-address instead.",
         "Flag --lock-object-name has been deprecated, use --leader-elect-resource-name instead."],
    ),
    "flags beside a file": (
        V1BETA1,
        ["--leader-elect-resource-name=a", "--kubeconfig=b", "--port=80"],
        ["Ignored, because --config is given: --kubeconfig, --leader-elect-resource-name, --port; set it in "],
    ),
    "flags beside a Policy": (
        None,
        ["--policy-config-file={policy}", "--algorithm-provider=Nope", "--hard-pod-affinity-symmetric-weight=3"],
        ["Ignored, because a Policy is given: --algorithm-provider, --hard-pod-affinity-symmetric-weight"],
    ),
    "flags beside a file in 1.22": (
        V1BETA2,
        ["--emulate=1.22", "--leader-elect-resource-name=a", "--kubeconfig=b", "--port=80", "--lock-object-name=c"],
        ["Ignored, because --config is given: --kubeconfig, --lock-object-name, --port; set it in ",
         "Flag --lock-object-name has been deprecated, use --leader-elect-resource-name instead."],
    ),
    "where to log": (
        None,
        ["--emulate=1.20", "--log-file=/var/log/x", "--logtostderr=false"],
        ["No effect, because logs go to standard error: --log-file, --logtostderr"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "flags", "lines"), WARNED.values(), ids=WARNED)
def test_what_is_warned_of(tmp_path, file, flags, lines):
    (tmp_path / "policy.json").write_text(LABELS)
    given = [flag.replace("{policy}", str(tmp_path / "policy.json")) for flag in flags]
    if file is not None:
        (tmp_path / "config.yaml").write_text(file)
        given += ["--config", tmp_path / "config.yaml"]
    said = run_here(*given, "--write-config-to", tmp_path / "out.yaml")[1]
    warned = [line for line in said.splitlines() if line.startswith("W")]
    for line in lines:
        assert any(line in one for one in warned), said


# -- refusals ------------------------------------------------------------------------------------------------------------

FORMAT_OF_1_22 = 'format: Invalid value: "json": Non-default format doesn\'t honor flag'
NO_TEXT = "non-default logging format doesn't honor flag"
REFUSED = {  # flags, file → what is said
    "an unknown release": (["--emulate=1.18"], None, 'invalid argument "1.18" for "--emulate" flag: release 1.18 is not known'),
    "another release's flag": (["--emulate=1.19", "--one-output"], None, "unknown flag: --one-output: not a flag of 1.19"),
    "a flag of that time, today": (["--port=0"], None, "choose the release with --emulate"),
    "a flag of today, then": (
        ["--algorithm-provider=DefaultProvider", "--emulated-version=1.37"], None,
        "unknown flag: --emulated-version: not a flag of 1.21, which --algorithm-provider chose, but of 1.37",
    ),
    "no Policy to use": (
        ["--use-legacy-policy-config"], None,
        "policyConfigFile: Required value: required when --use-legacy-policy-config is true",
    ),
    "no such Policy": (["--policy-config-file=/nowhere/p"], None, "missing policy config file /nowhere/p"),
    "a folder for a Policy": (["--policy-config-file=/"], None, "couldn't read policy config: /: expected a file"),
    "no Policy at all": (["--policy-config-file={}"], V1BETA1, "invalid policy: {}: kind: Unsupported value"),
    "a Policy that cannot be": (
        ["--policy-config-file={}"], "{apiVersion: v1, kind: Policy, predicates: [{name: Nope}]}",
        "couldn't create scheduler from policy: {}: predicates[0].name: Not found: ",
    ),
    "a Policy and plugins": (
        ["--policy-config-file={}", "--config={config}"], LABELS, "cannot set a Plugin config and Policy config",
    ),
    "two Policies": (
        ["--policy-config-file={}", "--config={}"], LABELS, "{}: a Policy given with --config excludes another Policy",
    ),
    "the gates of then, today": (
        ["--emulated-version=1.21"], None, "--emulated-version: 1.21 cannot be emulated; use 1.37, or --emulate 1.21",
    ),
    "an unknown provider": (
        ["--algorithm-provider=Nope"], None,
        'couldn\'t create scheduler using provider "Nope": algorithm provider "Nope" is not registered',
    ),
    "a weight": (
        ["--emulate=1.21", "--hard-pod-affinity-symmetric-weight=101"], None,
        "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0, 100]",
    ),
    "a weight in 1.20": (
        ["--emulate=1.20", "--hard-pod-affinity-symmetric-weight=-1"], None, "Invalid value: -1: not in valid range [0-100]",
    ),
    "a port": (
        ["--emulate=1.21", "--port=65536"], None,
        "--port 65536 must be between 0 and 65535, inclusive. 0 for turning off insecure (HTTP) port",
    ),
    "an address": (["--emulate=1.21", "--address=here"], None, "--address here is an invalid IP address"),
    "a lock": (
        ["--emulate=1.21", "--master=http://127.0.0.1:1", "--port=0", "--leader-elect-resource-lock=podsleases"], None,
        "couldn't create resource lock: Invalid lock-type podsleases",
    ),
    "no lock": (
        ["--emulate=1.21", "--leader-elect-resource-lock="], None,
        'leaderElection.resourceLock: Invalid value: "": resourceLock is required',
    ),
    "a lease shorter than its renewal": (
        ["--emulate=1.21", "--leader-elect-lease-duration=5s"], None, "LeaseDuration must be greater than RenewDeadline",
    ),
    "a burst": (
        ["--emulate=1.21", "--kube-api-burst=-1"], None, "clientConnection.burst: Invalid value: -1: must be non-negative",
    ),
    "hidden metrics": (
        ["--emulate=1.20", "--show-hidden-metrics-for-version=1.18"], None,
        "--show-hidden-metrics-for-version must be omitted or have the value '1.19'. Only the previous minor version is",
    ),
    "labels of metrics": (
        ["--emulate=1.21", "--allow-metric-labels=a=b"], None, "--allow-metric-labels must has a list of kv pair with format",
    ),
    "a log format": (["--emulate=1.21", "--logging-format=xml"], None, "unsupported log format: xml"),
    "flags of the text format": (
        ["--emulate=1.21", "--logging-format=json", "--skip-headers", "--vmodule=a=1", "--log-flush-frequency=1s"], None,
        f"[{', '.join(f'{NO_TEXT}: {name}' for name in ('skip_headers', 'vmodule', 'log-flush-frequency'))}]",
    ),
    "a file of today": (["--emulate=1.21", "--config={}"], V1BETA1.replace("v1beta1", "v1"), 'registered for version "'),
    "a file of then, today": (["--emulate=1.36", "--config={}"], V1BETA1, 'registered for version "'),
    "a flag of 1.21, in 1.22": (
        ["--emulate=1.22", "--algorithm-provider=DefaultProvider"], None,
        "unknown flag: --algorithm-provider: not a flag of 1.22.6, which --emulate chose, but of 1.19, 1.20, 1.21;",
    ),
    "a flag of 1.36, in 1.22": (
        ["--emulate=1.22", "--emulated-version=1.37"], None, "not a flag of 1.22.6, which --emulate chose, but of 1.37",
    ),
    "no Policy to use in 1.22": (
        ["--emulate=1.22", "--use-legacy-policy-config"], None,
        "policyConfigFile: Required value: required when --use-legacy-policy-config is true",
    ),
    "no such Policy in 1.22": (
        ["--emulate=1.22", "--policy-config-file=/nowhere/p"], None, "missing policy config file /nowhere/p",
    ),
    "a Policy that cannot be in 1.22": (
        ["--emulate=1.22", "--policy-config-file={}"], "{apiVersion: v1, kind: Policy, predicates: [{name: Nope}]}",
        "couldn't create scheduler from policy: {}: predicates[0].name: Not found: ",
    ),
    "a port in 1.22": (
        ["--emulate=1.22", "--port=65536"], None,
        "--port 65536 must be between 0 and 65535, inclusive. 0 for turning off insecure (HTTP) port",
    ),
    "an address in 1.22": (["--emulate=1.22", "--address=here"], None, "--address here is an invalid IP address"),
    "an empty header in 1.22": (
        ["--emulate=1.22", "--requestheader-group-headers=a, "], None, 'empty value in "requestheader-group-headers"',
    ),
    "a lock in 1.22": (
        ["--emulate=1.22", "--master=http://127.0.0.1:1", "--port=0", "--leader-elect-resource-lock=podsleases"], None,
        "couldn't create resource lock: Invalid lock-type podsleases",
    ),
    "a lease shorter than its renewal in 1.22": (
        ["--emulate=1.22", "--master=http://127.0.0.1:1", "--port=0", "--leader-elect-lease-duration=5s"], None,
        "couldn't create leader elector: leaseDuration must be greater than renewDeadline",
    ),
    "a lease shorter than its renewal, beside a file in 1.22": (
        ["--emulate=1.22", "--config={}", "--leader-elect-lease-duration=5s"], V1BETA2,
        "LeaseDuration must be greater than RenewDeadline",
    ),
    "hidden metrics in 1.22": (
        ["--emulate=1.22", "--show-hidden-metrics-for-version=1.20"], None,
        "--show-hidden-metrics-for-version must be omitted or have the value '1.21'. Only the previous minor version is",
    ),
    "a log format in 1.22": (
        ["--emulate=1.22", "--logging-format=xml"], None, 'format: Invalid value: "xml": Unsupported log format',
    ),
    "flags of the text format in 1.22": (
        ["--emulate=1.22", "--logging-format=json", "--skip-headers", "--log-flush-frequency=1s"], None,
        f"[{', '.join(f'{FORMAT_OF_1_22}: {name}' for name in ('skip_headers', 'log-flush-frequency'))}]",
    ),
    "a file of today in 1.22": (
        ["--emulate=1.22", "--config={}", "--policy-config-file={}"], V1BETA1.replace("v1beta1", "v1"),
        'registered for version "',
    ),
    "an unknown gate": (["--emulate=1.21", "--feature-gates=GangScheduling=true"], None, "unrecognized feature gate: Gang"),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "file", "text"), REFUSED.values(), ids=REFUSED)
def test_rejected_flags_are_one_line_and_exit_1(tmp_path, flags, file, text):
    path, config = tmp_path / "given", tmp_path / "config.yaml"
    path.write_text(file or "")
    config.write_text(f"{V1BETA1}profiles: [{{plugins: {{score: {{disabled: [{{name: '*'}}]}}}}}}]\n")
    words = [flag.replace("{}", str(path)).replace("{config}", str(config)) for flag in flags]
    status, said = run_here(*words)
    (line,) = [line for line in said.splitlines() if not line.startswith("W")]
    assert status == 1
    assert text.replace("{}", str(path)) in line.replace('\\"', '"')


@pytest.mark.parametrize("data", [None, [], {}, {"policy.cfg": 7}, {"policy": "{}"}])
def test_a_config_map_without_a_policy_is_refused(data):
    with pytest.raises(InputError, match=r'^missing policy config map value at key "policy\.cfg"$'):
        policy_of(data)


def test_all_that_is_wrong_with_flags_is_reported_at_once():
    flags = ["--port=-1", "--address=x", "--use-legacy-policy-config", "--hard-pod-affinity-symmetric-weight=101"]
    status, said = run_here("--emulate=1.21", *flags, "--logging-format=xml")
    assert status == 1
    assert said.count("must be between 0 and 65535") == 1
    for words in ("is an invalid IP address", "policyConfigFile", "hardPodAffinitySymmetricWeight", "unsupported log format"):
        assert words in said


def test_without_emulation_a_v1beta1_file_chooses_the_release(tmp_path):
    (tmp_path / "config.yaml").write_text(V1BETA1)
    status, said = run_here("--config", tmp_path / "config.yaml", "--emulated-version=1.37")
    assert status == 1
    assert f"not a flag of 1.21, which {tmp_path / 'config.yaml'} chose, but of 1.37" in said
