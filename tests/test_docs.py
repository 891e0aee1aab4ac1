"""The code on the pages runs, and the commands on them print what the pages say.

A page's ``python`` blocks run from top to bottom in one namespace. In a ``console`` block, each line ``$ moorage …`` is run in
the root of the project and must print the lines that follow it; a line ``…`` stands for any number of lines.
"""

import functools
import importlib
import inspect
import re
import shlex
from pathlib import Path

import click
import pytest

from moorage.api.releases import TODAY
from moorage.framework.points import POINTS
from moorage.interfaces.cli.main import main
from moorage.plugins import builtin_registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py"))]


def blocks(text, language):
    """Return (line number of the first line, text) of the fenced blocks of a language."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: match.start(1)].count("\n") + 1, match.group(1)) for match in found]


def with_blocks(language):
    return [
        pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES if blocks(page.read_text("utf-8"), language)
    ]


@pytest.mark.slow
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


@pytest.fixture
def moorage(monkeypatch, capsys):
    """Run the command in this process and in the root of the project; return what it printed.

    The usual time limit of a search ends at the clock: a busy machine would print less than the page says.
    """
    monkeypatch.setattr("moorage.interfaces.cli.questions.question.usual_limit_s", lambda objects: 600.0)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)  # a page shows what a file gets

    def run(*words):
        with pytest.raises(SystemExit):
            main(list(words))
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


@pytest.mark.slow
@pytest.mark.parametrize("page", with_blocks("console"))
def test_the_commands_on_a_page_print_what_it_says(moorage, page):
    for command, promised in sessions(page.read_text("utf-8")):
        words = shlex.split(command)
        assert words[0] == "moorage", f"{command}: only moorage is run here; show other commands in an indented block"
        printed = "\n".join(line.rstrip() for line in moorage(*words[1:]).splitlines())
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


# One test for all pages costs a tenth of what one for each does.
def test_links_lead_somewhere():
    assert {page: dead for page in PAGES if (dead := [link for link in links(page) if not link.exists()])} == {}


def test_every_plugin_has_a_page_that_the_list_leads_to():
    registry = builtin_registry()
    listed = {link.name for link in links(ROOT / "docs" / "reference" / "plugins.md")}
    pages = {registry[name].__module__.rpartition(".")[2] + ".md" for name in registry}
    assert pages <= listed


# -- names on the pages are names in the program ----------------------------------------------------------------------------


def is_there(name):
    """Say whether a dotted name is a package, a module, or what one of them has."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def python_names(text):
    """Return the names within the package that a page or a docstring writes as code; domains and groups of ours are others."""
    return {
        name for name in re.findall(r"`(moorage(?:\.\w+)+)(?:\(.*?\))?`", text) if name.split(".")[1] not in {"dev", "test"}
    }


def test_what_a_page_says_is_in_the_package_is_there():
    assert [(page, name) for page in PAGES for name in python_names(page.read_text("utf-8")) if not is_there(name)] == []


def generated(page):
    """Return what the site generates from docstrings on a page: a dotted name and its object."""
    for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
        module, found = name, None
        while found is None:
            try:
                found = importlib.import_module(module)
            except ModuleNotFoundError:
                module = module.rpartition(".")[0]
        for part in name.removeprefix(module).split(".")[1:]:
            found = getattr(found, part)
        yield name, found


def undocumented(found):
    """Yield the public parts of a class that neither their own docstring nor that of the class describes."""
    of_class = found.__doc__ or ""
    for name, part in vars(found).items():
        is_part = inspect.isfunction(part) or isinstance(part, (property, classmethod, functools.cached_property))
        if is_part and not name.startswith("_") and not inspect.getdoc(getattr(found, name)) and not inspect.getdoc(part):
            yield name
    source = inspect.getsource(found)
    for name in getattr(found, "__annotations__", {}):
        if (
            not name.startswith("_")
            and not re.search(rf"\b{name}\b", of_class)
            and not re.search(rf"#: .*\n\s+{name}\b", source)
        ):
            yield name


