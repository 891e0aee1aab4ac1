"""Commands that take input files with ``-f`` only: arguments without it, as in ``-f *.yaml``, are rejected with a hint."""

from __future__ import annotations

import click

from moorage.interfaces.cli.command_help import DescribedCommand

__all__ = ["TakesFiles"]


class TakesFiles(DescribedCommand):
    """A command that takes files with ``-f`` and no positional arguments."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            many = "s" if len(rest) > 1 else ""
            ctx.fail(f"Got unexpected extra argument{many} ({' '.join(rest)}); give -f before each file")
        return rest
