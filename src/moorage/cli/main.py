"""The ``moorage`` command.

Subcommands are imported when they are asked for, so that ``--help``, ``--version`` and completion stay quick. Exit statuses:
0 all went well; 1 something was wrong with the input, the options or the run; 2 the run is good and some pod stayed pending;
130 the user has interrupted it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click

from moorage import __version__
from moorage.cli.command_groups import CommandGroup
from moorage.cli.pflag import FlagError
from moorage.cli.terminal import guard, say, unguard
from moorage.errors import MoorageError

__all__ = ["ERROR", "INTERRUPTED", "OK", "PENDING", "main"]

OK, ERROR, PENDING, INTERRUPTED = 0, 1, 2, 130

#: Subcommand → module:object, and what it is for.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "config": ("moorage.cli.config:config", "Check a scheduler configuration, or show what it resolves to."),
    "run": ("moorage.cli.run:run", "Schedule the pods of a live cluster."),
    "simulate": ("moorage.cli.simulate:simulate", "Say where every pending pod of a cluster would go, and why."),
    "up": ("moorage.cli.up:up", "Run a cluster here, with nodes that pretend."),
}


class _Commands(CommandGroup):
    """A group whose commands are imported on first use; their one-line help is known without importing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        importlib.import_module("moorage.cli.memory").keep_freed_memory()
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(
    cls=_Commands,
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "--version", prog_name="moorage", message="%(prog)s %(version)s")
def cli() -> None:
    """Moorage: the Kubernetes scheduler in Python.

    Reads what you have (kubectl dumps, manifests, traces) and answers as kube-scheduler 1.36 would.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command and exit with its status."""
    guard()
    status = _run(list(sys.argv[1:] if args is None else args))
    unguard()  # only after a good end: Python prints a bug's traceback through the guard
    sys.exit(status)


def _run(args: list[str]) -> int:
    try:
        status = cli.main(args=args, prog_name="moorage", standalone_mode=False)
        # What is wrong with the output shall be known here, and not while Python shuts down.
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message(), err=True)
        return ERROR
    except click.ClickException as wrong:
        _complain(wrong)
        return ERROR
    except MoorageError as error:
        click.echo(f"error: {error}", err=True)
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough.
        _drop_output()
        return ERROR
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else "the output cannot be written: "
        say(f"error: {where}{error.strerror or error}", err=True)
        return ERROR
    except MemoryError:
        click.echo("error: out of memory; give the input in smaller parts", err=True)
        return ERROR
    return status if isinstance(status, int) else OK


def _drop_output() -> None:
    """Send the rest of the output nowhere: Python would fail once more when it writes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(wrong: click.ClickException) -> None:
    # kube-scheduler's flags are refused in the very words of its library.
    begins = "Error" if isinstance(wrong, FlagError) else "error"
    say(f"{begins}: {wrong.format_message()}", err=True)
    if isinstance(wrong, click.UsageError) and wrong.ctx is not None:
        say(f"See '{wrong.ctx.command_path} --help' for usage.", err=True)
