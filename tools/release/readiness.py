"""What must hold before a release: one version everywhere, its notes, and an address that is the project's own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["faults", "repository", "version", "versions"]

#: Where the version stands besides ``src/moorage/__init__.py``, and how.
_COPIES = {
    "CITATION.cff": r'^version: "?([^"\s]+)"?$',
    "deploy/helm/moorage/Chart.yaml": r"^(?:version|appVersion): (\S+)$",
    "deploy/kustomize/overlays/own-plugin/kustomization.yaml": r"^\s*newTag: (\S+)$",
    "man/*.1": r'^\.TH "[^"]+" "1" "" "moorage (\S+)"',
}
_NUMBER = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


def version(root: Path) -> str:
    """Return the version of the project in a folder."""
    found = re.search(r'^__version__ = "(.+)"$', (root / "src/moorage/__init__.py").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit('src/moorage/__init__.py: no line __version__ = "…"')
    return found[1]


def versions(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each other file that says the version, and what it says."""
    for pattern, line in _COPIES.items():
        for path in sorted(root.glob(pattern)):
            for said in re.findall(line, path.read_text("utf-8"), re.MULTILINE):
                yield path.relative_to(root).as_posix(), said


def repository(root: Path) -> str:
    """Return the address of the project, from which all other addresses are made."""
    address: str = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["moorage"]["repository"]
    return address


def faults(root: Path) -> Iterator[str]:
    """Yield each reason for which this version cannot be released."""
    here = version(root)
    if not _NUMBER.fullmatch(here):
        yield f"src/moorage/__init__.py: {here} is no version of a release; use MAJOR.MINOR.PATCH"
    for path, said in versions(root):
        if said != here:
            yield f"{path}: the version is {said}, that of the package is {here}; write {here}"
    if not re.search(
        rf"^## \[{re.escape(here)}\] - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    ):
        yield f"CHANGELOG.md: no section '## [{here}] - YYYY-MM-DD'; give what is under Unreleased this head"
    address = repository(root)
    if re.match(r"https://[^/]*\.(invalid|example)(/|$)", address) or not address.startswith("https://"):
        yield f"pyproject.toml: tool.moorage.repository is the placeholder {address}; write the project's address"
