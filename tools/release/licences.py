"""The licences of the packages that run with Moorage, from the packages themselves: the file ``THIRD_PARTY_LICENSES``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

FILE: Final = "THIRD_PARTY_LICENSES"
#: Packages that build the wheel and are locked beside those that run.
BUILDS: Final = frozenset({"hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"})
_LOCKED: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+)", re.MULTILINE)
_TEXT: Final = re.compile(r"\.dist-info/(licenses/)?(.*/)?(licen[cs]e|copying|notice)[^/]*$", re.IGNORECASE)
_HEAD: Final = """Licences of the packages that Moorage runs with. They are installed beside it; an image contains both.
`python -m tools.release --licences` writes this file. The licences of the web page's libraries are in its bundle.
"""


def locked(root: Path) -> dict[str, set[str]]:
    """Return the versions of each package that runs, as ``requirements/run.txt`` locks them: some depend on Python."""
    found: dict[str, set[str]] = {}
    for name, version in _LOCKED.findall((root / "requirements/run.txt").read_text("utf-8")):
        if name not in BUILDS:
            found.setdefault(name, set()).add(version)
    return found


def licences(root: Path) -> str:
    """Return the text of the file, from the installed packages.

    Packages with the same text share one.

    Raises  PackageNotFoundError if one is not installed; ValueError if one contains no licence
    """
    heads: dict[str, list[str]] = {}
    for name in sorted(locked(root)):
        found = list(_texts(name))
        if not found:
            raise ValueError(f"{name} contains no licence")
        for text in found:
            heads.setdefault(text, []).append(f"{name} {distribution(name).version}")
    parts = [f"{'=' * 80}\n{', '.join(dict.fromkeys(names))}\n{'=' * 80}\n\n{text}\n" for text, names in heads.items()]
    return "\n".join([_HEAD, *parts])


def _texts(name: str) -> Iterator[str]:
    package = distribution(name)
    for file in sorted(package.files or [], key=str):
        if _TEXT.search(str(file)):
            lines = Path(str(package.locate_file(file))).read_text("utf-8", "replace").splitlines()
            yield "\n".join(line.rstrip() for line in lines).strip("\n")
