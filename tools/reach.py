"""Find the tests that a change can reach, nearest first: ``make quick`` runs them.

A change reaches the tests of its mirror folder, the tests that import a changed module, and those that import a module which
imports it, and so on: each step is one further away. Data files beside modules count as the modules that read tables of their
folder; a changed page reaches the tests of pages; a changed test reaches itself. ``--distance`` says how many steps to go.

    python -m tools.reach                  the tests for what differs from main, a path a line
    python -m tools.reach --base HEAD~3    for what differs from another commit
    python -m tools.reach FILE …           for these files
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

__all__ = ["Imports", "reached"]

ROOT = Path(__file__).resolve().parent.parent
#: Tests that read what a folder or file says.
OF_PAGES = ("tests/test_docs.py", "tests/test_words.py", "tests/test_project.py", "tests/test_limits_page.py")
READERS = {
    "docs": OF_PAGES, "README.md": OF_PAGES, "CHANGELOG.md": OF_PAGES, "CONTRIBUTING.md": OF_PAGES,
    "examples": ("tests/test_examples.py", "tests/test_docs.py"),
    "deploy": ("tests/deploy",), "Containerfile": ("tests/deploy",), "ui": ("tests/interfaces/web",),
    "Makefile": ("tests/test_project.py",), "pyproject.toml": ("tests/test_project.py", "tests/tools"),
}  # fmt: skip


class Imports:
    """Who imports what, by the text of a tree: modules of ``src``, ``tools``, ``benchmarks`` and ``tests``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths = [path for top in ("src", "tools", "benchmarks", "tests") for path in sorted((root / top).rglob("*.py"))]
        self.paths = {self.name(path): path for path in paths}

    def name(self, path: Path) -> str:
        """Return the dotted name of a file."""
        parts = path.relative_to(self.root).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def importers(self) -> Mapping[str, set[str]]:
        """A module → the modules that import it, a name of it, or a module below it by ``from``."""
        found: dict[str, set[str]] = {name: set() for name in self.paths}
        for name, path in self.paths.items():
            for target in _imported(path):
                if target in found and target != name:
                    found[target].add(name)
        return found

    def around(self, start: Iterable[str], distance: int) -> Iterator[tuple[int, str]]:
        """Yield modules that import one of ``start``, directly or through others, with the number of steps; nearest first."""
        seen, edge = set(start), set(start)
        for step in range(1, distance + 1):
            edge = {one for name in edge for one in self.importers.get(name, ())} - seen
            seen |= edge
            yield from ((step, name) for name in sorted(edge))


@cache
def _imports(root: Path) -> Imports:
    return Imports(root)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def reached(root: Path, changed: Sequence[str], distance: int = 2) -> list[str]:
    """Return the test files and folders that these files reach, nearest first, each once."""
    imports = _imports(root)
    found: dict[str, None] = {}
    modules: set[str] = set()
    for name in changed:
        path = root / name
        if name.startswith("tests/") and path.match("test_*.py"):
            found.setdefault(name)
        found.update(dict.fromkeys(READERS.get(name.split("/")[0], ())))
        if path.suffix == ".py":
            modules.add(imports.name(path))
        elif name.startswith("src/"):
            modules.update(one for one, where in imports.paths.items() if where.parent == path.parent)
        found.update(dict.fromkeys(_mirror(root, name)))
    for _, module in imports.around(modules, distance):
        where = imports.paths[module].relative_to(root).as_posix()
        if where.startswith("tests/") and imports.paths[module].name.startswith("test_"):
            found.setdefault(where)
    kept = [one for one in found if (root / one).exists()]
    return [one for one in kept if not any(one != other and one.startswith(f"{other}/") for other in kept)]


def _mirror(root: Path, name: str) -> Iterator[str]:
    """Yield the tests that are named after a module: ``tests/FLOOR/…/test_MODULE*.py``."""
    parts = Path(name).parts
    if parts[:2] == ("src", "moorage"):
        folder = root.joinpath("tests", *parts[2:-1])
        yield from (path.relative_to(root).as_posix() for path in sorted(folder.glob(f"test_{Path(name).stem}*.py")))
    elif parts[0] == "tools":
        yield "tests/tools"


def _changed(base: str) -> Sequence[str]:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603, S607

    start = git("merge-base", base, "HEAD").strip()
    return sorted({*git("diff", "--name-only", start).split(), *git("ls-files", "--others", "--exclude-standard").split()})


def main() -> int:
    """Print the tests that a change reaches; exit with 1 if there are none."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reach", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="the changed files; by default all that differ from BASE")
    parser.add_argument("--base", default="main", help="the commit to compare with [main]")
    parser.add_argument("--distance", type=int, default=2, help="how many imports away a test may be [2]")
    given = parser.parse_args()
    found = reached(ROOT, given.files or _changed(given.base), given.distance)
    sys.stdout.writelines(f"{one}\n" for one in found)
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())
