"""The flags of ``moorage run --emulate``: those that 1.36 does not have, and values that releases check differently."""

from __future__ import annotations

import pytest
import yaml

from moorage.api.releases import RELEASES
from moorage.interfaces.cli.live.release_flags import FLAGS, GONE, flags_since_1_23
from moorage.interfaces.cli.live.run_serving import metric_filter
from moorage.interfaces.cli.pflag import read_flags
from tests.interfaces.cli.test_legacy_flags import is_taken
from tests.interfaces.cli.test_run import run_here

#: From the sources of these releases: the flags that 1.36 does not have, with their defaults.
LOCK = {"lock-object-name": "kube-scheduler", "lock-object-namespace": "kube-system"}
KLOG = {
    "add-dir-header": "false", "alsologtostderr": "false", "log-backtrace-at": ":0", "log-dir": "", "log-file": "",
    "log-file-max-size": "1800", "logtostderr": "true", "one-output": "false", "skip-headers": "false",
    "skip-log-headers": "false", "stderrthreshold": "2",
}  # fmt: skip
UPSTREAM = {
    "1.23.5": {**LOCK, **KLOG, "address": "127.0.0.1", "port": "0", "experimental-logging-sanitization": "false"},
    "1.24.17": {**LOCK, **KLOG},
    "1.25.16": {**LOCK, **KLOG},
    "1.26.15": LOCK,
    "1.27.16": LOCK,
    "1.28.8": {},
    "1.36": {},
}


@pytest.mark.parametrize(("release", "removed"), UPSTREAM.items(), ids=UPSTREAM)
def test_the_removed_flags_are_those_of_the_release(release, removed):
    flags = [flag for flag in flags_since_1_23(RELEASES[release]) if flag.name in GONE]
    assert {flag.name: flag.shown(flag.default) for flag in flags} == removed
    assert {name for name in GONE if is_taken(release, name)} == removed.keys()


def test_help_shows_them_in_the_sections_of_1_36():
    status, said = run_here("--help", "--emulate=1.23", secure=False)
    assert status == 0
    for name in UPSTREAM["1.23.5"]:
        assert said.count(f"--{name} ") + said.count(f"--{name}\n") >= 1, name
    assert "Insecure serving" not in said


def test_all_releases_that_have_a_flag_are_named():
    status, said = run_here("--emulate=1.26", "--log-dir=x")
    assert status == 1
    assert (
        "unknown flag: --log-dir: not a flag of 1.26.15, which --emulate chose, but of "
        "1.19, 1.20, 1.21, 1.22.6, 1.23.5, 1.24.17, 1.25.16; choose the release with --emulate"
    ) in said


# -- what they do --------------------------------------------------------------------------------------------------------

FILE = """\
apiVersion: kubescheduler.config.k8s.io/{version}
kind: KubeSchedulerConfiguration
leaderElection: {{resourceName: of-the-file, resourceNamespace: of-the-file}}
"""
NAME, NAMESPACE = "--lock-object-name=old", "--lock-object-namespace=elsewhere"
LOCKS = {  # flags, is there a file? → name and namespace of the lock
    "none": ([], False, "kube-scheduler", "kube-system"),
    "the deprecated ones": ([NAME, NAMESPACE], False, "old", "elsewhere"),
    "one of them": ([NAMESPACE], False, "kube-scheduler", "elsewhere"),
    "the new name after": ([NAME, NAMESPACE, "--leader-elect-resource-name=new"], False, "new", "elsewhere"),
    "the new name before": (["--leader-elect-resource-name=new", NAME], False, "new", "kube-system"),
    "the new namespace": (["--leader-elect-resource-namespace=new", NAMESPACE], False, "kube-scheduler", "new"),
    "a file": ([NAME, NAMESPACE], True, "of-the-file", "of-the-file"),
    "a file and the new name": ([NAME, "--leader-elect-resource-name=new"], True, "new", "of-the-file"),
}


@pytest.mark.parametrize("release", ["1.23", "1.27"])
@pytest.mark.parametrize(("flags", "has_file", "name", "namespace"), LOCKS.values(), ids=LOCKS)
def test_the_lock_object_is_that_of_leader_election(tmp_path, release, flags, has_file, name, namespace):
    out, path = tmp_path / "out.yaml", tmp_path / "config.yaml"
    path.write_text(FILE.format(version="v1beta3"))
    given = [f"--emulate={release}", *flags, *(["--config", path] if has_file else [])]
    status, said = run_here(*given, "--write-config-to", out)
    assert status == 0, said
    election = yaml.safe_load(out.read_text())["leaderElection"]
    assert (election["resourceName"], election["resourceNamespace"]) == (name, namespace)
    ignored = ", ".join(sorted(flag.partition("=")[0] for flag in flags if flag in {NAME, NAMESPACE}))
    assert (f"Ignored, because --config is given: {ignored}; set it in {path}" in said) is has_file


