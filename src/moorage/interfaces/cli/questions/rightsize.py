"""``moorage rightsize``: what requests that follow usage would free."""

from __future__ import annotations

from typing import Any

import click

from moorage.basis.inputs.usage import read_usage
from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.progress import Progress
from moorage.interfaces.cli.questions.question import exit_status, open_question, print_answer, question_options
from moorage.laboratory.plan.node_types import read_types
from moorage.laboratory.rightsize.rightsize_question import RightsizeOptions, rightsize_report

__all__ = ["rightsize"]

EPILOG = """Examples:

\b
    kubectl top pod -A --containers > top.txt
    moorage rightsize -f cluster.json --usage top.txt --types types.yaml
    moorage rightsize -f cluster.json --usage cpu=cpu.json --usage memory=memory.json

The forms of usage, and how the answer is found: moorage help rightsize
"""


@click.command(cls=DescribedCommand, epilog=EPILOG)
@click.option(
    "--usage", "usage_files", multiple=True, required=True, metavar="[cpu=|memory=]FILE",
    help="PodMetrics, kubectl top's table, a Prometheus result, VPA objects, or KRR's JSON. May be repeated.",
)  # fmt: skip
@click.option("--headroom", type=click.FloatRange(0, 1000), default=15.0, show_default=True, metavar="PERCENT",
              help="How far a request is above the measured use.")  # fmt: skip
@click.option("--percentile", type=click.FloatRange(0, 100, min_open=True), default=95.0, show_default=True, metavar="P",
              help="Of the values of a range query for CPU. Of memory, the largest counts.")  # fmt: skip
@click.option("--types", metavar="FILE", help="Node types with prices, for the money, as plan takes them.")
@click.option("--unit", default="per hour", show_default=True, help="The unit of the prices, for the text.")
@question_options(outputs=("text", "wide", "json", "yaml"))
def rightsize(**given: Any) -> int:
    """Say what requests that follow usage would free: nodes, money, and how full the others become.

    Changes requests in steps, the safest first, and asks after each which nodes the real scheduler can do without. Exits with 0
    when a change frees a node, 2 when none does, 3 when the time limit comes before, 1 when something is wrong with the input
    or the options.
    """
    usage = read_usage(given["usage_files"], given["percentile"])
    types = tuple(read_types(given["types"])) if given["types"] else ()
    options = RightsizeOptions(usage, given["headroom"] / 100, types, given["unit"])
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        question = asked.request({
            "rightsize": list(given["usage_files"]), "headroom": given["headroom"], "percentile": given["percentile"],
            "types": [one.name for one in types],
        })  # fmt: skip
        progress.say("changing requests …")
        found = asked.answered(lambda cluster: rightsize_report(cluster, question, options, asked.budget))
    print_answer(found, given, asked)
    return exit_status(found)
