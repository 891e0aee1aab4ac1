"""Options that say which release of kube-scheduler is to be, shared by commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from moorage.config.release_1_21 import PROVIDERS
from moorage.config.scheduler_document import EMULATED

__all__ = ["emulate_options", "max_disks_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def emulate_options(command: _Command) -> _Command:
    """Add ``--emulate`` and ``--algorithm-provider`` to a command."""
    emulate = click.option(
        "--emulate",
        type=click.Choice(EMULATED),
        help="The release whose rules apply; without it, the one that the configuration's apiVersion stands for.",
    )
    provider = click.option(
        "--algorithm-provider", default="", metavar="NAME", help=f"{' or '.join(PROVIDERS)}, in the place of a configuration."
    )
    return emulate(provider(command))


def max_disks_option(command: _Command) -> _Command:
    """Add ``--max-pd-vols`` to a command. What the environment says is not heeded: equal commands give equal answers."""
    option = click.option(
        "--max-pd-vols", "max_disks", type=click.IntRange(min=1), metavar="N",
        help="Disks of a built-in kind on a node that does not limit them itself: kube-scheduler's KUBE_MAX_PD_VOLS. "
        "For rules of 1.19 to 1.21.",
    )  # fmt: skip
    return option(command)
