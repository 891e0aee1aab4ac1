"""Jobs that are sent to workers, and their results. Errors are returned as values, so that none is lost in pickling."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.errors import MoorageError
from moorage.laboratory.sweeps.grid import Label

__all__ = ["FailedRun", "StoredRun", "SweepJob", "perform"]

Series = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A run to execute: a function and its arguments."""

    key: str
    labels: Mapping[str, Label]
    function: Callable[..., Mapping[str, Any]]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run: its numbers, and columns of equal length such as a curve."""

    key: str
    labels: Mapping[str, Label]
    metrics: Mapping[str, float]
    series: Mapping[str, Series] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that raised an error. ``again``: another attempt may succeed, because the input is not at fault."""

    key: str
    labels: Mapping[str, Label]
    message: str
    again: bool = False
    details: str = ""


def perform(job: SweepJob) -> StoredRun | FailedRun:
    """Execute a run in a worker, and return its result or its failure."""
    begun = time.perf_counter()
    try:
        metrics, series = _split(job.function(**job.arguments))
    except MoorageError as error:
        return FailedRun(job.key, job.labels, str(error))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return FailedRun(job.key, job.labels, message, again=True, details=traceback.format_exc())
    return StoredRun(job.key, job.labels, metrics, series, time.perf_counter() - begun)


def _split(found: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Series]]:
    """Split a run's values into numbers and columns.

    Raises  MoorageError for columns of unequal length and for values that are neither
    """
    metrics: dict[str, float] = {}
    series: dict[str, Series] = {}
    for name, value in found.items():
        if isinstance(value, (int, float, np.number, np.bool_)):
            metrics[name] = float(value)
        elif isinstance(value, (list, tuple, np.ndarray)):
            series[name] = np.asarray(value)
        else:
            raise MoorageError(f"{name}: expected a number or a column of values, found {type(value).__name__}")
    lengths = {name: len(column) for name, column in series.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise MoorageError(f"the columns of a run have different lengths: {listed}")
    return metrics, series
