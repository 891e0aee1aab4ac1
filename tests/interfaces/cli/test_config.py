"""``moorage config``: exit statuses, what is printed where."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from moorage.framework.registry import Registry
from moorage.interfaces.cli.main import cli
from moorage.plugins import BUILTIN

GOOD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
TODAY = "rules of Kubernetes 1.37 (KubeSchedulerConfiguration v1)"
MINE = "class Mine:\n    name = 'Mine'\n    def filter_node(self, state, node): ...\n"
BAD = GOOD + "parallelism: 0\npodInitialBackoffSeconds: 0\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)

    def run(command, stdin=None):
        return CliRunner().invoke(cli, ["config", *command.split()], input=stdin, catch_exceptions=False)

    return run


def test_a_valid_file_is_reported_as_valid(run):
    found = run("validate good.yaml")
    assert (found.exit_code, found.stdout) == (0, f"good.yaml: valid; profile default-scheduler; {TODAY}\n")


def test_standard_input_is_read(run):
    found = run("validate -", GOOD + "profiles: [{schedulerName: a}, {schedulerName: b}]")
    assert (found.exit_code, found.stdout) == (0, f"standard input: valid; profiles a, b; {TODAY}\n")


@pytest.mark.parametrize("command", ["validate bad.yaml", "show bad.yaml", "show bad.yaml -o json"])
def test_every_fault_gets_a_line(run, command):
    found = run(command)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.splitlines() == [
        "bad.yaml: parallelism: Invalid value: 0: should be an integer value greater than zero",
        "bad.yaml: podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
    ]


REFUSED = {
    "no file": ("validate none.yaml", "none.yaml: No such file or directory"),
    "a directory": ("validate .", ".: expected a file, this is a directory"),
    "not YAML": ("validate -", "standard input:1: "),
    "a device": ("show /dev/zero", "/dev/zero: expected a file, this is a device"),
    "unknown gate": ("show --feature-gates A=true", "featureGates.A: Not found"),
    "gate without value": ("show --feature-gates GangScheduling", "featureGates.GangScheduling: Required value"),
    "plugin that is not there": ("show --plugins no_such_module:Mine", "--plugins no_such_module:Mine: cannot import"),
    "plugin by path": ("show --plugins ../mine.py:Mine", "--plugins ../mine.py:Mine: "),
}


@pytest.mark.parametrize(("command", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_a_line(run, command, words):
    found = run(command, "a: [")
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith(words)
    assert len(found.stderr.splitlines()) in {1, 3}  # faults of YAML show the line and a caret


def test_ten_megabytes_are_not_read(run):
    found = run("validate -", "#" * 10_000_000)
    assert (found.exit_code, found.stdout) == (1, "")
    assert "larger than" in found.stderr


def test_the_defaults_are_shown_as_a_table(run):
    found = run("show")
    assert found.exit_code == 0
    assert found.stdout.startswith("rules of Kubernetes 1.37 (defaults)\n\nprofile default-scheduler\nPOINT ")
    assert "ImageLocality                    1\n" in found.stdout


def test_documents_are_shown_that_load_to_the_same(run, tmp_path):
    as_json, as_yaml = run("show good.yaml -o json"), run("show good.yaml --output yaml")
    assert (as_json.exit_code, as_yaml.exit_code) == (0, 0)
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)
    again = run("show - -o yaml", as_yaml.stdout)
    assert again.stdout == as_yaml.stdout


def test_gates_change_what_is_shown(run):
    found = run("show --feature-gates GenericWorkload=true")
    assert "permit      GangScheduling" in found.stdout


def test_a_custom_plugin_may_be_named(run, tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text(MINE)
    (tmp_path / "mine.yaml").write_text(GOOD + "profiles: [{plugins: {filter: {enabled: [{name: Mine}]}}}]")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run("validate mine.yaml").exit_code == 1
    found = run("validate mine.yaml --plugins my_rules:Mine")
    assert (found.exit_code, found.stdout) == (0, f"mine.yaml: valid; profile default-scheduler; {TODAY}\n")


PLUGIN_FAULTS = {
    "syntax": ("class Mine(:", "cannot import my_faulty: SyntaxError"),
    "raises": ("a = 1\n\na / 0", "cannot import my_faulty: ZeroDivisionError: division by zero (my_faulty.py, line 3)"),
    "needs what is not there": ("import not_here", "No module named 'not_here' (my_faulty.py, line 1)"),
    "ends the program": ("import sys; sys.exit(0)", "cannot import my_faulty: SystemExit: 0"),
    "no such class": ("", "module my_faulty has no Mine"),
    "another class": (MINE.replace("class Mine", "class Other"), "module my_faulty has no Mine; there is Other"),
    "no name": ("class Mine:\n    def filter_node(self, state, node): ...", "has no usable name"),
    "name with a line break": (MINE.replace("'Mine'", r"'a\n'"), "has no usable name"),
    "no point": ("class Mine:\n    name = 'Mine'", "implements no extension point"),
    "a mistyped point": (MINE.replace("filter_node", "filterNodes"), "no extension point; for filterNodes write filter_node"),
    "a taken name": (MINE.replace("'Mine'", "'NodeName'"), "that name is taken"),
}


@pytest.mark.parametrize(("source", "words"), PLUGIN_FAULTS.values(), ids=PLUGIN_FAULTS)
def test_a_faulty_plugin_is_refused_with_a_line(run, tmp_path, monkeypatch, source, words):
    (tmp_path / "my_faulty.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_faulty", raising=False)
    found = run("show --plugins my_faulty:Mine")
    assert (found.exit_code, found.stdout) == (1, "")
    assert words in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_path_without_its_suffix_suggests_the_module(run, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = run("show --plugins rules/mine:Mine")
    assert found.exit_code == 1
    assert found.stderr.endswith("; name a module as import does: rules.mine:Mine\n")


def test_an_unknown_plugin_suggests_similar_names(run):
    def refused(name):
        return run("validate -", GOOD + f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}}}]").stderr

    assert refused("NodePort").endswith(': plugin "NodePort" does not exist; did you mean "NodePorts"?\n')
    assert refused("Mine").endswith(
        '"Mine" does not exist; is it one of yours? --plugins MODULE:CLASS or FILE.py:CLASS loads it\n'
    )


def test_an_uninstalled_plugin_is_noted(run, monkeypatch):
    few = Registry(cls for cls in BUILTIN if cls.name != "NodeName")
    monkeypatch.setattr("moorage.basis.inputs.scheduler_config.builtin_registry", lambda release: few)
    monkeypatch.setattr("moorage.basis.inputs.scheduler_config._DEFAULTS", {})  # what other registries led to
    found = run("validate good.yaml")
    assert (found.exit_code, found.stdout) == (0, f"good.yaml: valid; profile default-scheduler; {TODAY}\n")
    assert found.stderr.startswith("note: profile default-scheduler: not in Moorage, left out when it runs: ")
    assert "NodeName" in found.stderr
    assert "NodeName                         (not in Moorage)" in run("show").stdout


OLD = "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n"
POLICY = '{"apiVersion": "v1", "kind": "Policy", "alwaysCheckAllPredicates": true, "priorities": []}'


def test_the_release_is_printed_with_every_result(run):
    assert run("validate -", OLD).stdout.endswith("rules of Kubernetes 1.21 (KubeSchedulerConfiguration v1beta1)\n")
    assert run("show --emulate 1.19").stdout.startswith("rules of Kubernetes 1.19 (provider DefaultProvider, --emulate 1.19)\n")
    written = run("show --algorithm-provider ClusterAutoscalerProvider -o yaml")
    assert written.stderr == "note: rules of Kubernetes 1.21 (provider ClusterAutoscalerProvider)\n"
    assert written.stdout.startswith("# rules of Kubernetes 1.21 (provider ClusterAutoscalerProvider)\n")
    assert yaml.safe_load(written.stdout)["apiVersion"].endswith("/v1beta1")
    assert run("convert - --emulate 1.20", OLD).stdout.startswith("# from rules of Kubernetes 1.20 (")


@pytest.mark.parametrize("release", ["1.19", "1.20", "1.21", "1.36"])
@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_the_requested_release_is_in_every_format(run, release, output):
    found = run(f"show --emulate {release} -o {output}")
    assert found.exit_code == 0
    told = found.stdout if output == "text" else found.stderr
    assert f"rules of Kubernetes {release} (" in told.splitlines()[0]
    assert f"--emulate {release})" in told.splitlines()[0]


def test_a_policy_is_shown_as_a_configuration(run):
    found = run("show - -o yaml", POLICY)
    assert "only a Policy can set alwaysCheckAllPredicates" in found.stderr
    assert run("show -", found.stdout).exit_code == 0
    assert "(every filter is asked about every node)" in run("show -", POLICY).stdout


def test_an_old_configuration_is_upgraded(run):
    found = run("convert -", OLD)
    assert found.exit_code == 0
    assert "note: profiles[0]: NodePreferAvoidPods (weight 10000) has no equivalent" in found.stderr
    assert run("validate - --emulate 1.36", found.stdout).exit_code == 0
    assert json.loads(run("convert - -o json", OLD).stdout) == yaml.safe_load(found.stdout)


def test_a_file_and_a_provider_do_not_go_together(run):
    found = run("show good.yaml --algorithm-provider DefaultProvider")
    assert (found.exit_code, found.stderr) == (1, "--algorithm-provider replaces a file; give one of them\n")


def test_a_file_unsupported_by_the_release_is_reported(run):
    found = run("validate good.yaml --emulate 1.20")
    assert found.exit_code == 1
    assert 'no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1"' in found.stderr
