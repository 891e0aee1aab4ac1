"""The ``moorage`` command.

Subcommands are imported when they are used, so that ``--help``, ``--version`` and completion stay quick. Exit statuses:
0 success; 1 an error in the input, the options or the run; 2 success, but some pod is still pending; 130 interrupted by the
user.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final, NoReturn

import click
import msgspec
from click.shell_completion import get_completion_class

from moorage import __version__
from moorage.api.quantity import parse_bool
from moorage.basis import text_of
from moorage.basis.ending import Terminated, ask_to_end, forget_ending, is_copy_of, is_ending
from moorage.basis.files import forget_led_to, without_content
from moorage.basis.printable import one_line
from moorage.errors import MoorageError
from moorage.interfaces.cli.pflag import FlagError
from moorage.interfaces.cli.terminal import guard, print_error, say, unguard

# Commands as users of kubectl expect them: options by section on the help page, and ``--flag=true`` or ``=false``.

_OWN: Final = "Options"
#: The commands in the groups of ``moorage --help``, and the parameters in the sections of a help page: ``commands.json``.
_TABLE: Final = msgspec.json.decode(text_of("moorage.interfaces.cli", "commands.json"))
#: Section → parameters; all others are the command's own, which come first.
_SECTIONS: Final[Mapping[str, Sequence[str]]] = _TABLE["sections"]
_SECTION_OF: Final = {name: section for section, names in _SECTIONS.items() for name in names}
#: The width of the column of options.
_MOST_WIDTH: Final = 34


class DescribedCommand(click.Command):
    """A command whose help page shows its options by section: its own, input, changes, scheduler, output.

    Its flags take a value after ``=``, as kubectl's do: ``--force=false``. The last of several counts.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, self._without_values(args))
        except click.UsageError as error:
            options = {name for one in self.params for name in one.opts}
            if not error.message.startswith("Got unexpected extra argument") or "-f" not in options:
                raise
            sides = "; --a and --b read configurations, --b-filename another cluster" if {"--a", "--b"} <= options else ""
            raise click.UsageError(f"{error.message}; -f reads a cluster{sides}", ctx) from None

    def _without_values(self, args: list[str]) -> list[str]:
        """Return the arguments with each flag that has a value replaced by the plain flag, or dropped if the value is false.

        Raises  click.UsageError in pflag's words for a value that is no boolean
        """
        flags = {name: one for one in self.params if isinstance(one, click.Option) and one.is_bool_flag for name in one.opts}
        kept: list[str] = []
        for at, arg in enumerate(args):
            name, given, text = arg.partition("=")
            if arg == "--":
                return [*kept, *args[at:]]
            if not given or name not in flags:
                kept.append(arg)
                continue
            try:
                holds = parse_bool(text)
            except ValueError as error:
                raise click.UsageError(f'invalid argument "{text}" for "{name}" flag: {error}; use true or false') from None
            if holds:
                kept.append(name)
            else:
                kept = [one for one in kept if one not in flags[name].opts]
                kept += flags[name].secondary_opts[:1]
        return kept

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {_OWN: [], **{name: [] for name in _SECTIONS}}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections[_SECTION_OF.get(parameter.name or "", _OWN)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=_MOST_WIDTH)


class CommandGroup(click.Group):
    """A click group that suggests the nearest command when the given one does not exist."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] in known or args[0].startswith("-") or ctx.resilient_parsing:  # a completion offers nothing
            return super().resolve_command(ctx, args)
        near = get_close_matches(args[0], known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)


OK, ERROR, PENDING, UNDECIDED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

#: How ``moorage --help`` groups the commands: subcommand → module:object in this package, and its short help.
GROUPS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = _TABLE["groups"]
COMMANDS: Final = {name: found for group in GROUPS.values() for name, found in group.items()}


class Commands(CommandGroup):
    """A group that imports a command on first use, a question when it runs, and shows short help without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        importlib.import_module("moorage.interfaces.cli.given_back_memory").keep_freed_memory()
        place = COMMANDS[cmd_name][0]
        if place.startswith("questions."):
            made: click.Command = importlib.import_module("moorage.interfaces.cli.option_tables").deferred(cmd_name, place)
            return made
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"moorage.interfaces.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = self.list_commands(ctx)
        for title, group in GROUPS.items():
            records = [(name, text) for name, (_, text) in group.items() if name in known]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


@click.group(
    cls=Commands,
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "--version", prog_name="moorage", message="%(prog)s %(version)s")
def cli() -> None:
    """Moorage: the Kubernetes scheduler in Python.

    Reads kubectl dumps, manifests and traces, and decides as kube-scheduler 1.37 does. The tutorial: moorage help
    first-simulation. All pages: moorage help
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run ``moorage`` and exit with its status."""
    run_command(cli, "moorage", args)


def run_command(command: click.Command, name: str, args: Sequence[str] | None = None) -> None:
    """Run a command under a name, with the arguments of the process if there are no others, and exit with its status."""
    if "_MOORAGE_COMPLETE" not in os.environ:  # click writes completions as bytes, which the guard rejects
        guard()
    with _ended_by_sigterm():
        try:
            status = _run(list(sys.argv[1:] if args is None else args), command, name)
        except BaseExceptionGroup:  # what an event loop makes of an end while tasks start
            if not is_ending():
                raise
        status = TERMINATED if is_ending() else status
    unguard()  # after an unexpected exception Python prints the traceback through the guard
    if is_ending() and _threads_left():
        _leave(status)
    sys.exit(status)


def _threads_left() -> bool:
    """Return True if Python would wait for threads: what SIGTERM interrupted may hold a lock that they need."""
    return any(one is not threading.main_thread() and not one.daemon for one in threading.enumerate())


def _leave(status: int) -> NoReturn:
    """End the process with what it does at its end, such as deleting temporary folders, but without waiting for threads."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


#: The process that handles SIGTERM; its forks do not.
_OWNER: Final[list[int]] = []


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind what runs, so that workers end and temporary folders go. Servers handle it themselves."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    forget_ending()
    _OWNER[:] = [os.getpid()]
    signal.signal(signal.SIGTERM, end_by_sigterm)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_by_sigterm(number: int, frame: object) -> None:
    """Handle SIGTERM where there is nothing to print yet."""
    if is_copy_of(*_OWNER):
        return
    ask_to_end()
    raise Terminated


def _run(args: list[str], command: click.Command = cli, name: str = "moorage") -> int:
    forget_led_to()
    try:
        status = command.main(args=args, prog_name=name, standalone_mode=False)
        # Detect a failure to write the output here, not while Python shuts down.
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as no_args:
        click.echo(no_args.format_message(), err=True)
        return ERROR
    except click.ClickException as error:
        prefix = "Error" if isinstance(error, FlagError) else "error"  # pflag's errors start with a capital letter
        print_error(one_line(without_content(error.format_message())), prefix)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            say(f"See '{error.ctx.command_path} --help' for usage.", err=True)
        return ERROR
    except MoorageError as error:
        print_error(without_content(str(error)))
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        click.echo("terminated" if is_ending() else "interrupted", err=True)
        return TERMINATED if is_ending() else INTERRUPTED
    except BrokenPipeError:
        # The reader of the output closed its end of the pipe.
        _drop_output()
        return ERROR
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else "the output cannot be written: "
        print_error(one_line(f"{where}{error.strerror or error}"))
        return ERROR
    except MemoryError:
        print_error("out of memory; split the input into smaller parts")
        return ERROR
    return status if isinstance(status, int) else OK


def _drop_output() -> None:
    """Redirect the remaining output to /dev/null, so that Python does not fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
