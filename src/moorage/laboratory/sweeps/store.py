"""Where runs are kept: one file a run in ``runs/``, written whole or not at all, and an index of all runs.

With the extra ``frames`` a run is a Parquet file and the index a DuckDB database; without it, both are JSON Lines. A store may
hold both kinds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from moorage.errors import InputError
from moorage.laboratory.sweeps.jobs import StoredRun
from moorage.laboratory.sweeps.json_lines import JsonLinesFormat
from moorage.laboratory.sweeps.run_heads import write_whole

_FOLDER: Final = "runs"


class RunFormat(Protocol):
    """A file format for runs. ``suffix`` is the file extension."""

    suffix: str

    def write(self, run: StoredRun, file: BinaryIO) -> None: ...
    def read(self, path: Path) -> StoredRun: ...
    def index(self, folder: Path, runs: Sequence[StoredRun]) -> None: ...


class RunStore:
    """The runs in a folder. New runs are written in ``formats[0]``; files of all formats are read."""

    def __init__(self, folder: Path, formats: Sequence[RunFormat]) -> None:
        self.folder = folder
        self._runs = folder / _FOLDER
        self._formats = formats
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
            self._names = {entry.name for entry in os.scandir(self._runs)}
        except OSError as error:
            raise InputError(f"{folder}: cannot be used as the store of a sweep: {error.strerror or error}") from None

    def read(self, key: str) -> StoredRun | None:
        """Return a run; None if it is missing or its file is damaged, so that it is run again."""
        for one in self._formats:
            name = f"{key}{one.suffix}"
            if name in self._names:
                with suppress(OSError, ValueError, KeyError, TypeError):
                    return one.read(self._runs / name)
        return None

    def write(self, run: StoredRun) -> None:
        """Keep a run. After this returns, the run survives the end of the process and of the machine.

        Raises  InputError if the file cannot be written
        """
        target = self._runs / f"{run.key}{self._formats[0].suffix}"
        write_whole(target, lambda file: self._formats[0].write(run, file))
        self._names.add(target.name)

    def index(self, runs: Sequence[StoredRun]) -> None:
        """Write the index of all runs of a sweep."""
        self._formats[0].index(self.folder, runs)


def open_store(folder: str | os.PathLike[str]) -> RunStore:
    """Return the store in a folder, which is created if need be."""
    formats: list[RunFormat] = [JsonLinesFormat()]
    try:
        from moorage.laboratory.sweeps.parquet import ParquetFormat

        formats.insert(0, ParquetFormat())
    except ImportError:
        pass
    return RunStore(Path(folder), formats)
