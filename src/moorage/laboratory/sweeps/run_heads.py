"""The head of a stored run, which is everything but its columns, as plain data for JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from moorage.errors import InputError
from moorage.laboratory.sweeps.grid import version
from moorage.laboratory.sweeps.jobs import StoredRun

__all__ = ["JsonLinesFormat", "head_of", "run_of_head", "write_whole"]


_SPECIAL: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def head_of(run: StoredRun) -> dict[str, Any]:
    """Return everything of a run except its columns, as plain data."""
    return {
        "key": run.key,
        "point": dict(run.labels),
        "metrics": {name: json_value(value) for name, value in run.metrics.items()},
        "columns": list(run.series),
        "seconds": round(run.seconds, 6),
        "version": version(),
    }


def run_of_head(head: Mapping[str, Any], series: Mapping[str, Any]) -> StoredRun:
    """Return the run of a head that ``head_of`` returned, and of its columns."""
    metrics = {name: float(number_of(value)) for name, value in head["metrics"].items()}
    return StoredRun(head["key"], head["point"], metrics, series, head["seconds"])


def json_value(value: Any) -> Any:
    """Return a number as JSON can hold it: infinities and NaN as texts."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number_of(value: Any) -> Any:
    """Return the number that ``json_value`` encoded."""
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


# -- whole files -------------------------------------------------------------------------------------------------------
# Write files atomically.


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


# -- json lines --------------------------------------------------------------------------------------------------------
# Runs as JSON Lines: the first line is the run, each further line a row of its columns.


class JsonLinesFormat:
    """One JSON Lines file per run; needs no extra."""

    suffix = ".jsonl"

    def write(self, run: StoredRun, file: BinaryIO) -> None:
        file.writelines(map(_line, (head_of(run), *_rows(run))))

    def read(self, path: Path) -> StoredRun:
        first, *lines = path.read_bytes().splitlines()
        head = json.loads(first)
        rows = [json.loads(line) for line in lines]
        series = {name: np.array([number_of(row[name]) for row in rows]) for name in head["columns"]}
        return run_of_head(head, series)

    def index(self, folder: Path, runs: Sequence[StoredRun]) -> None:
        write_whole(folder / "index.jsonl", lambda file: file.writelines(_line(head_of(run)) for run in runs))


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    columns = [column.tolist() for column in run.series.values()]
    for row in zip(*columns, strict=True):
        yield {name: json_value(value) for name, value in zip(run.series, row, strict=True)}
