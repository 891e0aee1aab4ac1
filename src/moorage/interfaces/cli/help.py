"""``moorage help``: the pages of the documentation, which travel with the package."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click

from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import bundled_folder
from moorage.interfaces.cli.main import OK, cli
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.terminal import bare, output_style, shows_colour

#: Folder → the heading of its pages in the list, in the order to read them.
_KINDS: Final = {
    "start": "Start", "operate": "Operate", "extend": "Extend", "research": "Research", "run": "Run it",
    "reference": "Reference", "reference/plugins": "Plugins", "project": "Project",
}  # fmt: skip
#: Other words that people look for → the topic.
_ALSO: Final = {"trust": "fidelity", "security": "policies"}
_SCHEMA: Final = ".schema.json"


def docs_folder() -> Path:
    """Return the folder of the pages: in the installed package, or in the project that an editable install points to.

    Raises  InputError if there is neither
    """
    return bundled_folder("docs", "index.md", "pages")


def help_pages() -> dict[str, Path]:
    """Return the pages by topic: the name of a page's file, without its ending."""
    folder = docs_folder()
    return {path.stem: path for kind in _KINDS for path in sorted((folder / kind).glob("*.md"))}


@described("help", name="help")
def show_help(words: tuple[str, ...]) -> int:
    """Run ``moorage help``."""
    if not words:
        click.echo_via_pager(_listed())
        return OK
    topic = "-".join(words).removesuffix(".md")
    if topic.endswith(_SCHEMA):
        click.echo(_schema(topic), nl=False)
        return OK
    if _plain(topic) == "readme":
        _show((docs_folder() / "index.md").read_text(encoding="utf-8"))
        return OK
    topic = _ALSO.get(topic.lower(), topic)
    page = {_plain(name): path for name, path in help_pages().items()}.get(_plain(topic))
    of_atlas = docs_folder() / "atlas" / f"{topic}.md"  # a hundred situations, which the list of topics leaves out
    if page is None and of_atlas.is_file() and of_atlas.parent == docs_folder() / "atlas":
        page = of_atlas
    if page is not None:
        _show(page.read_text(encoding="utf-8"))
    else:
        click.echo(command_help(words))
    return OK


def _plain(topic: str) -> str:
    """Return a topic in lower case without separators of words, so that NodeResourcesFit finds node_resources_fit."""
    return topic.lower().replace("-", "").replace("_", "")


def _listed() -> Iterator[str]:
    """Yield the topics with their titles, by kind."""
    pages = help_pages()
    folder = docs_folder()
    width = max(map(len, pages)) + 2
    for kind, title in _KINDS.items():
        yield f"{title}\n"
        for topic, path in pages.items():
            if path.parent == folder / kind:
                yield f"  {topic:{width}}{_title(path)}\n"
        yield "\n"
    yield "Show one: moorage help TOPIC\n"


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next(lines, "").lstrip("# ").strip()


def _schema(name: str) -> str:
    known = {path.name: path for path in sorted((docs_folder() / "reference").glob(f"*{_SCHEMA}"))}
    if name not in known:
        raise InputError(one_line(f"{name}: no such schema; there are {', '.join(known)}"))
    return known[name].read_text(encoding="utf-8")


def command_help(words: tuple[str, ...]) -> str:
    """Return the help of a command.

    Raises  InputError if there is no such command
    """
    command: click.Command | None = cli
    ctx = click.Context(cli, info_name="moorage", **cli.context_settings)
    for word in words:
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
        if command is None:
            raise InputError(_unknown(" ".join(words)))
        ctx = click.Context(command, info_name=word, parent=ctx, **command.context_settings)
    assert command is not None
    return command.get_help(ctx)


def _unknown(topic: str) -> str:
    near = get_close_matches(topic, [*help_pages(), *cli.list_commands(click.Context(cli))], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return one_line(f"{topic}: no such topic; {hint}moorage help lists all")


def _show(text: str) -> None:
    """Print a page: formatted on a terminal, otherwise as Markdown."""
    if not bare(sys.stdout).isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    coloured = shows_colour(bare(sys.stdout))
    made = io.StringIO()
    console = Console(file=made, width=output_style().width, force_terminal=coloured, no_color=not coloured)
    console.print(Markdown(text, hyperlinks=False))
    click.echo_via_pager(made.getvalue(), color=coloured)
