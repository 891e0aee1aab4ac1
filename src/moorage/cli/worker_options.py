"""The options for where a command simulates: in local processes, or on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from typing import Any, TypeVar

import click

from moorage.sweeps.executors import dask_executor, process_pool

__all__ = ["dask_option", "executor_of"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def dask_option(command: _Command) -> _Command:
    """Add ``--dask``."""
    return click.option(
        "--dask", metavar="ADDRESS",
        help="Make the runs on the workers of a Dask cluster: tcp://HOST:PORT of its scheduler. Needs moorage[dask].",
    )(command)  # fmt: skip


def executor_of(given: Mapping[str, Any], block: ExitStack) -> Executor | None:
    """Return the executor for simulations, open until the block ends; None to simulate in this process.

    Raises  InputError if Dask is not installed or does not answer
    """
    if not given["dask"] and given["processes"] == 1:
        return None
    if given.get("extenders") == "ask":
        raise click.UsageError("extenders are asked from one process: give --processes or --dask, or --extenders=ask, not both")
    if given["dask"]:
        return block.enter_context(dask_executor(given["dask"]))
    return block.enter_context(process_pool(given["processes"]))
