"""``moorage help`` shows the pages that the wheel ships, and every page that the help of a command names exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

from moorage.interfaces.cli.help import docs_folder, help_pages
from moorage.interfaces.cli.main import cli
from moorage.interfaces.cli.man import man_pages

ROOT = Path(__file__).parents[3]


def test_all_topics_are_listed_with_their_titles(moorage):
    said = moorage("help").out
    assert re.search(r"^  drain-nodes +Drain nodes without a surprise$", said, re.MULTILINE)
    assert {line.split()[0] for line in said.splitlines() if line.startswith("  ")} == help_pages().keys()


def test_a_page_is_printed_as_it_is(moorage):
    assert moorage("help", "drain").out == (ROOT / "docs/reference/drain.md").read_text()
    assert moorage("help", "plugin", "new").out == (ROOT / "docs/reference/plugin-new.md").read_text()
    assert moorage("help", "NodeResourcesFit").out.startswith("# NodeResourcesFit")
    assert moorage("help", "capacity.schema.json").out == (ROOT / "docs/reference/capacity.schema.json").read_text()


def test_a_command_without_a_page_shows_its_options(moorage):
    assert moorage("help", "config", "show").out.startswith("Usage: moorage config show ")


UNKNOWN = {
    "a misspelt page": (["dran"], "dran: no such topic; did you mean drain? moorage help lists all"),
    "a word of its own": (["xyzzyx"], "xyzzyx: no such topic; moorage help lists all"),
    "a schema": (["x.schema.json"], "x.schema.json: no such schema; there are capacity.schema.json, "),
}


@pytest.mark.parametrize(("words", "said"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_topic_is_named(moorage, words, said):
    ran = moorage("help", *words)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {said}")


def test_a_terminal_gets_the_page_laid_out(moorage, monkeypatch):
    monkeypatch.setattr(
        "moorage.interfaces.cli.help.bare", lambda stream: type("Terminal", (), {"isatty": lambda self: True})()
    )
    monkeypatch.setenv("NO_COLOR", "1")
    said = moorage("help", "help").out
    assert "# moorage help" not in said
    assert "moorage help" in said


def test_every_page_that_a_help_text_names_exists():
    named = {topic for _, page in man_pages() for topic in re.findall(r"moorage help ([a-z][a-z\\-]+)", page)}
    assert {topic.replace("\\-", "-") for topic in named} <= help_pages().keys()
    assert not [name for name, page in man_pages() if "docs/" in page]


def test_the_wheel_ships_all_pages():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    kinds = {f"docs/{path.relative_to(docs_folder()).parts[0]}" for path in help_pages().values()}
    assert kinds < wheel["force-include"].keys()
    assert wheel["shared-data"] == {"man": "share/man/man1"}
    assert isinstance(cli.get_command(click.Context(cli), "help"), click.Command)


@pytest.mark.parametrize(("word", "title"), [("trust", "# Fidelity"), ("security", "# Policies"), ("README", "# Moorage")])
def test_words_that_people_look_for_find_a_page(moorage, word, title):
    assert moorage("help", word).out.startswith(f"{title}\n")
