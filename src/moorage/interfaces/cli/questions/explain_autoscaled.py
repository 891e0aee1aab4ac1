"""``moorage explain --autoscaler``: what an autoscaler does about pods that wait, and why it keeps a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import click

from moorage.basis.printable import counted, some
from moorage.errors import InputError
from moorage.interfaces.cli.questions.question import Asked
from moorage.report.autoscaler_answer import AutoscalerAnswer
from moorage.report.judged_nodes import JudgedNode, JudgedNodes

if TYPE_CHECKING:
    from moorage.simulator.autoscalers.cluster_autoscaler.loop import Unremovable
    from moorage.simulator.autoscalers.karpenter.judgement import Karpenter  # loaded only for a question about it

_OTHER = "cluster-autoscaler"
#: Why a node stays that goes when nothing changes.
_SOON = "NotUnneededLongEnough"
#: Words for all nodes.
_EVERY = frozenset({"nodes", "node", "no"})


def names_nodes(given: Mapping[str, Any]) -> bool:
    """Return True if nodes are to be explained.

    Raises  UsageError for nodes without an autoscaler, or together with others
    """
    nodes = [name for name in given["pods"] if name in _EVERY or name.startswith(("node/", "nodes/", "no/"))]
    if nodes and not _autoscaler(given):
        raise click.UsageError(
            f"{nodes[0]}: to say why an autoscaler keeps a node, give --autoscaler {_OTHER}, or Karpenter's --instance-types"
        )
    if nodes and len(nodes) < len(given["pods"]):
        raise click.UsageError("explain pods and nodes in two questions")
    return bool(nodes)


def _autoscaler(given: Mapping[str, Any]) -> str:
    return given["autoscaler"] or ("karpenter" if given["instance_types"] else "")


def kinds_of_autoscaler(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds to read because of an autoscaler."""
    if not _autoscaler(given):
        return ()
    from moorage.interfaces.cli.questions.simulate_autoscaled import kinds_of

    return kinds_of(_autoscaler(given))


def autoscaler_answers(given: Mapping[str, Any], asked: Asked) -> Iterator[AutoscalerAnswer | JudgedNodes]:
    """Yield what the autoscaler does about the named nodes, or about the named pods that wait.

    Raises  InputError for a node that is not there
    """
    which = _autoscaler(given)
    if not which:
        return
    from moorage.simulator.autoscalers.instance_types import read_price_list
    from moorage.simulator.autoscalers.karpenter.judgement import Karpenter

    prices = read_price_list(given["instance_types"]) if given["instance_types"] else None
    request = asked.request({"autoscaler": which, "instanceTypes": given["instance_types"] or ""})
    nodes = [name.partition("/")[2] for name in given["pods"] if name not in _EVERY] if names_nodes(given) else []
    every = not _EVERY.isdisjoint(given["pods"])
    named = {name if "/" in name else f"{given['namespace'] or 'default'}/{name}" for name in given["pods"]}
    if which == _OTHER:
        yield from _of_cluster_autoscaler(given, asked, prices, nodes, named, request, every=every)
        return
    assert prices is not None  # names_nodes has refused this
    karpenter = Karpenter(asked.changed_input, prices, gates=given["karpenter_gates"], now_s=_at(given))
    if every:
        yield _of_every_node(karpenter, request)
    if nodes or every:
        yield from (_of_node(karpenter, name, request) for name in nodes)
    else:
        yield from _of_pods(karpenter, named, request)


def _at(given: Mapping[str, Any]) -> float | None:
    """Return the time of the answer, in Unix seconds; None: that of the input.

    Raises  UsageError for what is no time
    """
    from moorage.api.documents.object_fields import seconds
    from moorage.basis.recording.log_reader import is_log

    text = given.get("moment")
    if not text or any(map(is_log, given["paths"])):
        return None
    try:
        found = seconds(text)
    except ValueError:
        found = 0.0
    if not found:
        raise click.UsageError(f"--at {text}: this is no time; write it as 2026-08-01T10:00:00Z")
    return found


