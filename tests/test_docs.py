"""The code on the pages runs, and the commands on them print what the pages say.

A page's ``python`` blocks run from top to bottom in one namespace. In a ``console`` block, each line ``$ moorage …`` is run in
the root of the project and must print the lines that follow it; a line ``…`` stands for any number of lines.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.plugins import builtin_registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text, language):
    """Return (line number of the first line, text) of the fenced blocks of a language."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: match.start(1)].count("\n") + 1, match.group(1)) for match in found]


def with_blocks(language):
    return [
        pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES if blocks(page.read_text("utf-8"), language)
    ]


@pytest.mark.parametrize("page", with_blocks("python"))
def test_the_code_on_a_page_runs(page):
    namespace = {"__name__": "page"}
    for line, code in blocks(page.read_text("utf-8"), "python"):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def sessions(text):
    """Return (command, what it should print) of each command in the console blocks."""
    for _, block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.rstrip("\n")


def tells(promised, printed):
    """Say whether the output is what the page promises, where a line ``…`` stands for any lines."""
    pattern = "\n".join(".*?" if line.strip() == "…" else re.escape(line) for line in promised.splitlines())
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.mark.parametrize("page", with_blocks("console"))
def test_the_commands_on_a_page_print_what_it_says(page):
    for command, promised in sessions(page.read_text("utf-8")):
        words = shlex.split(command)
        assert words[0] == "moorage", f"{command}: only moorage is run here; show other commands in an indented block"
        run = subprocess.run(
            [sys.executable, "-c", "import sys; from moorage.cli.main import main; sys.exit(main())", *words[1:]],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "COLUMNS": "120"},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        printed = "\n".join(line.rstrip() for line in (run.stdout + run.stderr).splitlines())
        assert tells(promised, printed), f"$ {command}\n{printed}"


TOLD = {
    "the same": ("a\nb", "a\nb", True),
    "more than promised": ("a", "a\nb", False),
    "an ellipsis for some lines": ("a\n…\nd", "a\nb\nc\nd", True),
    "an ellipsis, another end": ("a\n…\nd", "a\nb\nc", False),
    "dots are only dots": ("a.c", "abc", False),
}


@pytest.mark.parametrize(("promised", "printed", "good"), TOLD.values(), ids=TOLD)
def test_the_comparison_can_fail(promised, printed, good):
    assert tells(promised, printed) is good


def test_sessions_are_cut_at_prompts():
    text = "```console\n$ moorage a\none\n\ntwo\n$ moorage b\n```\n"
    assert list(sessions(text)) == [("moorage a", "one\n\ntwo"), ("moorage b", "")]


def links(page):
    """Return the pages, beside or below, that a page leads to."""
    found = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text("utf-8"))
    return [(page.parent / name).resolve() for name in found]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_links_lead_somewhere(page):
    assert [link for link in links(page) if not link.exists()] == []


def test_every_plugin_has_a_page_that_the_list_leads_to():
    registry = builtin_registry()
    listed = {link.name for link in links(ROOT / "docs" / "reference" / "plugins.md")}
    pages = {registry[name].__module__.rpartition(".")[2] + ".md" for name in registry}
    assert pages <= listed
