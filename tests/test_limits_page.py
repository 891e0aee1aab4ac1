"""The table of limits in ``docs/run/robustness.md``: its figures are the code's, and its tests are there."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "run" / "robustness.md"
HEADING = "## What limits each resource"
UNITS = {"": 1, "s": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def rows_of(text):
    """Return the cells of each row that has a figure, by what the row is about."""
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if line.startswith("|")]
    return [row for row in rows[2:] if len(row) == 4]


def figure(text):
    """Return a number with its unit, in bytes or seconds or pieces; None for what is none."""
    found = re.fullmatch(r"([\d,]+(?:\.\d+)?)(?: (s|KiB|MiB|GiB))?", text)
    return found and float(found[1].replace(",", "")) * UNITS[found[2] or ""]


def constant(place):
    """Return the value at ``package/module.py: NAME.attribute``, below ``src/moorage``."""
    path, _, name = place.strip("`").partition(".py: ")
    found = importlib.import_module(f"moorage.{path.replace('/', '.')}")
    for part in name.split("."):
        found = getattr(found, part)
    return found


@cache
def names_in(path):
    names = (node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
    return {name for name in names if name.startswith("test_")}


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


def test_the_table_is_found():
    assert len(ROWS) > 30
    assert {"the request line", "connections to the embedded server", "watches at a time"} <= {row[0] for row in ROWS}


@pytest.mark.parametrize(("what", "limit", "place", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_limit_is_what_the_code_has_and_a_test_holds_it(what, limit, place, test):
    del what
    assert figure(limit) == constant(place)
    path, _, name = test.strip("`").partition("::")
    assert name in names_in(ROOT / path)


def test_figures_are_read_as_they_are_written():
    figures = {"16 KiB": 16384, "3 MiB": 3 << 20, "12,000": 12000, "75 s": 75, "0.5 s": 0.5, "many": None, "": None}
    assert {text: figure(text) for text in figures} == figures


def test_a_row_that_lost_a_cell_is_not_passed_over():
    section = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and not re.match(r"\| (\*\*|what \|)|\|-", line)]
    assert len(lines) == len(ROWS)
