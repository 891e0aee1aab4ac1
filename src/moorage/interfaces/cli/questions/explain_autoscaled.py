"""``moorage explain --instance-types FILE``: what Karpenter does about pods that wait, and why it keeps a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import click

from moorage.errors import InputError
from moorage.interfaces.cli.questions.question import Asked
from moorage.report.explanation import AutoscalerAnswer

if TYPE_CHECKING:
    from moorage.simulator.autoscalers.karpenter.judgement import Karpenter  # loaded only for a question about it

__all__ = ["autoscaler_answers", "kinds_of_autoscaler", "names_nodes"]


def names_nodes(given: Mapping[str, Any]) -> bool:
    """Return True if nodes are to be explained.

    Raises  UsageError for nodes without instance types, or together with others
    """
    nodes = [name for name in given["pods"] if _is_node(name)]
    if nodes and not given["instance_types"]:
        raise click.UsageError(f"{nodes[0]}: to say why Karpenter keeps a node, give its instance types with --instance-types")
    if nodes and len(nodes) < len(given["pods"]):
        raise click.UsageError("explain pods and nodes in two questions")
    if given["instance_types"] and given["output"] == "html":
        raise click.UsageError("--instance-types prints text, JSON or YAML")
    return bool(nodes)


def kinds_of_autoscaler(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds to read because of Karpenter."""
    if not given["instance_types"]:
        return ()
    from moorage.simulator.autoscalers.karpenter.scene import KINDS

    return KINDS


def _is_node(name: str) -> bool:
    return name.partition("/")[0] in {"node", "nodes", "no"} and "/" in name


def autoscaler_answers(given: Mapping[str, Any], asked: Asked) -> Iterator[AutoscalerAnswer]:
    """Yield what Karpenter does about the named nodes, or about the named pods that wait.

    Raises  InputError for a node that is not there
    """
    if not given["instance_types"]:
        return
    from moorage.simulator.autoscalers.instance_types import read_price_list
    from moorage.simulator.autoscalers.karpenter.judgement import Karpenter

    karpenter = Karpenter(asked.changed_input, read_price_list(given["instance_types"]))
    request = asked.request({"instanceTypes": given["instance_types"]})
    if names_nodes(given):
        for name in given["pods"]:
            yield _of_node(karpenter, name.partition("/")[2], request)
        return
    named = {name if "/" in name else f"{given['namespace'] or 'default'}/{name}" for name in given["pods"]}
    yield from _of_pods(karpenter, named, request)


def _of_node(karpenter: Karpenter, name: str, request: Any) -> AutoscalerAnswer:
    if name not in karpenter.cluster.row_of:
        raise InputError(f"node/{name}: the input has no node of this name")
    found = karpenter.verdict(name)
    decision: Any = found.decision
    thing = f"node/{name}"
    return AutoscalerAnswer(
        request=request, summary=AutoscalerAnswer.head(decision, thing), thing=thing, decision=decision,
        why=(found.why,) if found.why else (), node=name, pool=karpenter.cluster.nodes[karpenter.cluster.row_of[name]].pool,
        pods=found.pods, types=found.types, price=None if found.decision == "keep" else found.saves,
        currency=karpenter.cluster.prices.currency, missing=karpenter.missing,
    )  # fmt: skip


def _of_pods(karpenter: Karpenter, named: set[str], request: Any) -> Iterator[AutoscalerAnswer]:
    plan, prices = karpenter.plan, karpenter.cluster.prices
    held = {pod.metadata.uid: name for name, pods in plan.placed.items() for pod in pods}
    claims = {pod.metadata.uid: claim for claim in plan.claims for pod in claim.pods}
    for pod in karpenter.cluster.pending:
        if named and pod.key not in named:
            continue
        uid, thing = pod.metadata.uid, f"pod {pod.key}"
        claim = claims.get(uid)
        decision: Any = "add" if claim is not None else "existing" if uid in held else "none"
        price = claim.cheapest(prices.well_known) if claim is not None else inf
        whys: Sequence[str] = plan.errors[uid].split("; ") if decision == "none" else ()
        yield AutoscalerAnswer(
            request=request, summary=AutoscalerAnswer.head(decision, thing), thing=thing, decision=decision, why=tuple(whys),
            node=held.get(uid, ""), pool=claim.pool.name if claim is not None else "",
            types=() if claim is None else tuple(one.name for one in claim.types), price=None if price == inf else price,
            currency=prices.currency, missing=karpenter.missing,
        )  # fmt: skip
