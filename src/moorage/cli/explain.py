"""``moorage explain``: why a pod is pending, or why it is on its node."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click
import yaml

from moorage.api.yaml_writing import PrintableDumper
from moorage.cli.bounded_files import CONFIG_LIMIT, STDIN, read_file
from moorage.cli.cluster_files import asking, read_cluster, simulation_options
from moorage.cli.main import OK, PENDING, UNDECIDED
from moorage.cli.memory import collect_seldom
from moorage.cli.progress import Progress
from moorage.cli.release_options import emulate_options, max_disks_option
from moorage.cli.terminal import bare
from moorage.laboratory.costs import read_costs
from moorage.laboratory.explain_run import ExplainOptions, explain_cluster
from moorage.laboratory.explained_changes import ChangeLimits
from moorage.laboratory.least_change import OWNERS
from moorage.printable import escape_json
from moorage.report.explanation import Explanation
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.simulate import Options, kinds_named
from moorage.simulator.simulation import SimulatedAttempt

__all__ = ["exit_status", "explain", "explain_pending_pods", "print_explanations"]


@click.command()
@click.argument("pods", nargs=-1, metavar="[NAMESPACE/]POD | KIND/NAME")
@click.option(
    "-f", "--filename", "paths", multiple=True, metavar="PATH",
    help="A file, a directory, or - for standard input. May be repeated.",
)  # fmt: skip
@click.option("-R", "--recursive", is_flag=True, help="Read directories with all that is below them.")
@click.option("--all", "every_pending", is_flag=True, help="Explain every pod that stays pending.")
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace of the pods or workloads named.")
@click.option(
    "--config", metavar="FILE", help="A KubeSchedulerConfiguration or a Policy; without it, kube-scheduler's defaults."
)
@emulate_options
@click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, as kube-scheduler takes them.")
@max_disks_option
@click.option("--plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin of your own. May be repeated.")
@click.option("--extenders", type=click.Choice(["ask", "skip"]), help="Ask the configured extenders, or do without them.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed breaks ties in another way.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "wide", "json", "yaml"]), default="text", show_default=True,
    help="How to print the answer.",
)  # fmt: skip
@click.option(
    "--may", default="pod,node,cluster,config", show_default=True, metavar="OWNERS",
    help="Who may make the changes that are proposed: any of pod, node, cluster and config.",
)  # fmt: skip
@click.option("--costs", metavar="FILE", help="What changes cost, as YAML; it replaces a part of the built-in table.")
@click.option("--alternatives", type=click.IntRange(0), default=3, show_default=True, help="How many more changes to list.")
@click.option(
    "--probes", type=click.IntRange(0), default=2000, show_default=True,
    help="Engine runs that the search for changes may take; 0 leaves it out.",
)  # fmt: skip
@click.option("--ascii", "ascii_only", is_flag=True, help="Print signs in ASCII.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, even on a terminal.")
def explain(**given: Any) -> int:
    """Say why a pod is pending, or why it is on its node.

    Places the pending pods of a cluster as moorage simulate does, then lets every plugin judge every node for the pod. To
    explain a pod that does not exist yet, give its manifest too: -f pod.yaml -f cluster.json. Exits with 0 when every pod asked
    for has a node, 2 when one is pending, 1 when something is wrong with the input or the options, 3 when the answer is not
    certain.
    """
    collect_seldom()
    _check(given)
    options = simulation_options(given)
    what = ExplainOptions(given["pods"], given["every_pending"], given["namespace"], given["paths"], _limits(given))
    with Progress(quiet=given["quiet"]) as progress:
        progress.say("reading the input …")
        with asking(options) if given["extenders"] == "ask" else nullcontext(options) as options:
            cluster = read_cluster(given["paths"], given["recursive"], kinds_named(options))
            found = explain_cluster(cluster, options, what, on_attempt=lambda attempt: _count(progress, attempt))
    print_explanations(found, given["output"], ascii_only=given["ascii_only"])
    return exit_status(found)


def _check(given: dict[str, Any]) -> None:
    if not given["paths"]:
        raise click.UsageError("nothing to read: give -f PATH (- for standard input)")
    if bool(given["pods"]) == given["every_pending"]:
        raise click.UsageError("name a pod or a workload, or give --all")
    if given["config"] == STDIN and STDIN in given["paths"]:
        raise click.UsageError("standard input can be read only once: give --config or -f another file than -")


def _limits(given: dict[str, Any]) -> ChangeLimits:
    named = [name.strip() for name in given["may"].split(",") if name.strip()]
    unknown = sorted(set(named) - set(OWNERS))
    if unknown or not named:
        raise click.UsageError(f"--may: {', '.join(unknown) or 'no owner'}; use any of {', '.join(OWNERS)}")
    may = tuple(owner for owner in OWNERS if owner in named)
    costs = None if given["costs"] is None else read_costs(read_file(given["costs"], CONFIG_LIMIT), given["costs"])
    return ChangeLimits(may, given["alternatives"], given["probes"], costs)


def _count(progress: Progress, attempt: SimulatedAttempt) -> None:
    progress.count(placed=attempt.decision.node is not None)


def print_explanations(found: Sequence[Explanation], output: str, *, ascii_only: bool = False) -> None:
    """Print explanations: texts one after the other, or a document; a list of documents if there are several."""
    if output in {"text", "wide"}:
        _print_text(found, wide=output == "wide", ascii_only=ascii_only)
        return
    documents = [one.to_dict() for one in found]
    whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    if output == "json":
        sys.stdout.write(escape_json(json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False)) + "\n")
    else:
        sys.stdout.write(yaml.dump(whole, Dumper=PrintableDumper, sort_keys=True, allow_unicode=True, width=100))


def explain_pending_pods(cluster: ClusterInput, options: Options, output: str) -> None:
    """Print an explanation of every pod that stays pending; ``output`` is that of ``moorage simulate``."""
    print_explanations(
        explain_cluster(cluster, options, ExplainOptions(every_pending=True)), "wide" if output == "wide" else "text"
    )


def _print_text(found: Sequence[Explanation], *, wide: bool, ascii_only: bool) -> None:
    terminal = bare(sys.stdout)
    colour = terminal.isatty() and not os.environ.get("NO_COLOR")
    texts = [one.text(wide=wide, ascii_only=ascii_only, colour=colour) for one in found]
    whole = "\n".join(texts) if texts else "No pod is pending.\n"
    # The text is escaped already; the only escape sequences in it are our own colours.
    (terminal if colour else sys.stdout).write(whole)


def exit_status(found: Sequence[Explanation]) -> int:
    """Return the exit status: 0 every pod has a node, 2 one is pending, 3 the answer is not certain."""
    if any(one.outcome in {"pending", "gated", "notCreated"} for one in found):
        return PENDING
    if any(one.proof.kind == "undecided" for one in found):
        return UNDECIDED
    return OK
