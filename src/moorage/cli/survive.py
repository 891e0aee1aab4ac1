"""``moorage survive``: which losses of nodes, zones or other domains a cluster survives."""

from __future__ import annotations

import time
from typing import Any

import click

from moorage.cli.command_help import DescribedCommand
from moorage.cli.progress import Progress
from moorage.cli.question import exit_status, open_question, print_answer, question_options
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.survival_question import SurvivalAsked, survival_report
from moorage.report.outage_values import NodeLoss
from moorage.report.survival_report import Survival

__all__ = ["survive"]


EPILOG = """Examples:

\b
    moorage survive -f cluster.json --over zone
    moorage survive -f cluster.json --spare worker-1

All that is printed, and how losses are compared: docs/reference/survive.md
"""
#: Seconds between two messages.
_EVERY_S = 0.2


@click.command(cls=DescribedCommand, epilog=EPILOG)
@click.option("--over", default="node", show_default=True, metavar="node|zone|LABEL", help="What is lost.")
@click.option("--depth", type=click.IntRange(1, 2), default=1, show_default=True, help="2: lose every two of them as well.")
@click.option("--spare", default="", metavar="NODE",
              help="Find the fewest empty nodes like this one with which every loss is survived.")  # fmt: skip
@click.option(
    "--probes", type=click.IntRange(0), default=2000, show_default=True,
    help="Losses that the search for a fix may compute; 0 leaves it out.",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Compute losses in so many processes."
)
@question_options()
def survive(**given: Any) -> int:
    """Say whether a cluster survives the loss of any node, any zone, or any value of a label.

    Every loss is run by the engine: the nodes and their pods are gone, controllers replace the pods, and kube-scheduler places
    the replacements. Pending pods of the input are placed before. If some loss leaves a pod pending, changes of nodes are
    searched that let every loss be survived. Exits with 0 when every loss is survived, 2 when not, 1 when something is wrong
    with the input or the options.
    """
    with Progress(quiet=given["quiet"]) as progress, open_question(given, progress) as asked:
        what = SurvivalAsked(given["over"], given["depth"], given["probes"], given["spare"], processes=given["processes"])
        asks = {"survive": given["over"], "depth": given["depth"], **({"spare": given["spare"]} if given["spare"] else {})}
        question = asked.request(asks)

        def ask(cluster: Cluster) -> Survival:
            return survival_report(cluster, question, what, _Counter(progress))

        found = asked.answered(ask)
    print_answer(found, given)
    return exit_status(found)


class _Counter:
    """Shows how many losses were run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._runs, self._next = 0, time.monotonic() + _EVERY_S

    def __call__(self, loss: NodeLoss) -> None:
        self._runs += 1
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            self._progress.say(f"{self._runs:,} losses run, the last of {loss.lost} …")
