"""What the project promises about itself: its layout, its packaging and its pages, checked against the files."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import moorage

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TOOLS = sorted((ROOT / "tools").rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = [ROOT / "requirements" / name for name in ("run.txt", "test.txt")]


def relative(path):
    return path.relative_to(ROOT).as_posix()


@cache
def project_files():
    """Return every text file that git tracks or would track, with its text."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git work tree, so that the project's files are not known")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    texts = {}
    for name in sorted(filter(None, listing.stdout.decode().split("\0"))):
        path = ROOT / name
        try:
            texts[name] = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # binary, or deleted and not yet committed
    return texts


# -- sources ----------------------------------------------------------------------------------------------------------


def modules():
    return ["moorage", *(found.name for found in pkgutil.walk_packages(moorage.__path__, "moorage."))]


def wrong_with(name):
    """Yield what a module announces and does not have, or has and does not say."""
    module = importlib.import_module(name)
    announced = getattr(module, "__all__", [])
    if len(announced) != len(set(announced)):
        yield f"{name}: a name twice in __all__"
    yield from (f"{name}: no {each}" for each in announced if not hasattr(module, each))
    if not (module.__doc__ or "").strip():
        yield f"{name}: a module opens with the paragraph you would say at a whiteboard"


# One test for all modules costs a tenth of what one for each does.
@pytest.mark.slow
def test_what_a_module_announces_is_there():
    # Ruff (RUF022) holds the order of __all__; here it is held against the module.
    names = [name for name in modules() if not name.endswith("__main__")]
    assert len(names) > 700
    assert [line for name in names for line in wrong_with(name)] == []


def test_a_module_that_announces_what_it_has_not_is_found(tmp_path, monkeypatch):
    (tmp_path / "announcing.py").write_text('__all__ = ["gone", "gone"]\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert len(list(wrong_with("announcing"))) == 4


@cache
def imports(path):
    """Return the import statements of a module, wherever they are: in functions, and for types alone, too."""
    found, ahead = [], [ast.parse(path.read_text(encoding="utf-8"))]
    while ahead:
        here = ahead.pop()
        if isinstance(here, (ast.Import, ast.ImportFrom)):
            found.append(here)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(here, block, ())
            ahead += below if isinstance(below, list) else ()  # that of a lambda is an expression
    return found


def imported_modules(path, known):
    """Yield what a module imports."""
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)


def module_name(path):
    parts = path.relative_to(ROOT if path in TOOLS else ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_circles(imports):
    """Return the modules that reach themselves by imports; none if the modules can be put in an order."""
    left = {name: set(targets) & set(imports) - {name} for name, targets in imports.items()}
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    return sorted(left)


@pytest.mark.slow
def test_no_module_imports_itself_in_a_circle():
    """import-linter checks packages; this counts every module, and imports for type checkers too."""
    paths = {module_name(path): path for path in SOURCES + TOOLS}
    assert import_circles({name: set(imported_modules(path, paths)) for name, path in paths.items()}) == []


def test_the_product_imports_no_tool():
    assert TOOLS
    assert [relative(path) for path in SOURCES for name in imported_modules(path, {}) if name.split(".")[0] == "tools"] == []


def test_the_check_of_circles_can_fail():
    assert import_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    assert import_circles({"a": {"b", "c"}, "b": {"c"}, "c": {"numpy"}}) == []


# The engine and the layers below it receive time, randomness and the state of the world as arguments.
PURE = ("api", "core", "framework", "plugins", "report", "rules", "state")
WORLD = {
    "asyncio",
    "os",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
LOOKS = {"open", "print", "input"}
#: What ``uuid`` computes from its arguments alone.
COMPUTED = {"UUID", "uuid5"}
#: A store draws names, and asks the webhooks of definitions.
OPEN = ("gpu_sharing", "store")


def looks_at_the_world(path):
    text = path.read_text(encoding="utf-8")
    calls = ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in LOOKS) else ()
    for node in calls:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKS:
            yield f"{relative(path)}:{node.lineno} calls {node.func.id}()"
    for node in imports(path):
        from_where = [] if isinstance(node, ast.Import) or node.level else [node.module or ""]
        if from_where == ["uuid"] and {alias.name for alias in node.names} <= COMPUTED:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else from_where
        yield from (f"{relative(path)}:{node.lineno} imports {name}" for name in names if name.split(".")[0] in WORLD)


def test_the_engine_and_what_it_stands_on_never_look_at_the_world():
    pure = [
        path
        for path in SOURCES
        if path.relative_to(ROOT / "src" / "moorage").parts[0] in PURE and not set(path.parts) & set(OPEN)
    ]
    assert pure
    assert [finding for path in pure for finding in looks_at_the_world(path)] == []


def test_the_check_for_impurity_sees_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "sly.py"
    path.write_text("import time\nfrom os import path\nprint(time.time())\nimport numpy\n", encoding="utf-8")
    assert sorted(looks_at_the_world(path)) == ["sly.py:1 imports time", "sly.py:2 imports os", "sly.py:3 calls print()"]


def test_imports_point_down():
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-logo", "--no-cache"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


# -- packaging --------------------------------------------------------------------------------------------------------


def test_the_version_is_one_and_the_changelog_knows_it():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+|\.dev\d+)?", moorage.__version__)
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in {"Unreleased", moorage.__version__}


def test_types_ship():
    assert (ROOT / "src" / "moorage" / "py.typed").is_file()


def requirement_names(lines):
    return {re.split(r"[<>=~!; \[]", line, maxsplit=1)[0].lower(): line.strip() for line in lines if re.match(r"\w", line)}


