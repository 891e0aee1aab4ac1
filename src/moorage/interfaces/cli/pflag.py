"""Command-line flags in the syntax of Kubernetes' programs, for a click command.

Flags are long (except ``-v`` and ``-h``), ``_`` and ``-`` are equivalent in a name, and values are given as ``--flag value``
or ``--flag=value``. A boolean flag takes a value only after ``=``, so that ``--leader-elect word`` does not consume the word.
Lists are comma separated and may be repeated. Error messages are pflag's own.

click only prints the help and completes words of such a command; ``read_flags`` parses its flags.

Source  spf13/pflag, flag.go; component-base/cli/flag
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import click

from moorage.api import quantity
from moorage.api.durations import format_duration, parse_duration
from moorage.api.releases import CURRENT
from moorage.errors import MoorageError


class FlagError(click.ClickException):
    """A command-line error in pflag's words. ``unknown``: the name of a flag that does not exist, "" for other errors."""

    def __init__(self, message: str, unknown: str = "") -> None:
        super().__init__(message)
        self.unknown = unknown


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: its name, kind, default and help.

    ``kind``: ``str``, ``bool``, ``int``, ``float``, ``duration`` (stored in seconds), ``list`` (comma separated), ``pairs`` (a
    list that is printed without brackets), ``each`` (one value per occurrence), ``map`` (``name=value,…``) or ``version``;
    ``level``, ``levels``, ``ip``, ``quantity``, ``numbers`` and ``pair of files`` are strings and lists that are validated.
    ``files``: its value is a path, for completion. ``sets``: the flag whose value it sets, for an alias; the last of both wins.
    ``instead``: what to use instead of a deprecated flag.
    """

    name: str
    kind: str
    default: Any
    section: str
    help: str
    short: str = ""
    metavar: str = ""
    files: bool = False
    sets: str = ""
    instead: str = ""

    @property
    def key(self) -> str:
        """The name under which ``Given`` stores its value."""
        return self.sets or self.name

    def shown(self, value: Any) -> str:
        """Return a value in the flag's own syntax."""
        if self.kind == "bool":
            return str(value).lower()
        if self.kind == "duration":
            return format_duration(round(value * 1e9))
        if self.kind in {"list", "each", "numbers", "pair of files"}:
            return f"[{','.join(value)}]"
        if self.kind == "pairs":
            return ",".join(value)
        if self.kind == "map":
            return f"[{','.join(f'{name}={one}' for name, one in value.items())}]"
        return f"{value:g}" if self.kind == "float" else str(value)


@dataclass(frozen=True, slots=True)
class Given:
    """A parsed command line: the value of each flag, and the names of the flags that were set."""

    values: Mapping[str, Any]
    changed: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def shown(self, flags: Sequence[Flag]) -> dict[str, str]:
        """Return the value of each flag, as text."""
        return {flag.name: flag.shown(self.values[flag.key]) for flag in flags}


def read_flags(flags: Sequence[Flag], args: Sequence[str]) -> tuple[Given, list[str]]:
    """Parse a command line. Return the flags and the positional arguments.

    Raises  click.ClickException in pflag's words
    """
    by_name = {flag.name: flag for flag in flags}
    by_letter = {flag.short: flag for flag in flags if flag.short}
    values: dict[str, Any] = {flag.name: flag.default for flag in flags}
    changed: set[str] = set()
    rest: list[str] = []
    left = list(args)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if len(word) < 2 or word[0] != "-":
            rest.append(word)
            continue
        flag, name, text = _split(word, by_name, by_letter)
        if text is None and not left and flag.kind not in _ALONE:
            raise FlagError(f"flag needs an argument: {name}")
        if text is None:
            text = "true" if flag.kind in _ALONE else left.pop(0)
        values[flag.key] = _value(flag, text, values[flag.key] if flag.name in changed else None)
        changed.add(flag.name)
    return Given(values, frozenset(changed)), rest


def _split(word: str, by_name: Mapping[str, Flag], by_letter: Mapping[str, Flag]) -> tuple[Flag, str, str | None]:
    """Return a word's flag, the flag's name in messages, and the value in the word; None if the word holds none."""
    if word.startswith("--"):
        name, equals, text = word[2:].partition("=")
        if not name or name[0] in "-=":
            raise FlagError(f"bad flag syntax: {word}")
        flag = by_name.get(name.replace("_", "-"))
        if flag is None:
            raise FlagError(f"unknown flag: --{name}", unknown=name.replace("_", "-"))
        return flag, f"--{flag.name}", text if equals else None
    letter, text = word[1], word[2:].removeprefix("=")
    flag = by_letter.get(letter)
    if flag is None:
        raise FlagError(f"unknown shorthand flag: '{letter}' in {word}")
    return flag, f"'{letter}' in {word}", text if len(word) > 2 else None


def _value(flag: Flag, text: str, before: Any) -> Any:
    name = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    try:
        return _READERS[flag.kind](text, before)
    except (ValueError, csv.Error, MoorageError) as error:
        raise FlagError(f'invalid argument "{text}" for "{name}" flag: {error}') from None


#: The release of kube-scheduler whose flags these are.
RELEASE: Final = CURRENT.version
_MOST_LEVEL: Final = 2**31 - 1


