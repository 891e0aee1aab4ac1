"""Measure the house: count what a person must hold in the head before changing a line of ``src/moorage``.

    scripts/house               print each measure with its limit; exit with 1 if one that is held is broken
    scripts/house --list        also name the files, folders and modules that are over a limit

Lines are those of Python files; lines of code are neither blank, nor comments, nor docstrings. Entries at the top are folders
and modules. Plugins, entry points (``__init__``, ``__main__``, commands, import paths that pages give to users) and data (only
imports and assignments) may be short.
A module that only tests import is named by no other module, page or example; tools and benchmarks count as tests.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["Measure", "main", "measures"]

ROOT = Path(__file__).resolve().parent.parent
SHORT, LONG, FLAT = 60, 600, 24
CORE = ("framework", "state", "queue", "cycle", "engine")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DATA = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
DOTTED = re.compile(r"moorage(?:\.\w+)+")
BESIDE = re.compile(r"^(\w+(?:\.\w+)*):\w+$", re.MULTILINE)  # a name in a module, below the folder of the text
# In a table: a module, below a package that the table is in, or an object of it ("demo:demo").
QUOTED = re.compile(r'"(\w+(?:\.\w+)+(?=[":])|\w+(?=:\w))')
NAMING = {".py", ".md", ".toml", ".yaml", ".json", ".ts", ".tsx", ""}  # files that can name a module


@dataclass(frozen=True)
class Measure:
    name: str
    value: float
    limit: float
    #: The limit holds today, and must stay so.
    held: bool = False
    over: Sequence[str] = ()

    @property
    def state(self) -> str:
        if self.value <= self.limit:
            return "ok"
        return "BROKEN" if self.held else "not yet"


@dataclass(frozen=True)
class Module:
    path: Path
    #: From ``src`` on.
    place: Path
    text: str

    @property
    def name(self) -> str:
        parts = self.place.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    @cached_property
    def code_lines(self) -> int:
        found = {number for number, line in enumerate(self.text.splitlines(), 1) if not re.match(r"\s*(#|$)", line)}
        for node in self.nodes:
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
                found.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        return len(found)

    @cached_property
    def import_lines(self) -> int:
        imports = (node for node in self.nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)

    @property
    def may_be_short(self) -> bool:
        """Return whether it is a plugin, an entry point or data."""
        if {"plugins", "gpu_sharing"} & set(self.place.parts) or self.place.name in {"__init__.py", "__main__.py"}:
            return True
        if re.search(r"^@(\w+\.(command|group)|described)\(", self.text, re.MULTILINE):
            return True
        return all(isinstance(node, DATA) for node in ast.parse(self.text).body)

    def defines(self, name: str) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                yield f"{self.place}:{node.lineno}"

    @cached_property
    def named(self) -> set[str]:
        """The modules that it imports, or has in a string: commands and plugins are loaded by name."""
        nodes = (node.value for node in self.nodes if isinstance(node, ast.Constant))
        words = "\n".join(value for value in nodes if isinstance(value, str) and "\n" not in value)
        package = ".".join(self.place.parts[:-1])
        beside = {f"{package}.{name}" for name in BESIDE.findall(words)}
        return {*_imported(self.text), *DOTTED.findall(words), *beside}


def measures(root: Path = ROOT) -> Iterator[Measure]:
    """Yield what is counted, in the order of the limits."""
    product = root / "src/moorage"
    paths = sorted(product.rglob("*.py"))
    every = [Module(path, path.relative_to(root / "src"), path.read_text(encoding="utf-8")) for path in paths]
    yield Measure("lines of src/moorage", sum(one.lines for one in every), 165_000, held=True)
    top = sorted({one.place.parts[1] for one in every} - {"__init__.py", "__main__.py"})
    yield Measure("entries at the top", len(top), 14, over=top)
    yield _none("folders with more than 24 files flat", _flat_folders(every))
    yield Measure("files of src/moorage", len(every), 850)
    given = {".".join(name.split(".")[:end]) for name in _named_outside(root) for end in range(2, name.count(".") + 2)}
    short = (one for one in every if one.lines < SHORT and not one.may_be_short and one.name not in given)
    yield _none("files under 60 lines (no plugin, entry point or data)", map(_with_lines, short))
    yield _none("files over 600 lines", (_with_lines(one) for one in every if one.lines > LONG), held=True)
    share = 100 * sum(one.import_lines for one in every) / sum(one.code_lines for one in every)
    yield Measure("imports, % of the lines of code", round(share, 1), 10)
    rooms = {name: [one for one in every if _is_in(one, name)] for name in CORE}
    yield Measure("lines of cycle", sum(one.lines for one in rooms["cycle"]), 4_500)
    yield Measure("files of cycle", len(rooms["cycle"]), 24)
    yield Measure("lines of engine", sum(one.lines for one in rooms["engine"]), 3_300)
    yield Measure("lines of reuse.py", sum(one.lines for one in rooms["framework"] if one.place.name == "reuse.py"), 90)
    core = [one for room in rooms.values() for one in room]
    yield _none("definitions of decide beyond one", [found for one in core for found in one.defines("decide")][1:])
    yield _none("__init_subclass__ in the core", (found for one in core for found in one.defines("__init_subclass__")))
    yield _none("modules that only tests import", _unnamed(root, every), held=True)


def _none(name: str, over: Iterable[str], *, held: bool = False) -> Measure:
    found = list(over)
    return Measure(name, len(found), 0, held, found)


def _with_lines(one: Module) -> str:
    return f"{one.place} ({one.lines})"


def _is_in(one: Module, room: str) -> bool:
    """Return whether a module is in a room of the core, wherever the floors have it."""
    above = one.place.parts[1:-1]
    return above[:1] == (room,) or above[:2] == ("core", room)


def _flat_folders(every: Iterable[Module]) -> Iterator[str]:
    folders = [one.place.parent for one in every]
    for folder in sorted(set(folders)):
        if folders.count(folder) > FLAT:
            yield f"{folder} ({folders.count(folder)})"


def _unnamed(root: Path, every: Sequence[Module]) -> Iterator[str]:
    used = set(_named_outside(root))
    for table in _tables(root):
        text = table.read_text(encoding="utf-8")
        used.update(DOTTED.findall(text))
        for folder in table.relative_to(root / "src").parents:
            used.update(f"{'.'.join(folder.parts)}.{name}" for name in QUOTED.findall(text))
    for one in every:
        used |= one.named - {one.name}
    packages = {name.rsplit(".", cut)[0] for name in used for cut in range(1, name.count(".") + 1)}
    for one in every:
        if one.place.name != "__main__.py" and one.name not in used | packages:
            yield str(one.place)


def _tables(root: Path) -> Iterator[Path]:
    return (path for ending in ("toml", "json") for path in (root / "src/moorage").rglob(f"*.{ending}"))


def _named_outside(root: Path) -> Iterator[str]:
    """Yield the modules that pages, examples, the packaging and the product's tables name."""
    found = (path for place in ("docs", "examples", "deploy", "ui/src") for path in (root / place).rglob("*"))
    for path in (*found, *_tables(root), root / "pyproject.toml", root / "README.md"):
        if path.suffix in NAMING and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from DOTTED.findall(text)
            yield from _imported(text)


def _imported(text: str) -> Iterator[str]:
    """Yield the modules, and the names that may be modules, of a text's import statements."""
    for module, group, plain in re.findall(r"^\s*from (moorage[\w.]*) import (?:\(([^)]*)\)|(.*))$", text, re.MULTILINE):
        yield module
        yield from (f"{module}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", group or plain))
    yield from re.findall(r"^\s*import (moorage[\w.]*)", text, re.MULTILINE)


def main() -> int:
    """Print the measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name what is over a limit")
    given = parser.parse_args()
    broken = 0
    for one in measures():
        broken += one.state == "BROKEN"
        sys.stdout.write(f"{one.name:<54} {one.value:>9,g}   at most {one.limit:>7,g}   {one.state}\n")
        if one.state == "BROKEN" or (given.list and one.state != "ok"):
            sys.stdout.writelines(f"    {line}\n" for line in one.over)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
