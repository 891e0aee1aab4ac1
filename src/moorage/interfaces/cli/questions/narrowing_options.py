"""The options that select the pods that a report lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.errors import InputError
from moorage.report.obstacles import Narrowing
from moorage.report.outcome import Run

__all__ = ["narrowing_of", "narrowing_options", "refuse_unmatched", "selector_of"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
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
