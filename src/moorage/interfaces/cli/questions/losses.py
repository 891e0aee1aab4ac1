"""``moorage cordon``, ``moorage fail`` and ``moorage survive``: what the loss of nodes does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count
from multiprocessing import current_process
from typing import Any, Final

from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.question import exit_status, open_question, print_answer
from moorage.interfaces.cli.questions.question_options import (
    executor_of,
    named_nodes,
    seldom,
)
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.drain.cordon_question import cordon_report
from moorage.laboratory.survive.survival_question import SurvivalAsked, failure_report, nodes_of_zone, survival_report
from moorage.laboratory.sweeps.jobs import usable_cpus
from moorage.report.survival_report import Survival


@described("cordon")
def cordon(**given: Any) -> int:
    """Run ``moorage cordon``."""
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        nodes = named_nodes(asked.cluster, given)
        question = asked.request({"cordon": list(nodes)})
        found = asked.answered(lambda cluster: cordon_report(cluster, question, nodes))
    print_answer(found, given, asked)
    return exit_status(found)


# -- fail --------------------------------------------------------------------------------------------------------------


@described("fail")
def fail(**given: Any) -> int:
    """Run ``moorage fail``."""
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        nodes = nodes_of_zone(asked.cluster, given["zone"]) if given["zone"] else named_nodes(asked.cluster, given)
        asks = {"fail": list(nodes), **{name: given[name] for name in ("mode", "zone") if given[name]}}
        question = asked.request(asks)
        found = asked.answered(lambda cluster: failure_report(cluster, question, nodes, given["mode"], given["zone"]))
    print_answer(found, given, asked)
    return exit_status(found)


# -- survive -----------------------------------------------------------------------------------------------------------

#: How many processes simulate losses if that is not given, in clusters of so many pods or more.
_MOST: Final = 4
_MANY_PODS: Final = 1_000


@described("survive")
def survive(**given: Any) -> int:
    """Run ``moorage survive``."""
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
            numbers, shows = count(1), seldom(lambda number: progress.say(f"{number:,} losses run …"))
            return survival_report(cluster, question, what, lambda loss: shows(next(numbers)))

        found = asked.answered(ask)
    print_answer(found, given, asked)
    return exit_status(found)


def _usual_processes(given: Mapping[str, Any], pods: int) -> int:
    """Return how many processes simulate losses. Extenders are asked from one, and a question of the web interface has one."""
    if pods < _MANY_PODS or given["extenders"] == "ask" or current_process().daemon:
        return 1
    return min(_MOST, usable_cpus())
