"""Executors: processes of this machine, a Dask cluster, or the calling thread.

Worker processes are started with ``spawn``: a fork copies locks that threads of this process hold, but not the threads.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from moorage.errors import InputError

__all__ = ["CallingThread", "dask_executor", "process_pool", "usable_cpus"]

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


def process_pool(processes: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of processes; by default one for each processor. Ctrl-C ends them through this process only."""
    ignored = signal.SIGINT, signal.SIG_IGN
    return ProcessPoolExecutor(processes or usable_cpus(), get_context("spawn"), signal.signal, ignored)


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Connect to the scheduler of a Dask cluster (``tcp://host:8786``) and return an executor of its workers.

    Raises  InputError if Dask is not installed, or the scheduler does not answer
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--dask needs Dask distributed: pip install 'moorage[dask]'") from None
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--dask {address}: no Dask scheduler answers: {error}") from None
    with client:
        yield client.get_executor(pure=False)
