"""The parameters of commands, from their tables: one TOML file a command in ``options/``, or in ``interfaces/questions`` for a
question; and ``shared.toml``.

A table is a parameter, in the order of the help page: its name in the program, and

``argument``       a positional argument, by this name on the help page; else an option
``flags``          how the option is written, if not ``--name``: one or several forms, or ``--on/--off``
``type``           flag, integer, number, path, duration, release, release or auto; without it, text
``least``, ``most``  the bounds of a number; ``open``: the lower one is excluded
``choices``        the values that it takes
``many``           it may be repeated; a positional argument takes all that follow
``default``, ``shown``  the value without it, and whether the help page says so
``required``, ``metavar``, ``variable``, ``help``  as click takes them; ``variable`` is one of the environment
``old``            a flag of kube-scheduler that 1.37 does not have

A table with ``use`` stands for a parameter, or a group of them, of ``shared.toml``; ``without`` names those that are left out,
and ``outputs`` are the values of ``-o``. The help page begins with ``purpose``; ``about`` follows it, and ``examples`` and
``more`` end the page. ``form`` names the class of the command, if it is one of those below.

``refused`` says what is refused, in which words; in ``shared.toml``, by the parameter of the commands that refuse it. Between
commas stands what must all hold, each one or several alternatives: ``name`` a parameter that is given, ``not name`` one that is
not, ``name=value|value`` one that has or contains such a value, ``@group`` a group of which any is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from moorage.api.durations import parse_duration
from moorage.api.releases import LEGACY, find_release, why_unknown
from moorage.basis import table_of
from moorage.errors import InputError
from moorage.interfaces.cli.main import DescribedCommand
from moorage.interfaces.questions.question_tables import NAMES, question_table, rows_of

_PACKAGE: Final = "moorage.interfaces.cli"
#: The value of ``--emulate`` for the release that the cluster runs.
AUTO: Final = "auto"

# -- types -------------------------------------------------------------------------------------------------------------


class EmulatedRelease(click.ParamType[str]):
    """The name of a release that can be emulated, given as a minor release or a patch release."""

    name = "release"

    def __init__(self, *, auto: bool = False) -> None:
        """Accept ``AUTO`` too, if the command reads a cluster."""
        self._auto = auto

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if self._auto and value == AUTO:
            return value
        found = find_release(value)
        if found is None:
            self.fail(why_unknown(value), param, ctx)
        return found.name


class _Duration(click.ParamType[float]):
    """A duration in Go's syntax, or a number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return float(value) if str(value).isdecimal() else parse_duration(str(value)) / 1e9
        except (InputError, ValueError) as error:
            self.fail(str(error), param, ctx)


# -- commands ----------------------------------------------------------------------------------------------------------


class TakesFiles(DescribedCommand):
    """A command that takes files with ``-f`` and no positional arguments."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            many = "s" if len(rest) > 1 else ""
            ctx.fail(f"Got unexpected extra argument{many} ({' '.join(rest)}); give -f before each file")
        return rest


class OldOption(click.Option):
    """A flag of kube-scheduler that 1.37 does not have. Help lists such flags in a separate section."""


class TakesFilesAndFlags(TakesFiles):
    """A command that takes files with ``-f`` and flags of earlier releases."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {True: [], False: []}  # type: dict[bool, list[tuple[str, str]]]
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                records[isinstance(parameter, OldOption)].append(record)
        sections = {"Options": records[False], f"Flags of kube-scheduler {LEGACY[0]} to {LEGACY[-1]}": records[True]}
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


#: Type → what click takes for it, given the row.
_TYPES: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "text": lambda row: str,
    "integer": lambda row: click.IntRange(row.get("least"), row.get("most")) if row.keys() & {"least", "most"} else int,
    "number": lambda row: click.FloatRange(row.get("least"), row.get("most"), min_open=row.get("open", False)),
    "path": lambda row: click.Path(path_type=Path),
    "duration": lambda row: _Duration(),
    "release": lambda row: EmulatedRelease(),
    "release or auto": lambda row: EmulatedRelease(auto=True),
}


#: What a table calls the class of its command.
_FORMS: Final[Mapping[str, type[click.Command]]] = {
    "plain": DescribedCommand, "files": TakesFiles, "files and flags": TakesFilesAndFlags,
}  # fmt: skip


