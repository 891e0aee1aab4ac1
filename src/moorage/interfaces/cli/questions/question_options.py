"""The options that all question commands share: input, scheduler, changes to make first, output."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import reading_options
from moorage.interfaces.cli.release_options import emulated_cluster_options, max_disks_option, no_quota_option
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.edit.what_if import selected_nodes
from moorage.report.obstacles import Narrowing
from moorage.report.outcome import Run

if TYPE_CHECKING:
    from concurrent.futures import Executor


_Command = TypeVar("_Command", bound=Callable[..., Any])


def question_options(
    *, outputs: Sequence[str] = ("text", "wide", "json", "yaml", "html"), searches: bool = True
) -> Callable[[_Command], _Command]:
    """Add the options that all questions have to a command; ``outputs`` are the choices of ``-o``.

    ``searches``: the command goes on after the plain answer, so that its time has a limit
    """
    options = (
        files_options,
        *_SCHEDULER,
        click.option(
            "-o", "--output", type=click.Choice(outputs), default=outputs[0], show_default=True, help="How to print the answer."
        ),
        click.option("--ascii", "ascii_only", is_flag=True, help="Print symbols in ASCII."),
        *((time_limit_option,) if searches else ()),
        progress_option,
        click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
    )

    def add(command: _Command) -> _Command:
        command = reading_options(what_if_options(command))
        for option in reversed(options):
            command = option(command)
        return command

    return add


time_limit_option = click.option(
    "--time-limit", type=click.FloatRange(0, 86_400), metavar="SECONDS",
    help="Print what was found after this time; 0 means no limit. By default 10, and more for more than 10,000 nodes and pods.",
)  # fmt: skip
progress_option = click.option("--progress", "shows_progress", is_flag=True, help="Show the progress in a pipe or file, too.")
_LIVE = (
    click.option("--live", is_flag=True, help="Read the cluster of the kubeconfig now, with read-only requests."),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig for --live."),
    click.option("--kubeconfig", metavar="FILE", help="The kubeconfig for --live; by default the one that kubectl uses."),
)  # fmt: skip
_SCHEDULER = (
    click.option(
        "--config", metavar="FILE", help="A KubeSchedulerConfiguration or a Policy; without it, kube-scheduler's defaults."
    ),
    emulated_cluster_options,
    click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, in kube-scheduler's format."),
    max_disks_option,
    no_quota_option,
    click.option(
        "--plugins", multiple=True, metavar="MODULE:CLASS",
        help="A custom plugin, in the current directory or on the Python path, or FILE.py:CLASS. May be repeated.",
    ),
    click.option(
        "--extenders", type=click.Choice(["ask", "skip"]), help="Call the extenders of the configuration, or skip them."
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="Seed for breaking ties between equally scored nodes."
    ),
)  # fmt: skip
_CHANGES = tuple(
    click.option(name, into, multiple=True, metavar=metavar, help=f"{text} May be repeated.")
    for name, into, metavar, text in (
        (
            "--edit",
            "edits",
            "'KIND/NAME FIELD=VALUE'",
            "Change an object first: 'deployment/web cpu=500m', 'node/n1 unschedulable=false'.",
        ),
        ("--cordon", "cordoned", "SELECTOR", "Cordon nodes first: a name, or a label selector as for kubectl."),
        ("--remove-nodes", "removed", "SELECTOR", "Remove nodes first; controllers replace the pods there."),
        ("--add-nodes", "added", "like=NODE,count=N", "Add empty nodes like an existing one first."),
        ("--scale", "scaled", "KIND/NAME=N", "Scale a workload first; pods are created or deleted as its controller would do."),
        ("--replace", "replacements", "FILE", "Replace objects first by those with the same names in this file."),
    )
)


def files_options(command: _Command) -> _Command:
    """Add the options that name the input."""
    text = "A file, a directory, or - for standard input. May be repeated."
    command = click.option("-R", "--recursive", is_flag=True, help="Read directories recursively.")(command)
    return click.option("-f", "--filename", "paths", multiple=True, metavar="PATH", help=text)(command)


def what_if_options(command: _Command) -> _Command:
    """Add the options for reading a live cluster, and for changing the input before the question is answered."""
    for option in reversed((*_LIVE, *_CHANGES)):
        command = option(command)
    return command


# -- node arguments ----------------------------------------------------------------------------------------------------
# The nodes that a command gets as arguments: by name, or by a label selector.

#: Seconds between two messages.
_EVERY_S: Final = 0.2

node_selector_option = click.option(
    "-l", "--selector", "node_selector", default="", metavar="SELECTOR", help="The nodes that this label selector matches."
)


def named_nodes(cluster: Cluster, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the nodes that a command is about, in the order given.

    Raises  InputError for a selector that matches no node; UsageError for neither names nor a selector, or for both
    """
    names, selector = given["nodes"], given["node_selector"]
    if names and selector:
        raise click.UsageError("cannot specify both a node name and a --selector option")
    if not names and not selector:
        raise click.UsageError("name a node, or select nodes with -l")
    return names or tuple(node.name for node in selected_nodes(cluster.snapshot.table.nodes, selector, "--selector"))


def seldom(say: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that calls ``say`` with the numbers that it gets, but at most a few times a second."""
    due = time.monotonic() + _EVERY_S

    def passes(number: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY_S
            say(number)

    return passes


# -- worker options ----------------------------------------------------------------------------------------------------
# The options for where a command simulates: in local processes, or on the workers of a Dask cluster.


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
    from moorage.laboratory.sweeps.jobs import dask_executor, process_pool  # loads multiprocessing

    if given["dask"]:
        return block.enter_context(dask_executor(given["dask"]))
    return block.enter_context(process_pool(given["processes"]))


# -- narrowing options -------------------------------------------------------------------------------------------------
# The options that select the pods that a report lists.

_OUTPUTS = ("table", "wide", "json", "yaml")
_OPTIONS = (
    click.option("-n", "--namespace", default="", metavar="NAMESPACE", help="List only the pods of this namespace."),
    click.option(
        "-l", "--selector", default="", metavar="SELECTOR", help="List only the pods that this label selector matches."
    ),
    click.option(
        "--pod", "pods_listed", multiple=True, metavar="[NAMESPACE/]POD",
        help="List only this pod; web-* lists all pods whose names start with web-. May be repeated.",
    ),
)  # fmt: skip


def narrowing_options(command: _Command) -> _Command:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def narrowing_of(given: Mapping[str, Any]) -> Narrowing:
    """Return which pods to list, from a command's parameters.

    Raises  UsageError for a selector that cannot be parsed, and for an output that lists every pod
    """
    narrowing = Narrowing(given["namespace"], selector_of(given["selector"]), given["pods_listed"])
    if narrowing and given["output"] not in _OUTPUTS:
        raise click.UsageError(f"-n, -l and --pod need -o {', '.join(_OUTPUTS[:-1])} or {_OUTPUTS[-1]}")
    return narrowing


def selector_of(text: str) -> Selector:
    """Return the label selector of ``-l``.

    Raises  UsageError
    """
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise click.UsageError(f"--selector: {error}") from None


def refuse_unmatched(narrowing: Narrowing, run: Run) -> None:
    """Refuse ``--pod`` with a name that matches no pod of the run.

    Raises  InputError
    """
    if unmatched := narrowing.unmatched(run.pods):
        raise InputError(f"--pod {unmatched[0]}: the run has no such pod")
