"""Nodes as commands take them: by name, or by a label selector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from moorage.laboratory.cluster import Cluster
from moorage.laboratory.what_if import selected_nodes

__all__ = ["named_nodes", "node_selector_option"]

node_selector_option = click.option(
    "-l", "--selector", "node_selector", default="", metavar="SELECTOR", help="The nodes that this label selector matches."
)


def named_nodes(cluster: Cluster, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the nodes that a command is about, in the order given.

    Raises  InputError for a selector that matches no node; UsageError for no node, or for names and a selector
    """
    names, selector = given["nodes"], given["node_selector"]
    if names and selector:
        raise click.UsageError("cannot specify both a node name and a --selector option")
    if not names and not selector:
        raise click.UsageError("name a node, or select nodes with -l")
    return names or tuple(node.name for node in selected_nodes(cluster.snapshot.table.nodes, selector, "--selector"))