def test_what_is_locked_is_what_is_declared():
    declared = requirement_names(PYPROJECT["project"]["dependencies"] + PYPROJECT["build-system"]["requires"])
    listed = requirement_names((ROOT / "requirements" / "run.in").read_text(encoding="utf-8").splitlines())
    assert listed == declared


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_pin_and_hash_everything_and_name_no_index(lock):
    text = lock.read_text(encoding="utf-8")
    entries = re.sub(r"\s*\\\n\s*", " ", text)
    pinned = [line for line in entries.splitlines() if re.match(r"\w", line)]
    assert len(pinned) > 5
    assert [line for line in pinned if "==" not in line or "--hash=sha256:" not in line] == []
    assert "://" not in text
    assert not re.search(r"^\s*-[^-]|^\s*--(?!hash=)", text, re.MULTILINE)


def test_the_two_locks_agree():
    run, test = (set(re.findall(r"^(\w\S*==[^\\\s;]*)", lock.read_text(encoding="utf-8"), re.MULTILINE)) for lock in LOCKS)
    assert run <= test


# -- pages ------------------------------------------------------------------------------------------------------------

# Written so that this file does not hold them: hosts that serve packages, and folders of one machine.
FORBIDDEN = [
    *(re.compile(re.escape(host)) for host in ("pypi" + ".org", "python" + "hosted.", "npm" + "js.", "deb.debian" + ".org")),
    re.compile(r"(?<![\w.})~-])/(?:" + "|".join(["wo" + "rk", "tm" + "p", "ro" + "ot"]) + r")(?![\w-])"),
]


def test_no_file_names_a_package_host_or_a_folder_of_one_machine():
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in project_files().items()
        if any(pattern.search(text) for pattern in FORBIDDEN)
        for number, line in enumerate(text.splitlines(), 1)
        if any(pattern.search(line) for pattern in FORBIDDEN)
    ]
    assert found == []


SEES = {
    "a folder of one machine": ("cd /ro" + "ot/x", True),
    "the end of a line": ("in /tm" + "p", True),
    "a path below another": ("$scratch/wo" + "rk", False),
    "a longer word": ("/wo" + "rkloads, /ro" + "otfs", False),
    "a relative path": ("src/wo" + "rk/x", False),
    "a host": ("https://pypi" + ".org/simple", True),
}


@pytest.mark.parametrize(("line", "seen"), SEES.values(), ids=SEES)
def test_the_check_for_forbidden_places_sees_them(line, seen):
    assert any(pattern.search(line) for pattern in FORBIDDEN) is seen


def pages():
    return {name: text for name, text in project_files().items() if name.endswith(".md")}


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(text):
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(name, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        path = ((ROOT / name).parent / place) if place else ROOT / name
        if not path.exists():
            yield f"{name}: {target} is not there"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{name}: {target} has no such heading"


def test_links_between_pages_lead_somewhere():
    assert "README.md" in pages()
    assert [broken for name, text in pages().items() for broken in broken_links(name, text)] == []


def test_the_check_for_links_sees_a_broken_one():
    assert list(broken_links("README.md", "[a](docs/no-such-page.md) [b](LICENSE) [c](#no-such-heading) `[d](e)`")) == [
        "README.md: docs/no-such-page.md is not there",
        "README.md: #no-such-heading has no such heading",
    ]


def reachable(start):
    """Return the pages that one gets to by links from a page; a link to a folder leads to every page in it."""
    seen, ahead = set(), [(ROOT / start).resolve()]
    while ahead:
        path = ahead.pop()
        if path.is_dir():
            ahead += path.glob("*.md")
        elif path.suffix == ".md" and path.is_file() and path not in seen:
            seen.add(path)
            targets = re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", without_code(path.read_text(encoding="utf-8")))
            ahead += [(path.parent / target).resolve() for target in targets]
    return {relative(path) for path in seen}


def test_every_page_of_the_documentation_can_be_reached_from_its_first():
    written = {name for name in pages() if name.startswith("docs/")}
    assert written - reachable("docs/index.md") == set()


def test_commands_on_the_pages_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    told = {
        (name, target)
        for name, text in pages().items()
        for target in re.findall(r"(?:^ {4}|^|`)make ([a-z][\w-]*)", text, re.MULTILINE)
    }
    assert ("README.md", "demo") in told
    assert ("README.md", "test") in told
    assert {(name, target) for name, target in told if target not in targets} == set()


# -- what is public -----------------------------------------------------------------------------------------------------

_IMPORTED = re.compile(r"^(?:from|import) (moorage(?:\.\w+)*)\b(?!\w)", re.MULTILINE)


def public_modules():
    table = (ROOT / "docs/project/policies.md").read_text("utf-8").partition("| module | for |")[2].partition("\n\n")[0]
    return re.findall(r"`(moorage[\w.]*)`", table)


def test_pages_and_examples_import_what_is_public_alone():
    public = public_modules()
    pages = {name: text for name, text in project_files().items() if re.match(r"README\.md|docs/|examples/|contrib/", name)}
    imported = {(name, module) for name, text in pages.items() for module in _IMPORTED.findall(text)}
    assert len(imported) > 100
    beyond = [
        one
        for one in imported
        if not any(one[1] == module or one[1].startswith(f"{module}.") for module in public if module != "moorage")
    ]
    assert sorted(one for one in beyond if one[1] != "moorage") == []
    assert [
        module for module in public if not any(one[1] == module or one[1].startswith(f"{module}.") for one in imported)
    ] == []
