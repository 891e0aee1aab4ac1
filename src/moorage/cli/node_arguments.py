"""The nodes that a command gets as arguments: by name, or by a label selector."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from moorage.laboratory.cluster import Cluster
from moorage.laboratory.what_if import selected_nodes

__all__ = ["named_nodes", "node_selector_option", "seldom"]

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
