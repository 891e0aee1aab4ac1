"""Write files as a whole, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

_BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # Windows would change line breaks


@contextmanager
def replacing(path: Path, mode: int = 0o600, *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of another one when the block ends: readers see the old content or the new.

    It is written beside its destination, and deleted after an error. ``lasting``: it is on the disk before it is renamed.

    Raises  OSError
    """
    fresh = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode), "wb") as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
