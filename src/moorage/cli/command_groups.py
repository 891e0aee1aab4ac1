"""Groups of commands, which say what a mistyped word may have meant, whatever the version of click."""

from __future__ import annotations

from difflib import get_close_matches

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A group of commands."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] in known or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(args[0], known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
