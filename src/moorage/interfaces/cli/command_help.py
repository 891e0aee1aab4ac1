"""Commands as users of kubectl expect them: options by section on the help page, and ``--flag=true`` or ``=false``."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

import click

from moorage.interfaces.cli.pflag import parse_bool

__all__ = ["CommandGroup", "DescribedCommand"]


_OWN: Final = "Options"
#: Section → parameters; all others are the command's own, which come first.
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Input": (
        "paths", "recursive", "moment", "live", "context", "kubeconfig", "validate", "treat_as", "allow_unknown", "trace",
        "nodes", "pods", "stay",
    ),
    "Changes to make first": ("edits", "cordoned", "removed", "added", "scaled", "replacements"),
    "Scheduler": (
        "config", "emulate", "algorithm_provider", "feature_gates", "max_disks", "no_quota", "plugins", "extenders", "seed",
    ),
    "Output": (
        "output", "namespace", "selector", "pods_listed", "ascii_only", "quiet", "events",
        "scored", "explains", "timing", "help",
    ),
}  # fmt: skip
_SECTION_OF: Final = {name: section for section, names in _SECTIONS.items() for name in names}
#: The width of the column of options.
_MOST_WIDTH: Final = 34


class DescribedCommand(click.Command):
    """A command whose help page shows its options by section: its own, input, changes, scheduler, output.

    Its flags take a value after ``=``, as kubectl's do: ``--force=false``. The last of several counts.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._without_values(args))

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


# -- command groups ----------------------------------------------------------------------------------------------------
# Command groups that suggest the nearest command for a mistyped one, with every version of click.


class CommandGroup(click.Group):
    """A click group that suggests the nearest command when the given one does not exist."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] in known or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(args[0], known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
