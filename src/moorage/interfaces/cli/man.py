"""``moorage man``: the help of the commands as man pages, from the same texts."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from moorage import __version__
from moorage.errors import InputError
from moorage.interfaces.cli.help import command_help
from moorage.interfaces.cli.main import OK, cli
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.terminal import bare

#: click's mark at the start of a paragraph whose line breaks are kept.
_AS_IT_IS = "\b\n"


class _Roff(click.HelpFormatter):
    """Formats the parts of a help page as roff."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.write(f".SH SYNOPSIS\n.B {_escaped(prog)}\n{_escaped(args)}\n")

    def write_heading(self, heading: str) -> None:
        self.write(f".SH {_escaped(heading).upper()}\n")

    def write_text(self, text: str) -> None:
        for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
            if paragraph.startswith(_AS_IT_IS):
                self.write(f".PP\n.nf\n{_escaped(paragraph.removeprefix(_AS_IT_IS))}\n.fi\n")
            else:
                self.write(f".PP\n{_escaped(' '.join(paragraph.split()))}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        for term, text in rows:
            self.write(f".TP\n.B {_escaped(term)}\n{_escaped(' '.join(text.split()))}\n")

    def write_paragraph(self) -> None:
        """Write nothing, as each paragraph starts with ``.PP``."""

    @contextmanager
    def section(self, name: str) -> Generator[None, None, None]:
        self.write_heading(name)
        yield

    @contextmanager
    def indentation(self) -> Generator[None, None, None]:
        yield


def _escaped(text: str) -> str:
    """Escape text for roff: backslashes, dashes, and dots and quotes at the start of a line, which would be macros."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", plain, flags=re.MULTILINE)


def man_page(command: click.Command, ctx: click.Context) -> str:
    """Return the man page of a command, with the texts of its ``--help``."""
    formatter = _Roff(width=10_000)
    command.format_usage(ctx, formatter)
    formatter.write_heading("description")
    command.format_help_text(ctx, formatter)
    command.format_options(ctx, formatter)
    command.format_epilog(ctx, formatter)
    name = ctx.command_path.replace(" ", "-")
    title = f'.TH "{name.upper()}" "1" "" "moorage {__version__}" "Moorage"'
    summary = command.get_short_help_str(10_000).rstrip(".")
    return f"{title}\n.SH NAME\n{_escaped(name)} \\- {_escaped(summary)}\n{formatter.getvalue()}"


def man_pages(
    command: click.Command | None = None, parent: click.Context | None = None, name: str = "moorage"
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the page of a command and of all its subcommands."""
    shown = cli if command is None else command
    ctx = click.Context(shown, info_name=name, parent=parent, **shown.context_settings)
    yield ctx.command_path.replace(" ", "-"), man_page(shown, ctx)
    if isinstance(shown, click.Group):
        for word in shown.list_commands(ctx):
            found = shown.get_command(ctx, word)
            if found is not None:
                yield from man_pages(found, ctx, word)


@described("man")
def man(words: tuple[str, ...], folder: Path | None) -> int:
    """Run ``moorage man``."""
    pages = dict(man_pages())
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (folder / f"{name}.1").write_text(text, encoding="utf-8")
        click.echo(f"wrote {len(pages)} man pages into {folder}")
        return OK
    name = "-".join(["moorage", *words])
    if name not in pages:
        raise InputError(f"{' '.join(words)}: no such command; see moorage --help")
    if bare(sys.stdout).isatty():
        click.echo_via_pager(command_help(words))  # the same texts, as a terminal shows them
    else:
        click.echo(pages[name], nl=False)
    return OK
