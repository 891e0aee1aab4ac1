"""What every floor stands on: printable text, words, and files, also those with the data of a package."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def folder_of(package: str) -> Path:
    """Return the folder of a package, where its data files are."""
    return Path(import_module(package).__path__[0])


def text_of(package: str, name: str) -> str:
    """Return the text of a data file of a package."""
    return (folder_of(package) / name).read_text(encoding="utf-8")


def table_of(package: str, name: str) -> dict[str, Any]:
    """Return what a TOML file of a package holds."""
    import tomllib  # a tenth of the time to start; texts and folders do without

    return tomllib.loads(text_of(package, name))
