"""Options that say which release of kube-scheduler is to be, shared by commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from moorage.cli.file_options import TakesFiles
from moorage.config.release_1_21 import PROVIDERS, RELEASES
from moorage.config.scheduler_document import EMULATED

__all__ = ["OldOption", "TakesFilesAndFlags", "emulate_option", "emulate_options", "max_disks_option", "old_flag_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def emulate_option(command: _Command) -> _Command:
    """Add ``--emulate`` to a command."""
    option = click.option(
        "--emulate",
        type=click.Choice(EMULATED),
        help="The release whose rules apply; without it, the one that the configuration's apiVersion stands for.",
    )
    return option(command)


def emulate_options(command: _Command) -> _Command:
    """Add ``--emulate`` and ``--algorithm-provider`` to a command."""
    provider = click.option(
        "--algorithm-provider", default="", metavar="NAME", help=f"{' or '.join(PROVIDERS)}, in the place of a configuration."
    )
    return emulate_option(provider(command))


class OldOption(click.Option):
    """A flag of kube-scheduler that today's does not have; help shows such in a section of their own."""


class TakesFilesAndFlags(TakesFiles):
    """A command that takes files with ``-f``, and flags of earlier releases."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {True: [], False: []}  # type: dict[bool, list[tuple[str, str]]]
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                records[isinstance(parameter, OldOption)].append(record)
        sections = {"Options": records[False], f"Flags of kube-scheduler {RELEASES[0]} to {RELEASES[-1]}": records[True]}
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def old_flag_options(command: _Command) -> _Command:
    """Add the flags of kube-scheduler 1.19 to 1.21 that say how pods are scheduled."""
    options = (
        click.option(
            "--algorithm-provider", cls=OldOption, default="", metavar="NAME",
            help=f"{' or '.join(PROVIDERS)}: the plugins that profiles start from.",
        ),
        click.option("--policy-config-file", cls=OldOption, default="", metavar="FILE", help="A Policy."),
        click.option("--policy-configmap", cls=OldOption, default="", metavar="NAME", help="A ConfigMap with a Policy."),
        click.option(
            "--policy-configmap-namespace", cls=OldOption, default="", metavar="NAME", help="Its namespace [kube-system]."
        ),
        click.option(
            "--use-legacy-policy-config", cls=OldOption, is_flag=True, help="Use the file, whatever ConfigMap is named."
        ),
        click.option("--scheduler-name", cls=OldOption, default="", metavar="NAME", help="The schedulerName of its pods."),
        click.option(
            "--hard-pod-affinity-symmetric-weight", "hard_pod_affinity", cls=OldOption, type=int, metavar="N",
            help="What required pod affinity of placed pods counts in scores, 0-100 [1].",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def max_disks_option(command: _Command) -> _Command:
    """Add ``--max-pd-vols`` to a command. What the environment says is not heeded: equal commands give equal answers."""
    option = click.option(
        "--max-pd-vols", "max_disks", type=click.IntRange(min=1), metavar="N",
        help="Disks of a built-in kind on a node that does not limit them itself: kube-scheduler's KUBE_MAX_PD_VOLS. "
        "For rules of 1.19 to 1.21.",
    )  # fmt: skip
    return option(command)
