"""``moorage plan``: which nodes to buy, or which to remove."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from moorage.cli.command_help import DescribedCommand
from moorage.cli.progress import Progress
from moorage.cli.question import Asked, exit_status, open_question, print_answer, question_options
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_plan import planned_pods
from moorage.laboratory.node_types import read_types
from moorage.laboratory.plan import PlanQuestion, plan_of
from moorage.report.plan import NodePlan

__all__ = ["plan"]

EPILOG = """Examples:

\b
    moorage plan -f tomorrow/ --types types.yaml
    moorage plan -f cluster.json --types types.yaml --pods release/ --time-limit 60

The file of types, and how the answer is found: docs/reference/plan.md
"""


@click.command(cls=DescribedCommand, epilog=EPILOG)
@question_options()
@click.option("--types", "types", metavar="FILE", help="The node types to buy, with prices: a YAML list.")
@click.option(
    "--pods", "pods", multiple=True, metavar="PATH", help="Plan for these pods or workloads, not for the pending ones."
)
@click.option("--objective", type=click.Choice(["price", "nodes"]), default="price", show_default=True,
              help="What to minimise.")  # fmt: skip
@click.option("--unit", default="per hour", show_default=True, help="The unit of the prices, for the text.")
@click.option("--time-limit", type=click.FloatRange(0.1, 3600), default=30.0, show_default=True, metavar="SECONDS",
              help="How long to look for a cheaper set.")  # fmt: skip
def plan(**given: Any) -> int:
    """Say which nodes to buy so that kube-scheduler places all pending pods, and what they cost at least.

    The lower bound holds for any scheduler. The answer is verified by running the engine with the new nodes. Exits with 0 when
    there is an answer, 2 when it is impossible, 3 when none was found in time, 1 when something is wrong with the input or the
    options.
    """
    if not given["types"]:
        raise click.UsageError("give --types FILE: the node types to buy")
    with Progress(quiet=given["quiet"]) as progress, open_question(given, progress) as asked:
        found = asked.answered(lambda cluster: _plan(cluster, asked, given, progress))
    print_answer(found, given)
    return exit_status(found)


def _plan(cluster: Cluster, asked: Asked, given: Mapping[str, Any], progress: Progress) -> NodePlan:
    types = tuple(read_types(given["types"]))
    request = asked.request({
        "plan": [one.name for one in types], "objective": given["objective"], "timeLimitSeconds": given["time_limit"],
        **({"pods": list(given["pods"])} if given["pods"] else {}),
    })  # fmt: skip
    named = _added(cluster, given["pods"]) if given["pods"] else None
    question = PlanQuestion(
        planned_pods(cluster, named), types, time.monotonic, given["objective"], given["time_limit"], given["unit"],
        whole_queue=named is None, tell=progress.say,
    )  # fmt: skip
    return plan_of(cluster, request, question)


def _added(cluster: Cluster, paths: tuple[str, ...]) -> list[str]:
    """Add the objects of files and return the UIDs of the pods that came with them."""
    before = set(cluster.simulation.pods)
    cluster.add(*paths)
    return [pod.metadata.uid for pod in planned_pods(cluster, None) if pod.metadata.uid not in before]