def _of_cluster_autoscaler(
    given: Mapping[str, Any], asked: Asked, prices: Any, nodes: Sequence[str], named: set[str], request: Any, *,
    every: bool = False,
) -> Iterator[AutoscalerAnswer | JudgedNodes]:  # fmt: skip
    from moorage.api.documents.object_fields import seconds
    from moorage.interfaces.cli.questions.simulate_autoscaled import TEMPLATES_REMEDY
    from moorage.laboratory.dynamics.cluster_autoscaler_process import ClusterAutoscaler
    from moorage.laboratory.dynamics.cluster_pools import pools_of_cluster
    from moorage.laboratory.dynamics.group_templates import read_templates
    from moorage.laboratory.dynamics.simulation import Simulation

    cluster = asked.changed_input
    templates = () if given["node_templates"] is None else read_templates(given["node_templates"], prices)
    found = pools_of_cluster(
        (held.document for held in cluster.custom), cluster.nodes, prices, templates=templates,
        components=cluster.components, remedy=TEMPLATES_REMEDY,
    )  # fmt: skip
    simulation = Simulation(cluster, asked.changed_options)
    simulation.run(until=0.0)
    scaler = simulation.use(ClusterAutoscaler(
        found.pools, flags=found.flags, priorities=found.priorities,
        start_s=_at(given) or seconds(cluster.report.taken_at) or 0.0,
    ))  # fmt: skip
    currency = prices.currency if prices is not None else ""
    shared: dict[str, Any] = {"request": request, "missing": found.missing, "currency": currency}

    def answer(decision: Any, thing: str, **more: Any) -> AutoscalerAnswer:
        head = AutoscalerAnswer.head(decision, thing, _OTHER)
        return AutoscalerAnswer(summary=head, thing=thing, decision=decision, **shared, **more)

    if every:
        verdicts = scaler.reasons_kept([node.name for node in cluster.nodes])
        judged = tuple(_judged(name, kept, scaler.pool_of(name)) for name, kept in sorted(verdicts.items()))
        going = [name for name, kept in verdicts.items() if kept is None]
        later = [f"{name}: {kept.text}" for name, kept in verdicts.items() if kept is not None and kept.reason == _SOON]
        told = f"it removes {some(going)}." if going else later[0] if later else ""
        yield JudgedNodes(summary=JudgedNodes.head(_OTHER, judged), nodes=judged, next=told, **shared)
    for name, kept in scaler.reasons_kept(nodes).items():
        pool = scaler.pool_of(name)
        if kept is None or kept.reason == _SOON:
            saves = next((one.price for one in found.pools if one.name == pool), None) if prices is not None else None
            texts = (kept.text,) if kept is not None else ()
            yield answer("delete", f"node/{name}", node=name, pool=pool, why=texts, price=saves)
        else:
            held = {kept.pod: kept.reason} if kept.pod else {}
            yield answer("keep", f"node/{name}", node=name, pool=pool, why=(f"{kept.reason}: {kept.text}",), pods=held)
    if nodes or every:
        return
    growth = scaler.next_growth()
    for pod in growth.waiting:
        if named and pod.key not in named:
            continue
        added = next((one for one in growth.options if any(held.uid == pod.metadata.uid for held in one.pods)), None)
        thing = f"pod {pod.key}"
        if added is not None:
            yield answer("add", thing, pool=added.pool, price=added.price if prices is not None else None)
        else:
            reasons = growth.reasons.get(pod.metadata.uid, {}).items()
            why = tuple(f"{group}: {', '.join(texts)}" if group else ", ".join(texts) for group, texts in reasons)
            yield answer("none" if why else "existing", thing, why=why)


def _judged(name: str, kept: Unremovable | None, pool: str) -> JudgedNode:
    """Return what cluster-autoscaler does with a node."""
    if kept is None or kept.reason == _SOON:
        return JudgedNode(name, "delete", pool, "" if kept is None else kept.text)
    return JudgedNode(name, "keep", pool, f"{kept.reason}: {kept.text}")


def _of_every_node(karpenter: Karpenter, request: Any) -> JudgedNodes:
    nodes, rows = karpenter.cluster.nodes, karpenter.cluster.row_of
    judged = tuple(
        JudgedNode(one.node, one.decision, nodes[rows[one.node]].pool, one.why, None if one.decision == "keep" else one.saves)
        for one in karpenter.verdicts()
    )
    return JudgedNodes(
        request=request, summary=JudgedNodes.head("Karpenter", judged), nodes=judged, next=_command_text(karpenter),
        currency=karpenter.cluster.prices.currency, missing=karpenter.missing, settings=_settings(karpenter),
    )  # fmt: skip


def _command_text(karpenter: Karpenter) -> str:
    """Return what Karpenter does next, as a sentence; "" if it disrupts no node."""
    command = karpenter.next_command()
    if command is None:
        return ""
    names = some([one.name for one in command.candidates])
    saved = f"; an hour saves {command.savings(karpenter.cluster.prices.well_known):.4g}"
    if command.decision == "delete":
        return f"it deletes {names} ({command.reason}){saved}."
    types = f"the cheapest of {some(command.types)}" if len(command.types) > 1 else command.types[0]
    return f"it replaces {names} by {counted(len(command.claims), 'node')}, {types} ({command.reason}){saved}."


def _settings(karpenter: Karpenter) -> str:
    return karpenter.settings.text() if karpenter.settings.source else ""


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
        settings=_settings(karpenter),
    )  # fmt: skip


def _of_pods(karpenter: Karpenter, named: set[str], request: Any) -> Iterator[AutoscalerAnswer]:
    plan, prices = karpenter.plan, karpenter.cluster.prices
    held = {pod.metadata.uid: name for name, pods in plan.placed.items() for pod in pods}
    claims = {pod.metadata.uid: claim for claim in plan.claims for pod in claim.pods}
    pools = [held.pool.name for held in karpenter.cluster.templates if not held.told]
    for pod, why in karpenter.ignored:
        if not named or pod.key in named:
            thing = f"pod {pod.key}"
            yield AutoscalerAnswer(
                request=request, summary=AutoscalerAnswer.head("none", thing), thing=thing, decision="none",
                why=(f"it ignores the pod: {why}",), currency=prices.currency, missing=karpenter.missing,
                settings=_settings(karpenter),
            )  # fmt: skip
    for pod in karpenter.cluster.pending:
        if named and pod.key not in named:
            continue
        uid, thing = pod.metadata.uid, f"pod {pod.key}"
        claim = claims.get(uid)
        decision: Any = "add" if claim is not None else "existing" if uid in held else "none"
        price = claim.cheapest(prices.well_known) if claim is not None else inf
        dropped = plan.relaxations.get(uid)
        whys = [f"it ignores {', '.join(dropped)}"] if dropped else []
        if decision == "none":
            whys = plan.reasons.get(uid) or [plan.errors[uid]]
        if decision == "none" and len(whys) == len(pools):
            whys = [f"NodePool {pool}: {why}" for pool, why in zip(pools, whys, strict=True)]
        yield AutoscalerAnswer(
            request=request, summary=AutoscalerAnswer.head(decision, thing), thing=thing, decision=decision, why=tuple(whys),
            node=held.get(uid, ""), pool=claim.pool.name if claim is not None else "",
            types=() if claim is None else tuple(one.name for one in claim.types), price=None if price == inf else price,
            currency=prices.currency, missing=karpenter.missing, settings=_settings(karpenter),
        )  # fmt: skip
