"""Jobs that are sent to workers, and their results. Errors are returned as values, so that none is lost in pickling."""

from __future__ import annotations

import importlib
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.basis.ending import begin_worker, is_ending
from moorage.basis.packages import how_to_add
from moorage.errors import InputError, MoorageError
from moorage.laboratory.sweeps.grid import Label

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


# -- executors ---------------------------------------------------------------------------------------------------------
# Executors: processes of this machine, a Dask cluster, or the calling thread.
#
# Worker processes are started with ``spawn``: a fork copies locks that threads of this process hold, but not the threads.

_T = TypeVar("_T")


class CallingThread(Executor):
    """An executor that runs each call at once, where it is submitted."""

    _max_workers = 1

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def usable_cpus() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: How long the thread of a pool takes at most to drop cancelled calls.
_DROPPED_S: Final = 0.5


class WorkerPool(ProcessPoolExecutor):
    """Processes of this machine. They end with this process, whatever ends it, and at once if a block that uses them fails."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes, get_context("spawn"), begin_worker, (os.getpid(),))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and not is_ending():
            self.shutdown(wait=True)
            return
        workers = list((self._processes or {}).values())
        manager: Any = self._executor_manager_thread
        self.shutdown(wait=False, cancel_futures=True)
        if manager is not None:  # it must have dropped the calls that are cancelled before it hears that workers ended
            manager.join(_DROPPED_S)
        for one in workers:
            one.terminate()


def process_pool(processes: int | None = None) -> WorkerPool:
    """Return a pool of processes; by default one for each processor. Ctrl-C ends them through this process only."""
    return WorkerPool(processes or usable_cpus())


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to the scheduler of a Dask cluster (``tcp://host:8786``) and return an executor of its workers.

    Raises  InputError if Dask is not installed, or the scheduler does not answer
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError(f"--dask needs Dask distributed: {how_to_add('distributed')}") from None
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--dask {address}: no Dask scheduler answers: {error}") from None
    with client:
        yield client.get_executor(pure=False)
