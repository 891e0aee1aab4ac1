"""Man pages say what ``--help`` says, in roff."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from moorage.interfaces.cli.main import cli
from moorage.interfaces.cli.man import man_pages

MACROS = {".TH", ".SH", ".PP", ".TP", ".B", ".nf", ".fi"}


def commands(command=cli, parent=None, name="moorage"):
    """Yield the name and the context of every command."""
    ctx = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield ctx.command_path.replace(" ", "-"), ctx
    if isinstance(command, click.Group):
        for word in command.list_commands(ctx):
            yield from commands(command.get_command(ctx, word), ctx, word)


def plain(page):
    """Return the words of a page, as man would show them."""
    lines = [line if line[:3] not in {".SH", ".B "} else line[3:] for line in page.splitlines() if line not in MACROS]
    return " ".join(" ".join(lines).replace("\\-", "-").replace("\\&", "").replace("\\e", "\\").split())


def test_every_command_has_a_page_that_says_what_its_help_says():
    pages = dict(man_pages())
    assert {"moorage", "moorage-simulate", "moorage-config-show", "moorage-run"} < set(pages)
    for name, ctx in commands():
        told = plain(pages[name])
        for parameter in ctx.command.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and name != "moorage-run":
                assert " ".join(record[0].split()) in told
                assert " ".join(record[1].split()) in told
        help_words = re.sub(r"\[default: .*?\]", "", ctx.get_help()).split()
        flags = {word.rstrip(",.;:") for word in help_words if re.fullmatch(r"--[a-z][\w-]+[,.;:]?", word)}
        assert {flag for flag in flags if flag not in told} == set(), name


def test_pages_have_no_macros_by_accident():
    for name, page in man_pages():
        starts = {line.split(" ")[0] for line in page.splitlines() if line.startswith((".", "'"))}
        assert starts <= MACROS, name
        assert page.splitlines()[0].startswith(f'.TH "{name.upper()}" "1" ')
        assert page.splitlines()[1] == ".SH NAME"
        assert re.search(r"(?<!\\)-", page.partition("\n")[2]) is None, "an unescaped dash is printed as a hyphen"


def test_examples_keep_their_lines(moorage):
    page = moorage("man", "simulate").out
    assert "\n.nf\n" in page
    assert "\n    helm template chart/ | moorage simulate \\-f cluster.json \\-f \\-\n.fi\n" in page
    assert moorage("man").out.startswith('.TH "MOORAGE" "1"')
    assert moorage("man", "config", "show").out.startswith('.TH "MOORAGE-CONFIG-SHOW" "1"')


def test_pages_are_written(moorage, tmp_path):
    ran = moorage("man", "--write", tmp_path / "man1")
    names = {path.name for path in (tmp_path / "man1").iterdir()}
    assert {"moorage.1", "moorage-up.1", "moorage-plugin-new.1"} < names
    assert ran.out == f"wrote {len(names)} man pages into {tmp_path / 'man1'}\n"
    assert (tmp_path / "man1/moorage-up.1").read_text("utf-8") == moorage("man", "up").out


@pytest.mark.parametrize("words", [["nothing"], ["config", "nothing"]])
def test_unknown_commands(moorage, words):
    ran = moorage("man", *words)
    assert (ran.status, ran.out, ran.err) == (1, "", f"error: {' '.join(words)}: no such command; see moorage --help\n")


def test_the_pages_that_the_wheel_installs_are_those_of_now():
    """If this fails: make man."""
    installed = {path.stem: path.read_text("utf-8") for path in (Path(__file__).parents[3] / "man").glob("*.1")}
    assert installed == dict(man_pages())


def test_a_terminal_shows_a_page_formatted(monkeypatch, moorage):
    monkeypatch.setattr("moorage.interfaces.cli.man.bare", lambda stream: SimpleNamespace(isatty=lambda: True))
    shown = moorage("man", "drain")
    assert (shown.status, ".TH" in shown.out) == (0, False)
    assert shown.out.startswith("Usage: moorage drain [OPTIONS] NODE")
