"""Measure the house: what a person must read, and load, before changing a line of ``src/moorage``.

    scripts/house               print each measure with its aim; exit with 1 if one that is held is broken
    scripts/house --list        also name what stands in the way of an aim

A floor's closure is what Python loads when every module of the floor is imported in a fresh process: its own modules and those
of the floors below, and nothing that drives or shows them. A parameter counts where the caller has to give it; ``self`` does
not. A banner is a comment such as ``# -- reading --``: it begins another subject, which a file of its own would name.
A module that only tests import is named by no other module, page or example; tools and benchmarks count as tests.
There is no limit on lines or files.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["Measure", "main", "measures"]

ROOT = Path(__file__).resolve().parent.parent
PARAMETERS = 5
#: What each floor must not load.
FOREIGN = {
    "rules": ("state", "framework", "plugins", "core", "simulator", "cluster", "live", "laboratory", "report", "interfaces"),
    "framework": ("plugins", "core", "simulator", "cluster", "live", "laboratory", "report", "interfaces"),
    "core": ("plugins", "simulator", "cluster", "live", "laboratory", "report", "interfaces"),
    "simulator": ("cluster", "live", "laboratory", "interfaces"),
    "cluster": ("simulator", "live", "laboratory", "report", "interfaces"),
    "live": ("cluster", "simulator", "laboratory", "interfaces"),
    "laboratory": ("cluster", "live", "interfaces"),
    "report": ("simulator", "cluster", "live", "laboratory", "interfaces"),
}
BANNER = re.compile(r"^# -- .+ -", re.MULTILINE)
LOADED = """
import importlib, pkgutil, sys
floor = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(getattr(floor, "__path__", ()), floor.__name__ + "."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError as failed:  # an optional library that is not installed
            if (failed.name or "").startswith("moorage"):
                raise
print("\\n".join(sorted(name for name in sys.modules if name.startswith("moorage."))))
"""
DOTTED = re.compile(r"moorage(?:\.\w+)+")
BESIDE = re.compile(r"^(\w+(?:\.\w+)*):\w+$", re.MULTILINE)  # a name in a module, below the folder of the text
# In a table: a module, below a package that the table is in, or an object of it ("demo:demo").
QUOTED = re.compile(r'"(\w+(?:\.\w+)+(?=[":])|\w+(?=:\w))')
NAMING = {".py", ".md", ".toml", ".yaml", ".json", ".ts", ".tsx", ""}  # files that can name a module


#: A private name in a string: an attribute that is looked up, dropped or replaced by its name.
PRIVATE = re.compile(r"_[a-z][a-z0-9_]*[a-z0-9]")
#: Names that other libraries define, and endings of names.
NOT_OURS = frozenset({"_config", "_fields", "_max_workers"})


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
    def nodes(self) -> Sequence[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    def crowded(self) -> Iterator[str]:
        """Yield the functions that take more parameters than a reader keeps in mind."""
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(one.arg not in {"self", "cls"} for one in given)
                if count > PARAMETERS:
                    yield f"{self.place}:{node.lineno} {node.name} ({count})"

    @cached_property
    def named(self) -> set[str]:
        """The modules that it imports, or has in a string: commands and plugins are loaded by name."""
        nodes = (node.value for node in self.nodes if isinstance(node, ast.Constant))
        words = "\n".join(value for value in nodes if isinstance(value, str) and "\n" not in value)
        package = ".".join(self.place.parts[:-1])
        beside = {f"{package}.{name}" for name in BESIDE.findall(words)}
        return {*_imported(self.text), *DOTTED.findall(words), *beside}

    @cached_property
    def defined(self) -> set[str]:
        """The names of its functions, classes, parameters, variables and attributes."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
        return found

    @cached_property
    def imported(self) -> set[str]:
        """The modules that it imports, and the names that may be modules."""
        imports = [node for node in self.nodes if isinstance(node, ast.ImportFrom) and node.module]
        return {str(one.module) for one in imports} | {f"{one.module}.{name.name}" for one in imports for name in one.names}

    def private_names(self) -> Iterator[tuple[int, str]]:
        """Yield the strings that are a private name of Python, with their lines; parts of longer strings are none."""
        parts = {id(part) for node in self.nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in self.nodes:
            if not isinstance(node, ast.Constant) or id(node) in parts:
                continue
            if isinstance(node.value, str) and PRIVATE.fullmatch(node.value) and node.value not in NOT_OURS:
                yield node.lineno, node.value


def modules(root: Path = ROOT) -> Sequence[Module]:
    """Return the modules of the product."""
    paths = sorted((root / "src/moorage").rglob("*.py"))
    return [Module(path, path.relative_to(root / "src"), path.read_text(encoding="utf-8")) for path in paths]


def measures(root: Path = ROOT) -> Iterator[Measure]:
    """Yield what is counted, in the order of the house's plan."""
    every = modules(root)
    floors = {one.place.parts[1].removesuffix(".py") for one in every}
    for floor, foreign in FOREIGN.items():
        if floor in floors:
            names = loaded(root, floor)
            yield _none(f"foreign modules that {floor} loads", [one for one in names if one.split(".")[1] in foreign])
    core = (one for one in every if one.place.parts[1] == "core")
    yield _none(f"functions of core with over {PARAMETERS} parameters", [found for one in core for found in one.crowded()])
    banners = [f"{one.place} ({len(found)})" for one in every if (found := BANNER.findall(one.text))]
    yield _none("files with banners", banners)
    pages = root / "docs/contribute"
    folders = sorted({one.place.parts[1] for one in every if len(one.place.parts) > 2})
    yield _none("floors without a page in docs/contribute", [one for one in folders if not (pages / f"{one}.md").exists()])
    yield _none("modules that only tests import", _unnamed(root, every), held=True)
    yield _none("names in strings that nothing defines", undefined(every), held=True)


def undefined(every: Sequence[Module]) -> Iterator[str]:
    """Yield the private names in strings that neither the module nor one that it imports defines: such a name is gone."""
    by_name = {one.name: one for one in every}
    for one in every:
        near = [one, *(by_name[name] for name in one.imported if name in by_name)]
        for line, name in one.private_names():
            if not any(name in other.defined for other in near):
                yield f"{one.place}:{line} {name}"


def loaded(root: Path, floor: str) -> Sequence[str]:
    """Return the modules of the project that importing all of a floor loads, in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    asked = [sys.executable, "-c", LOADED, f"moorage.{floor}"]
    return subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603


def _none(name: str, over: Iterable[str], *, held: bool = False) -> Measure:
    found = list(over)
    return Measure(name, len(found), 0, held, found)


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
    """Print the measures; exit with 1 if one that is held is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name what is over a limit")
    given = parser.parse_args()
    broken = 0
    for one in measures():
        broken += one.state == "BROKEN"
        sys.stdout.write(f"{one.name:<48} {one.value:>6,g}   aim {one.limit:>2,g}   {one.state}\n")
        if one.state == "BROKEN" or (given.list and one.state != "ok"):
            sys.stdout.writelines(f"    {line}\n" for line in one.over)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
