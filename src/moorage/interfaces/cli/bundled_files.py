"""Folders that travel with the package: the examples and the pages of the documentation."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from moorage.errors import InputError

__all__ = ["bundled_folder"]


def bundled_folder(name: str, mark: str, what: str) -> Path:
    """Return a folder: in the installed package, or in the project that an editable install points to.

    ``mark`` is a file or folder in it by which it is recognized; ``what`` describes its content in an error.

    Raises  InputError if there is neither
    """
    package = Path(str(resources.files("moorage")))
    for folder in (package / name, package.parents[1] / name):
        if (folder / mark).exists():
            return folder
    raise InputError(f"the {what} are not installed: install moorage from its wheel, or run this in the project's folder")
