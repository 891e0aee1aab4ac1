"""The head of a stored run, which is everything but its columns, as plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from moorage.basis.files import replacing
from moorage.errors import InputError
from moorage.laboratory.sweeps.grid import version
from moorage.laboratory.sweeps.jobs import StoredRun

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


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a temporary file, and rename it when it is complete and on disk.

    Raises  InputError if it cannot be written
    """
    try:
        with replacing(path, 0o666) as file:
            write(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
