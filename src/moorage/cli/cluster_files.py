"""Read the cluster and the options that a command is about, and connect the extenders that it asks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from moorage.cli.bounded_files import CONFIG_LIMIT, STDIN, read_file
from moorage.errors import InputError
from moorage.framework.registry import load
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read
from moorage.simulator.simulate import Options

__all__ = ["asking", "read_cluster", "simulation_options"]


def asking(options: Options) -> AbstractContextManager[Options]:
    """Return the options with a client that asks the configured extenders, for the length of a block."""
    from moorage.cli.extender_client import extenders_connected  # imports an HTTP client, which is rarely needed

    return extenders_connected(options)


def simulation_options(given: Mapping[str, Any]) -> Options:
    """Return the options that say how to schedule, from a command's parameters.

    Raises  InputError if the configuration cannot be read, or a plugin cannot be imported
    """
    config = given["config"]
    if given["plugins"]:
        # Like `python -m`, find modules in the current directory, but never in place of an installed module.
        sys.path.append(os.getcwd())
    return Options(
        config=None if config is None else read_file(config, CONFIG_LIMIT),
        where=config or "the default configuration",
        plugins=tuple(load(reference) for reference in given["plugins"]),
        emulate=given["emulate"],
        provider=given["algorithm_provider"],
        feature_gates=given["feature_gates"],
        max_disks=given["max_disks"],
        seed=given["seed"],
        skip_extenders=given["extenders"] == "skip",
        quota=not given["no_quota"],
    )


def read_cluster(paths: tuple[str, ...], recursive: bool, custom: tuple[str, ...]) -> ClusterInput:
    """Read a cluster from files.

    Raises  InputError if there is no object in them
    """
    cluster = read(paths, recursive, stdin=sys.stdin.buffer, custom=custom)
    if not cluster.report.read and not cluster.report.unused:
        where = "standard input" if paths == (STDIN,) else ", ".join(paths)
        raise InputError(f"{where}: no Kubernetes object found; expected the output of kubectl get -o yaml, or manifests")
    return cluster
