"""The temporary folders of questions, and those that a killed process left behind.

The folder of a process that lives has a locked file. A folder whose lock is free belonged to a process that was killed, so that
the next one that makes a folder removes it. The lock works across containers that share a directory, unlike process ids.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

#: None on Windows, where folders stay.
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None

_PREFIX: Final = "moorage-questions-"
_LOCK: Final = ".lock"
#: A folder without a lock may be one that another process is just making.
_UNLOCKED_S: Final = 3600.0


@contextmanager
def question_folder() -> Iterator[Path]:
    """Make a folder for questions, and remove it at the end; first remove those of killed processes."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _LOCK).open("wb") as lock:
            _lock(lock)
            yield folder


def sweep() -> list[Path]:
    """Remove the folders of this user's killed processes, and return them."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if _is_own(folder) and _is_left(folder):
                shutil.rmtree(folder)
                removed.append(folder)
    return removed


def _is_own(folder: Path) -> bool:
    found = folder.lstat()
    return fcntl is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is_left(folder: Path) -> bool:
    path = folder / _LOCK
    if not path.exists():
        return time.time() - folder.lstat().st_mtime > _UNLOCKED_S
    with path.open("rb") as lock:
        return _lock(lock)


def _lock(file: IO[bytes]) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
