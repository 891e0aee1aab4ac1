"""``moorage survive``: which losses of nodes, zones or other domains a cluster survives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import count
from multiprocessing import current_process
from typing import Any, Final

import click

from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.progress import Progress
from moorage.interfaces.cli.questions.question import exit_status, open_question, print_answer, question_options
from moorage.interfaces.cli.questions.question_options import dask_option, executor_of, seldom
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.survive.survival_question import SurvivalAsked, survival_report
from moorage.laboratory.sweeps.executors import usable_cpus
from moorage.report.survival_report import NodeLoss, Survival

__all__ = ["survive"]


#: How many processes simulate losses if that is not given, in clusters of so many pods or more.
_MOST: Final = 4
_MANY_PODS: Final = 1_000

EPILOG = """Examples:

\b
    moorage survive -f cluster.json --over zone
    moorage survive -f cluster.json --spare worker-1

All that is printed, and how losses are compared: moorage help survive
"""


@click.command(cls=DescribedCommand, epilog=EPILOG)
@click.option(
    "--over",
    default="node",
    show_default=True,
    metavar="node|zone|LABEL",
    help="What to lose: each node, each zone, or the nodes with each value of a label.",
)
@click.option("--depth", type=click.IntRange(1, 2), default=1, show_default=True, help="With 2, also lose every pair of them.")
@click.option("--spare", default="", metavar="NODE",
              help="Find the fewest empty nodes like this one with which every loss is survived.")  # fmt: skip
@click.option(
    "--probes", type=click.IntRange(0), default=2000, show_default=True,
    help="Maximum number of losses to simulate in the search for a fix; 0 skips the search.",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 64),
    help="Number of processes that simulate losses; by default one for each processor, up to 4, from 1,000 pods on.",
)  # fmt: skip
@dask_option
@question_options()
def survive(**given: Any) -> int:
    """Say whether a cluster survives the loss of any node, any zone, or any value of a label.

    Every loss is simulated: the nodes and their pods are lost, controllers replace the pods, and kube-scheduler places the
    replacements. Pending pods of the input are placed first. If a loss leaves a pod pending, search for changes of nodes with
    which every loss is survived. Exits with 0 when every loss is survived, 2 when not, 1 when something is wrong with the input
    or the options.
    """
    with Progress.of(given) as progress, open_question(given, progress) as asked, ExitStack() as block:
        executor = executor_of(given, block) if given["dask"] else None
        what = SurvivalAsked(
            given["over"], given["depth"], given["probes"], given["spare"], executor=executor,
            processes=given["processes"] or _usual_processes(given, len(asked.given.pods)),
            budget=asked.budget,
        )  # fmt: skip
        asks = {"survive": given["over"], "depth": given["depth"], **({"spare": given["spare"]} if given["spare"] else {})}
        question = asked.request(asks)

        def ask(cluster: Cluster) -> Survival:
            return survival_report(cluster, question, what, _counter(progress))

        found = asked.answered(ask)
    print_answer(found, given, asked)
    return exit_status(found)


def _usual_processes(given: Mapping[str, Any], pods: int) -> int:
    """Return how many processes simulate losses. Extenders are asked from one, and a question of the web interface has one."""
    if pods < _MANY_PODS or given["extenders"] == "ask" or current_process().daemon:
        return 1
    return min(_MOST, usable_cpus())


def _counter(progress: Progress) -> Callable[[NodeLoss], None]:
    """Return a function that counts the simulated losses and shows their number."""
    numbers = count(1)
    shows = seldom(lambda number: progress.say(f"{number:,} losses run …"))
    return lambda loss: shows(next(numbers))