def described(table: str, cls: Any = None, **settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a command of a function, with the parameters and the help page of its table.

    ``table``     its name: ``record-cut`` for ``moorage record cut``
    ``cls``       the class of the command, if it is a group
    ``settings``  others, as click takes them
    """
    row = _table(table)
    page = f"{row['purpose']}\n\n{row.get('about', '')}"

    def make(run: Callable[..., Any]) -> Any:
        command: Any = click.command(
            cls=cls or _FORMS[row.get("form", "plain")], help=page, epilog=examples_of(table), params=parameters_of(table),
            **settings,
        )  # fmt: skip

        @wraps(run)
        def run_allowed(*args: Any, **given: Any) -> Any:
            _refuse(table, given)
            return run(*args, **given)

        return command(run_allowed)

    return make


def deferred(table: str, place: str) -> click.Command:
    """Return the command of a table whose module is imported when it runs: its help and completions need the table alone.

    ``place``  the module in this package, a colon, and the command in it
    """

    def run(**given: Any) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(f"{_PACKAGE}.{module}"), name).callback(**given)

    made: click.Command = described(table, name=table)(run)
    return made


def examples_of(name: str) -> str | None:
    """Return what ends the help page of a command; None if it has no examples."""
    table = _table(name)
    if "examples" not in table:
        return None
    shown = "".join(f"    {line}\n" for line in table["examples"].splitlines())
    return f"Examples:\n\n\b\n{shown}\n{table.get('more', '')}\n"


def _refuse(table: str, given: Mapping[str, Any]) -> None:
    """Refuse parameters that do not go together, or that another one needs.

    Raises  UsageError
    """
    shared = _table("shared")["refused"]
    for rules in (_table(table).get("refused", {}), *(shared[name] for name in given if name in shared)):
        for when, text in rules.items():
            if all(any(_holds(term, given) for term in terms.split(" or ")) for terms in when.split(", ")):
                raise click.UsageError(text.format_map(given))


def _holds(term: str, given: Mapping[str, Any]) -> bool:
    if term.startswith("not "):
        return not _holds(term[4:], given)
    name, has_values, values = term.partition("=")
    found = [given.get(one) for one in (_named(name[1:]) if name.startswith("@") else (name,))]
    if has_values:
        held = found[0] if isinstance(found[0], tuple) else found
        return any(str(one) in values.split("|") for one in held)
    return any(one is not None and one is not False and one not in ("", ()) for one in found)


def parameters_of(name: str) -> list[click.Parameter]:
    """Return the parameters of a command, in the order of its help page."""
    return [_parameter(into, row) for into, row in _rows(name)]


def purpose_of(name: str) -> str:
    """Return what the help page of a command says first."""
    return str(_table(name)["purpose"])


def own_parameters(name: str) -> list[click.Parameter]:
    """Return the parameters of a command that are not those of all questions."""
    shared = _table("shared")
    of_all = {*_named("question")}
    return [_parameter(into, row) for into, row in _rows(name) if into not in of_all or row != shared[into]]


def shared_parameters(name: str) -> list[click.Parameter]:
    """Return the parameters of a group that several commands have."""
    return [_parameter(into, _table("shared")[into]) for into in _named(name)]


@cache
def _table(name: str) -> dict[str, Any]:
    return question_table(name) if name in NAMES else table_of(_PACKAGE, f"options/{name}.toml")


def _rows(name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for into, row in rows_of(_table(name)):
        if "use" not in row:
            yield into, row
            continue
        for shared in _named(row["use"]):
            found = _table("shared")[shared]
            if shared not in row.get("without", ()):
                yield shared, {**found, "choices": row["outputs"]} if shared == "output" and "outputs" in row else found


def _named(name: str) -> Iterator[str]:
    """Yield the names of the parameters of a group, or that of a parameter."""
    groups = _table("shared")["groups"]
    for one in groups.get(name, ()):
        yield from _named(one) if one != name else (one,)
    if name not in groups:
        yield name


class _Choice(click.Choice[str]):
    """A choice that takes ``text`` for a table, as other commands call what they print for people."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        is_table = value == "text" and "text" not in self.choices and "table" in self.choices
        return super().convert("table" if is_table else value, param, ctx)


def _parameter(into: str, row: Mapping[str, Any]) -> click.Parameter:
    given = {field: row[field] for field in ("default", "required", "metavar", "help") if field in row}
    if "choices" in row:
        given["type"] = _Choice(row["choices"])
    elif row.get("type") != "flag":
        given["type"] = _TYPES[row.get("type", "text")](row)
    if "argument" in row:
        return click.Argument([into], nargs=-1 if row.get("many") else 1, **{**given, "metavar": row["argument"] or None})
    kind = OldOption if row.get("old") else click.Option
    return kind(
        [*row.get("flags", [f"--{into.replace('_', '-')}"]), into],
        is_flag=row.get("type") == "flag" or None, multiple=row.get("many", False), show_default=row.get("shown"),
        envvar=row.get("variable"), **given,
    )  # fmt: skip
