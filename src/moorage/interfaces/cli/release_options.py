"""Options that select the emulated release of kube-scheduler, shared by commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from moorage.api.releases import LEGACY, find_release, why_unknown
from moorage.core.config.release_plugins import PROVIDERS
from moorage.interfaces.cli.main import DescribedCommand

# -- file options ------------------------------------------------------------------------------------------------------
# Commands that take input files with ``-f`` only: arguments without it, as in ``-f *.yaml``, are rejected with a hint.


class TakesFiles(DescribedCommand):
    """A command that takes files with ``-f`` and no positional arguments."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            many = "s" if len(rest) > 1 else ""
            ctx.fail(f"Got unexpected extra argument{many} ({' '.join(rest)}); give -f before each file")
        return rest


# -- release options ---------------------------------------------------------------------------------------------------

#: The value of ``--emulate`` for the release that the cluster runs.
AUTO: Final = "auto"


class EmulatedRelease(click.ParamType[str]):
    """The name of a release that can be emulated, given as a minor release or a patch release."""

    name = "release"

    def __init__(self, *, auto: bool = False) -> None:
        """Accept ``AUTO`` too, if the command reads a cluster."""
        self._auto = auto

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if self._auto and value == AUTO:
            return value
        found = find_release(value)
        if found is None:
            self.fail(why_unknown(value), param, ctx)
        return found.name


_Command = TypeVar("_Command", bound=Callable[..., Any])


def emulated_cluster_option(command: _Command) -> _Command:
    """Add ``--emulate`` to a command that reads a cluster."""
    option = click.option(
        "--emulate",
        type=EmulatedRelease(auto=True),
        help="The release to emulate: 1.34 (its newest known patch release), 1.34.1, or auto: that of the cluster. "
        "By default the one of the configuration's apiVersion.",
    )
    return option(command)


def emulate_option(command: _Command) -> _Command:
    """Add ``--emulate`` to a command."""
    option = click.option(
        "--emulate",
        type=EmulatedRelease(),
        help="The release to emulate: 1.34 (its newest known patch release) or 1.34.1; by default the one of the "
        "configuration's apiVersion.",
    )
    return option(command)


def _provider_option(command: _Command) -> _Command:
    option = click.option(
        "--algorithm-provider", default="", metavar="NAME", help=f"{' or '.join(PROVIDERS)}; replaces a configuration file."
    )
    return option(command)


def emulate_options(command: _Command) -> _Command:
    """Add ``--emulate`` and ``--algorithm-provider`` to a command."""
    return emulate_option(_provider_option(command))


def emulated_cluster_options(command: _Command) -> _Command:
    """Add ``--emulate`` and ``--algorithm-provider`` to a command that reads a cluster."""
    return emulated_cluster_option(_provider_option(command))


class OldOption(click.Option):
    """A flag of kube-scheduler that 1.36 does not have. Help lists such flags in a separate section."""


class TakesFilesAndFlags(TakesFiles):
    """A command that takes files with ``-f`` and flags of earlier releases."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {True: [], False: []}  # type: dict[bool, list[tuple[str, str]]]
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                records[isinstance(parameter, OldOption)].append(record)
        sections = {"Options": records[False], f"Flags of kube-scheduler {LEGACY[0]} to {LEGACY[-1]}": records[True]}
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def old_flag_options(command: _Command) -> _Command:
    """Add the flags of kube-scheduler 1.19 to 1.21 that affect scheduling."""
    options = (
        click.option(
            "--algorithm-provider", cls=OldOption, default="", metavar="NAME",
            help=f"{' or '.join(PROVIDERS)}: the algorithm provider to use.",
        ),
        click.option("--policy-config-file", cls=OldOption, default="", metavar="FILE", help="File with a Policy."),
        click.option(
            "--policy-configmap", cls=OldOption, default="", metavar="NAME", help="Name of the ConfigMap with a Policy."
        ),
        click.option(
            "--policy-configmap-namespace", cls=OldOption, default="", metavar="NAME",
            help="The namespace of --policy-configmap [kube-system].",
        ),
        click.option(
            "--use-legacy-policy-config", cls=OldOption, is_flag=True,
            help="Use --policy-config-file and ignore --policy-configmap.",
        ),
        click.option(
            "--scheduler-name", cls=OldOption, default="", metavar="NAME",
            help="Name of the scheduler; it selects pods by spec.schedulerName.",
        ),
        click.option(
            "--hard-pod-affinity-symmetric-weight", "hard_pod_affinity", cls=OldOption, type=int, metavar="N",
            help="Weight of the required pod affinity of placed pods in scores, 0-100 [1].",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def max_disks_option(command: _Command) -> _Command:
    """Add ``--max-pd-vols`` to a command. The environment is ignored, so that equal commands give equal answers."""
    option = click.option(
        "--max-pd-vols", "max_disks", type=click.IntRange(min=1), metavar="N",
        help="Maximum number of disks of an in-tree type on a node that sets no limit itself (KUBE_MAX_PD_VOLS of "
        "kube-scheduler 1.19 to 1.21).",
    )  # fmt: skip
    return option(command)


def no_quota_option(command: _Command) -> _Command:
    """Add ``--no-quota`` to a command."""
    option = click.option(
        "--no-quota", "no_quota", is_flag=True, help="Also create the pods that a resource quota or a limit range refuses."
    )
    return option(command)