REMOVAL = (
    "will be removed in a future release, see https://github.com/kubernetes/enhancements/tree/master/keps/"
    "sig-instrumentation/2845-deprecate-klog-specific-flags-in-k8s-components"
)
NO_EFFECT = "This flag has no effect now and will be removed in v1.24. You can use"
WARNED = {  # flags → lines of the log
    "plain HTTP": (
        ["--emulate=1.23", "--address=10.0.0.1", "--port=0"],
        [f"Flag --address has been deprecated, {NO_EFFECT} --bind-address instead.",
         f"Flag --port has been deprecated, {NO_EFFECT} --secure-port instead."],
    ),
    "flags of klog": (
        ["--emulate=1.25", "--logtostderr=false", "--log_file=/var/log/x"],
        [f"Flag --log-file has been deprecated, {REMOVAL}", f"Flag --logtostderr has been deprecated, {REMOVAL}",
         "No effect, because logs go to standard error: --log-file, --logtostderr"],
    ),
    "secrets": (
        ["--emulate=1.23", "--experimental-logging-sanitization"],
        ["No effect, because logs go to standard error: --experimental-logging-sanitization"],
    ),
    "the lock": (
        ["--emulate=1.26", NAME], ["Flag --lock-object-name has been deprecated, use --leader-elect-resource-name instead."],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "lines"), WARNED.values(), ids=WARNED)
def test_what_is_warned_of(tmp_path, flags, lines):
    status, said = run_here(*flags, "--write-config-to", tmp_path / "out.yaml")
    assert status == 0, said
    assert [line.partition("] ")[2] for line in said.splitlines() if line.startswith("W")] == lines


FORMAT = 'format: Invalid value: "json": Non-default format doesn\'t honor flag'
REFUSED = {  # flags → what is said
    "a port": (["--emulate=1.23", "--port=10251"], "port: Required value: invalid port value 10251: only zero is allowed"),
    "no address": (
        ["--emulate=1.23", "--address=here"], 'invalid argument "here" for "--address" flag: failed to parse IP: "here"',
    ),
    **{
        f"hidden metrics in {release}": (
            [f"--emulate={release}", "--show-hidden-metrics-for-version=1.20"],
            f"--show-hidden-metrics-for-version must be omitted or have the value '{before}'. Only the previous minor",
        )
        for release, before in (("1.23", "1.22"), ("1.29", "1.28"), ("1.35", "1.34"))
    },
    **{
        f"labels of metrics in {release}": (
            [f"--emulate={release}", "--allow-metric-labels=a b,c=d"],
            f"--allow-metric-labels must {word} a list of kv pair with format `{form}=labelValue, labelValue,...`",
        )
        for release, word, form in (
            ("1.23", "has", "metricName:labelName"), ("1.28", "has", "metricName:labelName"),
            ("1.29", "have", "metricName:labelName"), ("1.31", "have", "metricName:labelName"),
            ("1.32", "have", "metricName,labelName"), ("1.35", "have", "metricName,labelName"),
        )
    },
    "no time between flushes": (["--emulate=1.35", "--log-flush-frequency=0s"], "flushFrequency: Invalid value: \"0s\": Must"),
    "no time between flushes, earlier": (
        ["--emulate=1.34", "--log-flush-frequency=-1s"], "panic: non-positive interval for NewTicker",
    ),
    "options of JSON": (
        ["--emulate=1.25", "--log-json-split-stream"], "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is",
    ),
    "a port, later": (["--emulate=1.24", "--port=0"], "unknown flag: --port: not a flag of 1.24.17"),
    "a flag of klog as JSON": (["--emulate=1.24", "--logging-format=json", "--log-dir=x"], f"{FORMAT}: log-dir"),
    "two flags of klog as JSON": (
        ["--emulate=1.23", "--logging-format=json", "--skip-headers", "--log-dir=x", "--one-output=false"],
        f"[{FORMAT}: log-dir, {FORMAT}: skip-headers]",
    ),
    "a flag of a Policy": (
        ["--emulate=1.23", "--policy-config-file=p"],
        "unknown flag: --policy-config-file: not a flag of 1.23.5, which --emulate chose, but of 1.19, 1.20, 1.21, 1.22.6;",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "text"), REFUSED.values(), ids=REFUSED)
def test_refused_flags_exit_1(tmp_path, flags, text):
    status, said = run_here(*flags, "--write-config-to", tmp_path / "out.yaml")
    assert status == 1
    assert text in said.replace('\\"', '"')
    assert not (tmp_path / "out.yaml").exists()


def test_they_may_stand_beside_the_json_format(tmp_path):
    flags = ["--emulate=1.23", "--logging-format=json", "--experimental-logging-sanitization", "--log-file-max-size=1800"]
    assert run_here(*flags, "--write-config-to", tmp_path / "out.yaml")[0] == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--emulate=1.23", "--log-flush-frequency=0s"],
        ["--emulate=1.24", "--log-json-split-stream", "--log-json-info-buffer-size=1Ki"],
        ["--emulate=1.30", "--show-hidden-metrics-for-version=1.29"],
    ],
    ids=" ".join,
)
def test_values_that_the_release_does_not_check_are_taken(tmp_path, flags):
    status, said = run_here(*flags, f"--write-config-to={tmp_path / 'written'}")
    assert status == 0, said


def test_hidden_metrics_are_shown_on_request():
    given = read_flags(FLAGS, ["--show-hidden-metrics-for-version=1.35"])[0]
    assert metric_filter(given).hidden_too
    assert not metric_filter(read_flags(FLAGS, [])[0]).hidden_too