@pytest.mark.parametrize("name", ["api.md", "testing.md"])
def test_pages_that_are_generated_name_what_is_there(name):
    found = dict(generated(REFERENCE / name))
    assert len(found) > 3
    assert [name for name, one in found.items() if not inspect.getdoc(one)] == []


def test_the_check_of_descriptions_can_fail():
    class Described:
        """Has ``known``."""

        known: int
        unknown: int

        def told(self):
            """Say something."""

        def untold(self):
            pass

    assert list(undocumented(Described)) == ["untold", "unknown"]


def test_what_a_docstring_says_is_in_the_package_is_there():
    told = {name for source in SOURCES for name in python_names(source.read_text("utf-8"))}
    assert len(told) > 10
    assert {name for name in told if not is_there(name)} == set()


NAMED = {
    "a module": ("moorage.framework.points", True),
    "what a module has": ("moorage.framework.points.Scope.NODE", True),
    "what the package gives": ("moorage.read", True),
    "no module": ("moorage.framework.nowhere", False),
    "nothing that a module has": ("moorage.framework.points.Nothing", False),
    "of another place": ("moorage.live.server.Live", False),
}


@pytest.mark.parametrize(("name", "there"), NAMED.values(), ids=NAMED)
def test_the_check_of_names_can_fail(name, there):
    assert is_there(name) is there


@functools.cache
def known_names():
    functions = {name for source in SOURCES for name in re.findall(r"def (test_\w+)", source.read_text("utf-8"))}
    return functions | {source.stem for source in SOURCES}


def test_tests_that_a_page_names_exist():
    named = {(page, name) for page in PAGES for name in re.findall(r"`(test_\w+)(?:\.py)?`", page.read_text("utf-8"))}
    assert len(named) > 20
    assert {(page, name) for page, name in named if name not in known_names()} == set()


def options_of(command):
    return {word for option in command.params for word in (*option.opts, *option.secondary_opts) if word.startswith("--")} - {
        "--help"
    }


def commands():
    """Return the options of every command, by the words that name it."""
    from moorage.interfaces.cli.config import config
    from moorage.interfaces.cli.live.release_flags import FLAGS, GONE
    from moorage.interfaces.cli.live.up import up
    from moorage.interfaces.cli.questions.simulate import simulate

    of_config = {f"config {name}": options_of(command) for name, command in config.commands.items()}
    of_run = {f"--{name}" for name in (*(flag.name for flag in FLAGS), *GONE)} | {"--help"}
    return {"simulate": options_of(simulate), "up": options_of(up), "run": of_run, **of_config}


def test_commands_that_a_page_shows_have_their_options():
    known = commands()
    for page in PAGES:
        for command, rest in re.findall(r"\bmoorage (simulate|up|run|config \w+)\b([^`\n|>]*)", page.read_text("utf-8")):
            assert command in known, page
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) <= known[command], f"{page}: moorage {command}{rest}"


def test_reference_pages_have_the_options_of_their_commands():
    known = commands()
    pages = {
        "simulate.md": ["simulate"],
        "up.md": ["up"],
        "configuration.md": [name for name in known if name.startswith("config ")],
    }
    for name, of_page in pages.items():
        has = set().union(*(known[command] for command in of_page))
        rows = [line.split("|")[1] for line in (REFERENCE / name).read_text("utf-8").splitlines() if line.startswith("| `-")]
        told = {word for row in rows for word in re.findall(r"--[a-z-]+", row)}
        assert told == has, name


def test_the_page_on_the_report_knows_every_kind_of_note():
    kinds = {kind for source in SOURCES for kind in re.findall(r'InputNote\(\s*"(\w+)"', source.read_text("utf-8"))}
    page = (REFERENCE / "simulation-report.md").read_text("utf-8")
    assert {"Unused", "Remark"} < kinds
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()


