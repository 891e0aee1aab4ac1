"""``moorage fail``: what happens when nodes are lost."""

from __future__ import annotations

from typing import Any

import click

from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.interfaces.cli.command_help import DescribedCommand
from moorage.interfaces.cli.progress import Progress
from moorage.interfaces.cli.questions.question import Asked, exit_status, open_question, print_answer, question_options
from moorage.interfaces.cli.questions.question_options import named_nodes, node_selector_option
from moorage.laboratory.survive.survival import failure_domains
from moorage.laboratory.survive.survival_question import failure_report

__all__ = ["fail"]


EPILOG = """Examples:

\b
    moorage fail worker-3 worker-4 -f cluster.json
    moorage fail --zone eu-west-1a -f cluster.json --mode unreachable

All that is printed, and what the modes do: moorage help survive
"""


@click.command(cls=DescribedCommand, epilog=EPILOG)
@click.argument("nodes", nargs=-1, metavar="NODE…")
@node_selector_option
@click.option("--zone", default="", metavar="ZONE", help="All nodes of this zone.")
@click.option(
    "--mode", type=click.Choice(["deleted", "unreachable"]), default="deleted", show_default=True,
    help="The nodes are deleted with their pods, or only unreachable.",
)  # fmt: skip
@question_options(searches=False)
def fail(**given: Any) -> int:
    """Say what happens when nodes are lost at once.

    Their pods are lost, controllers replace them, and kube-scheduler places the replacements on the other nodes. Pending pods
    of the input are placed first. Exits with 0 when the loss leaves no additional pod pending, 2 when it does, 1 when something
    is wrong with the input or the options.
    """
    if given["zone"] and (given["nodes"] or given["node_selector"]):
        raise click.UsageError("name nodes, select them with -l, or give --zone: one of these")
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        nodes = _zone(asked, given["zone"]) if given["zone"] else named_nodes(asked.cluster, given)
        asks = {"fail": list(nodes), "mode": given["mode"], **({"zone": given["zone"]} if given["zone"] else {})}
        question = asked.request(asks)
        found = asked.answered(lambda cluster: failure_report(cluster, question, nodes, given["mode"], given["zone"]))
    print_answer(found, given, asked)
    return exit_status(found)


def _zone(asked: Asked, zone: str) -> tuple[str, ...]:
    domains, _ = failure_domains(asked.cluster.snapshot.table.nodes, "zone")
    for domain in domains:
        if domain.name == zone:
            return domain.nodes
    raise InputError(one_line(f"--zone: no node is in {zone!r}; zones: {', '.join(one.name for one in domains)}"))
