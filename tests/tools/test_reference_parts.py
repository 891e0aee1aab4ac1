"""The parts of pages that the code writes are those of now, their links lead to pages, and a change of the code is noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import moorage
from moorage.interfaces.cli.option_tables import parameters_of
from tools import reference_parts
from tools.reference_parts import DOCS, KINDS, PART, by_hand, main, pages, table, with_parts

PARTS = [(path, found["what"]) for path in pages() for found in PART.finditer(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", [*pages()], ids=lambda path: path.name)
def test_the_parts_of_a_page_are_those_of_now(path):
    """If this fails: make reference."""
    text = path.read_text("utf-8")
    assert with_parts(text) == text
    assert text.count("<!-- make reference: ") == text.count("<!-- end -->") == len([*PART.finditer(text)])


def test_every_kind_of_part_is_on_a_page():
    assert {what.partition(" ")[0] for _, what in PARTS} == KINDS.keys()


def test_a_part_that_is_old_is_named_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference_parts, "DOCS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# Man\n\n<!-- make reference: options man -->\nold\n<!-- end -->\n\nBelow.\n")
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "page.md: not the parts of now; run make reference\n"
    assert main([]) == 0
    assert "| `--write DIR` | Write all pages into this folder. |" in page.read_text()
    assert page.read_text().endswith("<!-- end -->\n\nBelow.\n")
    assert main(["--check"]) == 0


def test_a_part_of_no_known_kind_is_an_error():
    with pytest.raises(KeyError, match="nothing"):
        with_parts("<!-- make reference: nothing -->\n<!-- end -->\n")


def test_what_is_by_hand_is_without_parts():
    assert by_hand("a\n<!-- make reference: x -->\nb c\n<!-- end -->\nd\n").split("\n")[0] == "a"
    assert "b c" not in by_hand("a\n<!-- make reference: x -->\nb c\n<!-- end -->\nd\n")


def test_links_are_for_parameters_that_are_there():
    interfaces = Path(reference_parts.__file__).parents[1] / "src" / "moorage" / "interfaces"
    commands = {path.stem for path in interfaces.rglob("*.toml") if path.parent.name in {"options", "questions"}}
    names = {one.name for command in commands - {"shared"} for one in parameters_of(command)}
    known = names | {f"{command}.{name}" for command in commands for name in names}
    known |= {f"Cluster.{name}" for name in dir(moorage.Cluster)}
    assert {name for name in reference_parts._LINKS if name not in known} == set()


def test_a_table_keeps_its_cells_apart():
    assert table(["a", "b"], [["x|y", ""]]) == "| a | b |\n|---|---|\n| x\\|y | |"


def test_the_options_of_a_page_are_those_of_its_command():
    told = {what.split()[-1] for _, what in PARTS if what.startswith("options") and "shared" not in what}
    assert told > {"simulate", "explain", "plan", "drain", "record", "up"}
    page = (DOCS / "reference" / "explain.md").read_text("utf-8")
    flags = {flag for one in parameters_of("explain") for flag in one.opts if flag.startswith("--")}
    shared = set(re.findall(r"`(--[a-z-]+)", (DOCS / "reference" / "questions.md").read_text("utf-8")))
    assert {flag for flag in flags - shared if f"`{flag}" not in page} == set()
