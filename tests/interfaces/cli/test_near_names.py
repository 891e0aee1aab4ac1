"""A name that is not there is answered with the names most like it: fields, labels, gates, files. Every help has examples."""

import click
import pytest

from moorage.interfaces.cli.main import cli, main

NEAR = {
    "a field of --edit": (
        ["explain", "search-2", "-f", "examples/demo", "--edit", "node/general-a1 unschedulabel=true"],
        "close: unschedulable=VALUE",
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


WITHOUT_EXAMPLES = {("run",)}
"""Its help is in kube-scheduler's form."""


def test_the_help_of_every_command_has_examples():
    found = dict(commands(cli))
    assert len(found) > 25
    assert {words for words, command in found.items() if "    moorage" not in (command.epilog or "")} <= WITHOUT_EXAMPLES
