"""Test that every flag of every command takes kubectl's ``=true`` and ``=false``."""

from __future__ import annotations

import click
import pytest

from moorage.interfaces.cli.main import DescribedCommand, cli

ROOT = click.Context(cli, **cli.context_settings)


def _commands(group, above):
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, above, name))
        else:
            yield name, command


FLAGS = [
    pytest.param(command, option, spelled, id=f"{name} {spelled}")
    for name, command in _commands(cli, ROOT)
    for option in command.params
    if isinstance(option, click.Option) and option.is_bool_flag and not option.is_eager
    for spelled in option.opts
]


def read(command, *args):
    context = click.Context(command, ROOT, resilient_parsing=True)
    command.parse_args(context, list(args))
    return context.params


def test_flags_were_found():
    assert len(FLAGS) > 60


@pytest.mark.parametrize(("command", "option", "spelled"), FLAGS)
def test_a_flag_takes_a_value(command, option, spelled):
    assert isinstance(command, DescribedCommand)
    assert read(command, f"{spelled}=true")[option.name] == read(command, spelled)[option.name]
    assert read(command, f"{spelled}=false")[option.name] is False
    assert read(command, spelled, f"{spelled}=false")[option.name] is False
    assert read(command, f"{spelled}=0", f"{spelled}=T")[option.name] == read(command, spelled)[option.name]


def test_another_value_is_refused():
    with pytest.raises(click.UsageError, match='invalid argument "maybe" for "--delete-emptydir-data" flag'):
        read(cli.get_command(ROOT, "drain"), "--delete-emptydir-data=maybe")


def test_words_after_two_dashes_are_no_flags():
    @click.command(cls=DescribedCommand)
    @click.argument("words", nargs=-1)
    @click.option("--force", is_flag=True)
    def command(words, force):
        raise AssertionError

    assert read(command, "--force=true", "--", "--force=false") == {"words": ("--force=false",), "force": True}