def _version(text: str, before: Any) -> str:
    if text.startswith("v") and not text.startswith(RELEASE):
        raise ValueError(f'version "{text}" must match major/minor/patch of default version "{RELEASE}"')
    if text == "raw" or text.startswith("v"):
        return text
    return str(_bool(text, before)).lower()


def _bool(text: str, before: Any) -> bool:
    return quantity.parse_bool(text)


def _int(text: str, before: Any) -> int:
    try:
        return int(text, 0) if "_" not in text else int("x")
    except ValueError:
        raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _float(text: str, before: Any) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'strconv.ParseFloat: parsing "{text}": invalid syntax') from None


def _list(text: str, before: Any) -> list[str]:
    parts = next(csv.reader([text], strict=True), []) if text else []
    return [*(before or []), *parts]


def _level(text: str, before: Any) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if int(text) > _MOST_LEVEL:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _levels(text: str, before: Any) -> str:
    for part in filter(None, text.split(",")):
        pattern, equals, level = part.partition("=")
        if not (pattern and equals):
            raise ValueError(f'"{part}" does not have the pattern=N format')
        try:
            _level(level, before)
        except ValueError as error:
            raise ValueError(f'parsing verbosity in "{part}": {error}') from None
    return text


def _quantity(text: str, before: Any) -> str:
    try:
        quantity.parse(text)
    except MoorageError as error:
        raise ValueError(str(error).removeprefix(f"cannot parse {text!r}: ")) from None
    return text


def _ip(text: str, before: Any) -> str:
    try:
        ip_address(text or "::")
    except ValueError:
        raise ValueError(f'failed to parse IP: "{text}"') from None
    return text


def _numbers(text: str, before: Any) -> list[str]:
    numbers = text.split(",")
    for number in numbers:
        _int(number, None)
    return [*(before or []), *numbers]


def _files(text: str, before: Any) -> list[str]:
    if len(text.partition(":")[0].split(",")) != 2:
        raise ValueError("expected comma separated certificate and key file paths")
    return [*(before or []), text]


def _map(text: str, before: Any) -> dict[str, str]:
    # A single pair is taken as it is, commas included; in a list of pairs, one that contains a comma must be quoted.
    pairs = [text.strip('"')] if text.count("=") == 1 else next(csv.reader([text], strict=True), []) if text else []
    found: dict[str, str] = dict(before or {})
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair} must be formatted as key=value")
        found[name] = value
    return found


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "str": lambda text, before: text,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "duration": lambda text, before: parse_duration(text) / 1e9,
    "list": _list,
    "pairs": _list,
    "level": _level,
    "levels": _levels,
    "quantity": _quantity,
    "numbers": _numbers,
    "ip": _ip,
    "pair of files": _files,
    "each": lambda text, before: [*(before or []), text],
    "map": _map,
    "version": _version,
}
#: Kinds of flags that need no value.
_ALONE: Final = frozenset(["bool", "version"])


ASKS_HELP: Final = Flag("help", "bool", False, "", "", short="h")
#: Key of a click context that holds the flags to show in help, where they differ from the command's.
SHOWN: Final = "moorage.shown_flags"


class FlagCommand(click.Command):
    """A click command whose flags are parsed by ``read_flags``. Its callback receives ``given``.

    Set ``flags``, in the order of help, before the command is used.
    """

    flags: Sequence[Flag] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        shown = [_option(flag) for flag in self.flags]
        return [*shown, click.Option(["-h", "--help"], is_flag=True, help="Show this message and exit.")]

    def read(self, ctx: click.Context, args: Sequence[str]) -> tuple[Given, list[str]]:
        """Parse a command line."""
        return read_flags([*self.flags, ASKS_HELP], args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, rest = self.read(ctx, args)
        if given["help"] and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx))
            ctx.exit()
        if any(rest) and not ctx.resilient_parsing:
            words = " ".join(f'"{word}"' for word in rest)
            raise FlagError(f'"{ctx.command_path}" does not take any arguments, got [{words}]')
        ctx.params = {"given": given}
        return []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        flags: Sequence[Flag] = ctx.meta.get(SHOWN, self.flags)
        for section in dict.fromkeys(flag.section for flag in flags):
            with formatter.section(f"{section} flags"):
                formatter.write_dl([_help_line(flag) for flag in flags if flag.section == section])


def _option(flag: Flag) -> click.Option:
    names = [f"--{flag.name}", *([f"-{flag.short}"] if flag.short else [])]
    alone = flag.kind in _ALONE
    return click.Option(names, is_flag=alone, type=click.Path() if flag.files and not alone else None, help=flag.help)


_METAVARS: Final = {
    "str": "STRING", "int": "INT", "float": "FLOAT", "duration": "DURATION", "list": "A,B,…", "pairs": "A,B,…",
    "each": "STRING", "level": "LEVEL", "levels": "FILE=LEVEL,…", "quantity": "QUANTITY", "numbers": "A,B,…", "ip": "ADDRESS",
    "pair of files": "STRING",
    "map": "NAME=VALUE,…",
}  # fmt: skip


def _help_line(flag: Flag) -> tuple[str, str]:
    metavar = "" if flag.kind in _ALONE else f" {flag.metavar or _METAVARS[flag.kind]}"
    short = f"-{flag.short}, " if flag.short else ""
    default = "" if flag.default in ("", False, (), None) or flag.default == {} else f" [default: {flag.shown(flag.default)}]"
    return f"{short}--{flag.name}{metavar}", f"{flag.help}{default}"
