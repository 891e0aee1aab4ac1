"""A name that is not there is answered with the names most like it: fields, labels, gates, files. Every help has examples."""

import click
import pytest

from moorage.interfaces.cli.main import cli, main

EXPLAIN = ["explain", "search-2", "-f", "examples/demo", "--probes", "0"]
NEAR = {
    "a field of --edit": (
        ["explain", "search-2", "-f", "examples/demo", "--edit", "node/general-a1 unschedulabel=true"],
        "unknown field of a node; close: unschedulable=true|false; moorage help changes has all",
    ),
    "a label": (
        ["survive", "-f", "examples/demo", "--over", "topology.kubernetes.io/zon"],
        "close: topology.kubernetes.io/zone",
    ),
    "a gate": (["simulate", "-f", "examples/demo", "--feature-gates", "GenericWorklod=true"], "did you mean GenericWorkload?"),
    "a folder": (["simulate", "-f", "examples/dmo"], "examples/dmo: No such file or directory; close: examples/demo"),
    "a policy": (
        ["check", "-f", "examples/demo", "--policy", "examples/check/moorage-polcy.yaml"],
        "close: examples/check/moorage-policy.yaml",
    ),
    "a resource of --edit": ([*EXPLAIN, "--edit", "pod/search-2 cpuu=500m"], "close: cpu=AMOUNT; moorage help changes has all"),
    "a field of a workload": (
        [*EXPLAIN, "--edit", "deployment/web replcas=1"],
        "unknown field of a deployment; close: replicas=N",
    ),
    "no edit": ([*EXPLAIN, "--edit", "gibberish"], "write 'KIND/NAME FIELD=VALUE', such as 'pod/web requests.cpu=500m'"),
    "a plugin of --edit": (
        [*EXPLAIN, "--edit", "config/default-scheduler/NodeAffinitty disable"],
        "does not run NodeAffinitty; close: NodeAffinity",
    ),
    "a label and its value": (
        [*EXPLAIN, "--cordon", "dsk=ssd"],
        "no node has this name or matches this selector; close: disk=ssd",
    ),
    "a selector for a name": (["drain", "-f", "examples/demo", "zone=a"], "the name 'zone=a'; select by labels with -l zone=a"),
    "a label like none": (["survive", "-f", "examples/demo", "--over", "rack"], "no node has the label rack; nodes have "),
    "the end of a label": (["survive", "-f", "examples/demo", "--over", "zonee"], "no node has the label zonee; close: zone"),
    "a metric": (
        ["compare", "-f", "examples/demo", "--cordon", "general-a1", "--seeds", "1", "--fail-on", "pendng > 0"],
        "gate 'pendng > 0': no metric pendng; close: pending",
    ),
    "a namespace": ([*EXPLAIN, "-n", "defualt"], "among 0 pods of namespace defualt; close: default"),
    "a trace": (["simulate", "--trace", "opnb", "--pods", "a"], "no such format of traces; close: openb"),
    "a pod to list": (["simulate", "-f", "examples/demo", "--pod", "warehuse"], "the run has no such pod; close: warehouse"),
    "a policy that is named": (
        ["check", "-f", "examples/demo", "--policy", "nope.yaml"],
        "--policy nope.yaml: no such file; moorage help check says what one holds",
    ),
    "an example that is not here": (
        ["simulate", "-f", "examples/nowhere-at-all"],
        "examples/nowhere-at-all: No such file or directory; moorage demo --copy . writes the examples here",
    ),
    "a file like none": (
        ["explain", "x", "-f", "examples/demo", "--costs", "costs.yml"],
        "costs.yml: No such file or directory",
    ),
    "no policy": (
        ["check", "-f", "examples/demo"],
        "no policy: there is no moorage-policy.yaml in this folder; name one with --policy",
    ),
}


@pytest.mark.parametrize(("words", "said"), NEAR.values(), ids=NEAR)
def test_a_missing_name_is_answered_with_near_ones(words, said, tmp_path, monkeypatch, capsys, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    assert said in " ".join(capsys.readouterr().err.split())


def commands(group, words=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def test_a_file_that_is_like_none_names_none(monkeypatch, capsys, pytestconfig):
    """The endings alone make no names alike: costs.yml is not close to mkdocs.yml."""
    monkeypatch.chdir(pytestconfig.rootpath)
    with pytest.raises(SystemExit):
        main(["explain", "x", "-f", "examples/demo", "--costs", "costs.yml"])
    assert "close" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["report", "--live"], ["explain", "web", "--live"], ["dump"], ["ui"]], ids=" ".join)
def test_without_a_kubeconfig_the_places_are_named_where_one_was_sought(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("moorage.interfaces.cli.live_reading.BEGUN", {})  # a test before this one may have left a reading
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert (
        f"no kubeconfig found: KUBECONFIG is not set, there is no {tmp_path}/.kube/config, and this is no pod of a cluster"
        in said
    )
    assert "give --kubeconfig FILE, or run a cluster here: moorage up" in said


def test_a_kubeconfig_that_is_missing_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nope"))
    with pytest.raises(SystemExit):
        main(["report", "--live"])
    assert capsys.readouterr().err == f"error: {tmp_path}/nope: no such file\n"


def test_the_help_of_every_command_has_examples():
    found = dict(commands(cli))
    assert len(found) > 25
    assert {words for words, command in found.items() if "    moorage" not in (command.epilog or "")} == set()


def test_text_is_a_table_where_a_command_prints_tables(capsys, pytestconfig):
    def printed(form):
        with pytest.raises(SystemExit):
            main(["simulate", "-f", str(pytestconfig.rootpath / "examples/demo"), "-o", form])
        return capsys.readouterr().out

    assert printed("text") == printed("table")
