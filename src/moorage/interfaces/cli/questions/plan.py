"""``moorage plan``: which nodes to buy, or which to remove."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import project_setting
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.drain import dump_time_s
from moorage.interfaces.cli.questions.question import Asked, exit_status, open_question, print_answer
from moorage.interfaces.cli.questions.question_options import executor_of
from moorage.interfaces.cli.questions.simulate_autoscaled import kinds_of
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.cluster_questions import planned_pods
from moorage.laboratory.drain.kubectl_filters import DrainFlags
from moorage.laboratory.plan.autoscaled_types import AutoscaledTypes, of_cluster_autoscaler, of_karpenter
from moorage.laboratory.plan.consolidation import ConsolidationQuestion, consolidation_of
from moorage.laboratory.plan.node_types import NodeType, read_types
from moorage.laboratory.plan.plan import PlanQuestion, plan_of
from moorage.report.answer import Assumption
from moorage.report.plan import NodePlan
from moorage.simulator.autoscalers.instance_types import read_price_list


@described("plan")
def plan(**given: Any) -> int:
    """Run ``moorage plan``."""
    if not given["types"]:
        given["types"] = project_setting("types")[0]
    if given["autoscaler"] == "karpenter" and not given["types"]:
        raise click.UsageError("--autoscaler karpenter: give what it can launch, with prices: --types FILE")
    if not given["types"] and not given["autoscaler"] and (not given["consolidate"] or given["buy"]):
        raise click.UsageError("give --types FILE: the node types to buy")
    kinds = kinds_of(given["autoscaler"] or "")
    with Progress.of(given) as progress, open_question(given, progress, kinds) as asked, ExitStack() as block:
        types = _types(given, asked)
        if given["consolidate"]:
            found = asked.answered(lambda cluster: _consolidation(cluster, asked, given, types, progress))
        else:
            executor = executor_of(given, block)
            found = asked.answered(lambda cluster: _plan(cluster, asked, given, types, progress, executor))
    print_answer(found, given, asked)
    return exit_status(found)


def _types(given: Mapping[str, Any], asked: Asked) -> AutoscaledTypes:
    """Return what can be bought: what the file says, or the cluster's autoscaler."""
    if not given["autoscaler"]:
        return AutoscaledTypes(_listed(given["types"]), currency=_currency(given["types"]))
    prices = read_price_list(given["types"]) if given["types"] else None
    if prices is not None and given["autoscaler"] == "karpenter":
        return of_karpenter(asked.changed_input, prices)
    return of_cluster_autoscaler(asked.changed_input, prices, dump_time_s(asked))


def _listed(types: str | list[Any] | None) -> tuple[NodeType, ...]:
    """Return the types of a file, or of the list in the project's file."""
    return tuple(read_types(Path(types) if isinstance(types, str) else types)) if types else ()


def _currency(path: str | list[Any] | None) -> str:
    """Return the currency that a file of instance types gives; "" for a file of other node types."""
    with suppress(InputError):
        return read_price_list(path).currency if isinstance(path, str) else ""
    return ""


def _unit(given: Mapping[str, Any], known: AutoscaledTypes) -> str:
    return f"{known.currency} {given['unit']}".strip()


def _asked_of(given: Mapping[str, Any]) -> dict[str, str]:
    return {"autoscaler": given["autoscaler"]} if given["autoscaler"] else {}


def _assumptions(given: Mapping[str, Any], types: AutoscaledTypes) -> tuple[Assumption, ...]:
    return tuple(Assumption(given["autoscaler"], f"not in the input: {text}") for text in types.missing)


def _consolidation(
    cluster: Cluster, asked: Asked, given: Mapping[str, Any], known: AutoscaledTypes, progress: Progress
) -> NodePlan:
    types = known.types if given["objective"] == "price" else ()
    flags = {name: given[name] for name in ("delete_emptydir_data", "force")}
    request = asked.request({
        "plan": [one.name for one in types], "consolidate": True, "objective": given["objective"], **_asked_of(given),
        "flags": {name: True for name, value in flags.items() if value},
    })  # fmt: skip
    question = ConsolidationQuestion(
        asked.budget, types, given["buy"], DrainFlags(ignore_daemonsets=True, **flags),
        unit=_unit(given, known), progress=progress.say, kept=known.kept, least=known.least if types else {},
        prices=known.prices if types else {},
        assumptions=_assumptions(given, known),
    )  # fmt: skip
    return consolidation_of(cluster, request, question)


def _plan(
    cluster: Cluster, asked: Asked, given: Mapping[str, Any], known: AutoscaledTypes, progress: Progress,
    executor: Executor | None,
) -> NodePlan:  # fmt: skip
    types = known.types
    request = asked.request({
        "plan": [one.name for one in types], "objective": given["objective"], **_asked_of(given),
        **({"pods": list(given["pods"])} if given["pods"] else {}),
        **({} if given["budget"] is None else {"budget": given["budget"]}),
    })  # fmt: skip
    named = _added(cluster, given["pods"]) if given["pods"] else None
    question = PlanQuestion(
        planned_pods(cluster, named), types, asked.budget, given["objective"], _unit(given, known),
        whole_queue=named is None, executor=executor, progress=progress.say,
        budget=math.inf if given["budget"] is None else given["budget"], limits=known.limits,
        assumptions=_assumptions(given, known),
    )  # fmt: skip
    return plan_of(cluster, request, question)


def _added(cluster: Cluster, paths: tuple[str, ...]) -> list[str]:
    """Add the objects of files and return the UIDs of the pods that came with them."""
    before = set(cluster.simulation.pods)
    cluster.add(*paths)
    return [pod.metadata.uid for pod in planned_pods(cluster, None) if pod.metadata.uid not in before]
