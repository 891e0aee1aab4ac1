"""The help page of a command: its options by section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

__all__ = ["DescribedCommand"]

_OWN: Final = "Options"
#: Section → parameters; all others are the command's own, which come first.
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Input": (
        "paths", "recursive", "live", "context", "kubeconfig", "validate", "treat_as", "allow_unknown", "trace", "nodes",
        "pods", "stay",
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
    """A command whose help page shows its options by section: its own, input, changes, scheduler, output."""

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
