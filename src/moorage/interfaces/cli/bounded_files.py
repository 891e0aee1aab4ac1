"""Files of commands: those that users name, up to a size limit, and the examples and pages that travel with the package."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import BinaryIO

from moorage.basis import files
from moorage.errors import InputError

__all__ = ["CONFIG_LIMIT", "STDIN", "bundled_folder", "read_file"]


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
