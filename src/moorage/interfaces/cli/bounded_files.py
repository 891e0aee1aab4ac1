"""Files of commands: those that users name, up to a size limit, the project's file, and what travels with the package."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from moorage.api.reading.manifests import read_first_yaml
from moorage.basis import files
from moorage.basis.inputs.files import PROJECT_FILE
from moorage.errors import InputError

__all__ = ["CONFIG_LIMIT", "STDIN", "bundled_folder", "project_setting", "read_file"]


STDIN = "-"
#: The largest configuration file that is read, in bytes. A typical one has a few kilobytes.
CONFIG_LIMIT = 4 * 2**20


def read_file(path: str, limit: int, stdin: BinaryIO | None = None) -> bytes:
    """Return the whole content of a regular file, or of standard input for ``-``.

    Raises  InputError if the file is unreadable, not a regular file, larger than ``limit`` bytes or changes while it is read
    """
    if path != STDIN:
        return files.read_file(path, limit, pipe_hint="; use - to read standard input")
    data = (stdin or sys.stdin.buffer).read(limit + 1)
    if len(data) > limit:
        raise InputError(f"standard input: larger than the limit of {limit} bytes")
    return data


# -- the project's file ------------------------------------------------------------------------------------------------

_SETTINGS = ("costs", "types")


def project_setting(name: str) -> tuple[Any, str]:
    """Return a setting of the file ``.moorage.yaml`` in this folder or the nearest one above it, and where it is from.

    Folders above a repository are not searched. A text is a path relative to the file. None if there is no such setting.

    Raises  InputError
    """
    here = Path.cwd()
    above = [here, *here.parents]
    repository = next((at for at, folder in enumerate(above) if (folder / ".git").exists()), len(above))
    path = next((file for folder in above[: repository + 1] if (file := folder / PROJECT_FILE).is_file()), None)
    if path is None:
        return None, ""
    given = read_first_yaml(read_file(str(path), CONFIG_LIMIT), str(path))
    unknown = [str(key) for key in given if key not in _SETTINGS] if isinstance(given, dict) else ["no mapping"]
    if unknown:
        raise InputError(f"{path}: {unknown[0]}: no such setting; use {' and '.join(_SETTINGS)}")
    found = given.get(name)
    return (str(path.parent / found) if isinstance(found, str) else found), f"{path}: {name}"


# -- bundled files -----------------------------------------------------------------------------------------------------
# Folders that travel with the package: the examples and the pages of the documentation.


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
