"""Read options that several questions share: nodes by name or selector, where to simulate, and which pods to list."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.basis.printable import close_to
from moorage.errors import InputError
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.edit.edits import whole_name
from moorage.laboratory.edit.what_if import selected_nodes
from moorage.report.narrowing import Narrowing
from moorage.report.outcome import Run

if TYPE_CHECKING:
    from concurrent.futures import Executor


#: Seconds between two messages.
_EVERY_S: Final = 0.2


def named_nodes(cluster: Cluster, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the nodes that a command is about, in the order given.

    Raises  InputError for a selector that matches no node
    """
    table = cluster.snapshot.table
    if given["nodes"]:
        return tuple(whole_name(name, table.row_of) for name in given["nodes"])
    return tuple(node.name for node in selected_nodes(table.nodes, given["node_selector"], "--selector"))


def seldom(say: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that calls ``say`` with the numbers that it gets, but at most a few times a second."""
    due = time.monotonic() + _EVERY_S

    def passes(number: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY_S
            say(number)

    return passes


def executor_of(given: Mapping[str, Any], block: ExitStack) -> Executor | None:
    """Return the executor for simulations, open until the block ends; None to simulate in this process.

    Raises  InputError if Dask is not installed or does not answer
    """
    if not given["dask"] and given["processes"] == 1:
        return None
    if given.get("extenders") == "ask":
        raise click.UsageError("extenders are asked from one process: give --processes or --dask, or --extenders=ask, not both")
    from moorage.laboratory.sweeps.jobs import dask_executor, process_pool  # loads multiprocessing

    if given["dask"]:
        return block.enter_context(dask_executor(given["dask"]))
    return block.enter_context(process_pool(given["processes"]))


# -- narrowing options -------------------------------------------------------------------------------------------------


def narrowing_of(given: Mapping[str, Any]) -> Narrowing:
    """Return which pods to list, from a command's parameters.

    Raises  UsageError for a selector that cannot be parsed
    """
    return Narrowing(given["namespace"], selector_of(given["selector"]), given["pods_listed"])


def selector_of(text: str, fault: str = "--selector") -> Selector:
    """Return the label selector of ``-l`` or of another option, whose errors begin with ``fault``.
    Raises  UsageError
    """
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise click.UsageError(f"{fault}: {error}") from None


def refuse_unmatched(narrowing: Narrowing, run: Run) -> None:
    """Refuse ``--pod`` with a name that matches no pod of the run.

    Raises  InputError
    """
    if unmatched := narrowing.unmatched(run.pods):
        names = [name for one in run.pods for name in (one.name, f"{one.namespace}/{one.name}")]
        raise InputError(f"--pod {unmatched[0]}: the run has no such pod{close_to(unmatched[0], names)}")
