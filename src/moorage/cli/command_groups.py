"""Command groups that suggest the nearest command for a mistyped one, with every version of click."""

from __future__ import annotations

from difflib import get_close_matches

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A click group that suggests the nearest command when the given one does not exist."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] in known or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(args[0], known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
