"""The documentation site: folders by reader, old addresses that lead on, and a navigation with every page."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import moorage
from tools import reference_parts

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
READERS = {"start", "operate", "extend", "research", "run", "reference", "project", "contribute"}
#: Folders that programs write; a page for a reader lists what is in them.
WRITTEN_BY_PROGRAMS = {"atlas"}


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts/site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_folder_is_for_one_reader():
    assert {path.name for path in DOCS.iterdir() if path.is_dir() and any(path.glob("*.md"))} == READERS | WRITTEN_BY_PROGRAMS
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


COPIED = {
    "a command and its output": ("$ moorage demo\n19 placed\n\nmore\n", "moorage demo"),
    "two commands": ("$ a\nx\n$ b\n", "a\nb"),
    "a command on two lines": ("$ a \\\n    --b\nanswer\n", "a \\\n    --b"),
    "no prompt": ("a: 1\nb: $ 2\n", "a: 1\nb: $ 2"),
}


@pytest.mark.parametrize(("block", "copied"), COPIED.values(), ids=COPIED)
def test_copying_takes_commands_without_prompts_and_output(block, copied):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    program = "console.log(JSON.stringify(require(process.argv[1]).commandsOf(JSON.parse(process.argv[2]))))"
    said = subprocess.run(
        [node, "-e", program, str(ROOT / "scripts/site/assets/site.js"), json.dumps(block)], capture_output=True, check=True
    )
    assert json.loads(said.stdout) == copied


def test_the_site_says_its_version_and_repository(hooks):
    config = hooks.on_config({"docs_dir": str(DOCS)})
    assert config["site_name"] == f"Moorage {moorage.__version__}"
    assert config["repo_url"].startswith("https://")


def test_the_look_of_the_site_loads_nothing_from_elsewhere():
    own = [path.read_text("utf-8") for path in (ROOT / "scripts/site").rglob("*.*")]
    assert len(own) == 4
    assert [text for text in own if re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)] == []


#: Pages that programs write: the atlas, the types of plugins from docstrings, the results of the end-to-end tests.
GENERATED = ("atlas/", "reference/plugin-types.md", "contribute/upstream-e2e.md")
#: Tables of which a test holds every row against the code: they are the code's words, and change with it.
HELD = {
    "reference/run.md": ("| flag |", "| metric |"),  # test_run.py, test_component_metrics.py
    "run/robustness.md": (
        "| what | limit | where | held by |",
        "| known difference |",
    ),  # test_limits_page.py, test_comparing.py
    "reference/wire.md": ("| request | for what | test |",),  # test_wire_run.py
}
#: What a reader can be asked to read; the reference comes from the code.
MOST_WORDS = 90_000


def words(text):
    """Count words: what has a letter or a digit, outside of blocks. Blocks are code and output, which other tests hold."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^ {4}.*$", "", prose, flags=re.MULTILINE)
    return len(re.findall(r"\S*\w\S*", prose))


def test_words_are_counted_outside_of_blocks():
    assert words("One two | three.\n\n```text\nfour\n```\n\n    five\n") == 3


def by_hand(page):
    """Return the text of a page without what programs write (figures, `make reference`), and the tables that a test holds."""
    text = re.sub(
        r"^<!-- ([^\n]+): begin -->$.*?^<!-- \1: end -->$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    text = reference_parts.by_hand(text)
    for head in HELD.get(page.relative_to(ROOT).as_posix().removeprefix("docs/"), ()):
        text, found = re.subn(rf"^{re.escape(head)}.*\n(?:\|.*\n)+", "", text, flags=re.MULTILINE)
        assert found, f"{page} has no table {head}"
    return text


def test_the_pages_have_no_more_words_by_hand_than_can_be_read():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    own = [page for page in pages if not page.relative_to(ROOT).as_posix().removeprefix("docs/").startswith(GENERATED)]
    assert len(own) < len(pages) - 100
    assert sum(words(by_hand(page)) for page in own) <= MOST_WORDS
