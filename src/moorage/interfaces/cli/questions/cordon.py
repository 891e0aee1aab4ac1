"""``moorage cordon``: what cordoning nodes would change."""

from __future__ import annotations

from typing import Any

import click

from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.progress import Progress
from moorage.interfaces.cli.questions.question import exit_status, open_question, print_answer, question_options
from moorage.interfaces.cli.questions.question_options import named_nodes, node_selector_option
from moorage.laboratory.drain.drain_question import cordon_report

__all__ = ["cordon"]


EPILOG = """Examples:

\b
    moorage cordon worker-3 -f cluster.json -f apps.yaml
    moorage cordon -l pool=old --live

All that is printed: moorage help drain
"""


@click.command(cls=DescribedCommand, epilog=EPILOG)
@click.argument("nodes", nargs=-1, metavar="NODE…")
@node_selector_option
@question_options(searches=False)
def cordon(**given: Any) -> int:
    """Say what cordoning nodes would change.

    Pods stay on cordoned nodes; pending pods of the input are placed on other nodes or stay pending. Exits with 0 when every
    pending pod that is placed without the cordon is also placed with it, 2 when not, 1 when something is wrong with the input
    or the options.
    """
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        nodes = named_nodes(asked.cluster, given)
        question = asked.request({"cordon": list(nodes)})
        found = asked.answered(lambda cluster: cordon_report(cluster, question, nodes))
    print_answer(found, given, asked)
    return exit_status(found)