def test_every_example_is_on_their_page():
    page = (ROOT / "examples" / "README.md").read_text("utf-8")
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert {name for name in folders if f"]({name})" not in page} == set()


def points_told(text):
    return {word for word in re.findall(r"`(\w+)`", text) if word in POINTS}


def test_pages_of_plugins_have_their_extension_points():
    of_release = [builtin_registry(release) for release in ("1.21", TODAY)]
    points_of = {name: points for registry in of_release for name, points in registry.points().items()}
    rows = re.findall(
        r"^\| \[([^\]]+)\]\(([^)]+)\) \| .*? \| (.*?) \|", (REFERENCE / "plugins.md").read_text("utf-8"), re.MULTILINE
    )
    listed = {name: (page, points) for names, page, points in rows for name in names.split(", ")}
    assert listed.keys() == set(points_of)
    for name, (page, points) in listed.items():
        has = set(points_of[name])
        told = re.search(r"^\| Extension points \| (.*) \|$", (REFERENCE / page).read_text("utf-8"), re.MULTILINE)
        assert points_told(points) == has, name
        assert told is not None, name
        assert points_told(told[1]) == has, name


#: ``kubectl describe`` of several objects, as with a selector, leaves out events since 1.36 unless it is asked for them.
_SEVERAL = re.compile(r"kubectl describe [^\n`]*(?:-l |--selector|-A\b|--all-namespaces)[^\n`]*")


def test_pages_ask_for_events_where_kubectl_describes_several_objects():
    commands = [command for page in PAGES for command in _SEVERAL.findall(page.read_text("utf-8"))]
    assert commands
    assert [command for command in commands if "--show-events=true" not in command] == []


def shown_commands(text):
    """Return the words after ``moorage`` of the commands in blocks: fenced ones of text, and indented ones."""
    indented = re.findall(r"^(?: {4}|\t)(?:\$ )?(?:kubectl )?(moorage .+(?:\\\n.+)*)$", text, re.MULTILINE)
    fenced = [
        command
        for language in ("text", "console", "sh")
        for _, block in blocks(text, language)
        for command in re.findall(r"^(?:\$ )?(?:kubectl )?(moorage .+(?:\\\n.+)*)$", block, re.MULTILINE)
        if language == "sh" or f"$ {command}" in block or f"$ kubectl {command}" in block or block.startswith(command)
    ]
    for command in (*indented, *fenced):
        line = re.split(r" [|>&#]|;", command.replace("\\\n", " "))[0]
        yield line.split()[1:]


def unknown_words(words):
    """Return the options of a command line that its command does not have, or its name if there is no such command."""
    from moorage.interfaces.cli.live.release_flags import FLAGS, GONE
    from moorage.interfaces.cli.main import cli

    command, name = cli, "moorage"
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found = words[0], command.get_command(click.Context(command), words[0])
        if found is None:
            return set() if name.isupper() or name in {"…", "COMMAND"} else {name}
        command, words = found, words[1:]
    known = {word for option in command.params for word in (*option.opts, *option.secondary_opts)} | {
        "--help",
        "--version",
        "-h",
    }
    if name == "run":
        known |= {f"--{flag.name}" for flag in FLAGS} | {f"--{gone}" for gone in GONE}
    used = {word for one in words for word in re.findall(r"^[\[(]?(--[a-z][a-z-]*)", one)}
    return used - known


def test_commands_in_text_and_indented_blocks_are_there_with_their_options():
    shown = [(page, words) for page in PAGES for words in shown_commands(page.read_text("utf-8"))]
    assert len(shown) > 150
    assert [(page.name, " ".join(words), unknown) for page, words in shown if (unknown := unknown_words(words))] == []


def test_the_check_of_shown_commands_can_fail():
    text = "```text\n$ moorage drian a\n```\n\n    moorage drain a --fast\n"
    assert [unknown_words(words) for words in shown_commands(text)] == [{"--fast"}, {"drian"}]
