"""The documentation site: folders by reader, old addresses that lead on, and a navigation with every page."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
READERS = {"start", "operate", "extend", "research", "run", "reference", "project", "contribute"}


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts/site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_folder_is_for_one_reader():
    assert {path.name for path in DOCS.iterdir() if path.is_dir() and any(path.glob("*.md"))} == READERS
    headings = re.findall(r"^## (.+)$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)
    assert [title.lower().split()[0] for title in headings] == [
        "start", "operate", "extend", "research", "run", "reference", "project", "contribute",
    ]  # fmt: skip


def test_old_addresses_lead_to_pages(hooks):
    moved = hooks.moved_pages(DOCS)
    assert len(moved) > 40
    assert [new for new in moved.values() if not (DOCS / new).is_file()] == []
    assert [old for old in moved if (DOCS / old).exists()] == []
    assert set(moved.values()).isdisjoint(moved), "an old address leads to another old one"


def test_a_redirect_is_relative_and_keeps_the_heading(hooks):
    page = hooks.redirect("explanation/fidelity.md", "project/fidelity.md")
    assert 'location.replace("../../project/fidelity/" + location.hash)' in page
    assert 'content="0; url=../../project/fidelity/"' in page
    assert "http:" not in page


def test_the_navigation_has_every_page(hooks):
    def pages(entries):
        for entry in entries:
            for found in entry.values() if isinstance(entry, dict) else [entry]:
                yield from [found] if isinstance(found, str) else pages(found)

    nav = list(pages(hooks.on_config({"docs_dir": str(DOCS)})["nav"]))
    assert sorted(nav) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
