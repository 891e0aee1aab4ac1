"""``moorage completion``: print the script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.main import OK, cli

__all__ = ["completion"]

EPILOG = """Examples:

\b
    eval "$(moorage completion bash)"        # in ~/.bashrc
    moorage completion fish > ~/.config/fish/completions/moorage.fish

How to install: moorage help completion
"""
SHELLS = ("bash", "zsh", "fish")


@click.command(cls=DescribedCommand, epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print a script that completes commands and options in SHELL: bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(cli, {}, "moorage", "_MOORAGE_COMPLETE").source())
    return OK
