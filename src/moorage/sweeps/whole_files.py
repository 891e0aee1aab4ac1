"""Write files atomically."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from moorage.errors import InputError

__all__ = ["write_whole"]


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a temporary file, and rename it when it is complete and on disk.

    Raises  InputError if it cannot be written
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
