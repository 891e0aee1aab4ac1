"""Read the cluster that a command is about, and connect the extenders that it asks."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

from moorage.cli.bounded_files import STDIN
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read
from moorage.simulator.simulate import Options

__all__ = ["asking", "read_cluster"]


def asking(options: Options) -> AbstractContextManager[Options]:
    """Return the options with a client that asks the configured extenders, for the length of a block."""
    from moorage.cli.extender_client import extenders_connected  # imports an HTTP client, which is rarely needed

    return extenders_connected(options)


def read_cluster(paths: tuple[str, ...], recursive: bool, custom: tuple[str, ...]) -> ClusterInput:
    """Read a cluster from files.

    Raises  InputError if there is no object in them
    """
    cluster = read(paths, recursive, stdin=sys.stdin.buffer, custom=custom)
    if not cluster.report.read and not cluster.report.unused:
        where = "standard input" if paths == (STDIN,) else ", ".join(paths)
        raise InputError(f"{where}: no Kubernetes object found; expected the output of kubectl get -o yaml, or manifests")
    return cluster
