"""A plan as text: what to buy or to remove, how it compares with the bound, and how certain it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moorage.printable import one_line
from moorage.report.plan_values import NodePlanValues, NodeSet, UnplaceablePods
from moorage.report.style import WIDTH, cells, human, paragraph
from moorage.wording import counted, some

__all__ = ["plan_summary", "plan_text"]

_ORDERS = {"asGiven": "as given", "largestFirst": "largest first", "smallestFirst": "smallest first"}
_KINDS = {
    "integer": "proven by an integer program", "linear": "proven by a linear program", "resource": "by single resources",
}  # fmt: skip
#: How many nodes and pods are listed before the rest is counted.
_LISTED = 12


def plan_summary(plan: NodePlanValues) -> str:
    """Return the answer in one sentence."""
    if plan.consolidates:
        return _consolidation(plan)
    if plan.status in {"partial", "impossible", "undecided"}:
        return _part(plan)
    if not plan.nodes:
        return "Buy nothing: every pod has a node." if plan.pods else "Buy nothing: no pod is pending."
    return f"Buy {_bought(plan.nodes)}{_price(plan)}{_above(plan)}."


def _part(plan: NodePlanValues) -> str:
    """Return what a plan does that does not place all pods."""
    stays = counted(plan.staying, "pod")
    if plan.status == "impossible":
        return f"Buy nothing: no number of nodes of these types places any of {counted(plan.pods, 'pod')}."
    least = "" if plan.status == "partial" else " A longer search may find nodes for all of them."
    bought = f"Buy {_bought(plan.nodes)}{_price(plan)}, which places" if plan.nodes else "Buy nothing: the existing nodes take"
    return f"{bought} {plan.pods - plan.staying} of {plan.pods} pods; {stays} stay{'s' * (plan.staying == 1)} pending.{least}"


def _bought(nodes: Mapping[str, int]) -> str:
    return one_line(", ".join(f"{count} {name}" for name, count in nodes.items()))


def _price(plan: NodePlanValues) -> str:
    return f": {_money(plan.cost)} {plan.unit}".rstrip() if plan.priced else ""


def _above(plan: NodePlanValues) -> str:
    if plan.gap is None:
        return ""
    if plan.gap <= 0:
        return ", which is the lower bound"
    least = "; no cheaper set works" if plan.status == "optimal" else ""
    return f", {plan.gap:.1%} above the lower bound{least}"


def _money(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.3f}" if cost % 1 else str(int(cost))


def plan_text(plan: NodePlanValues, *, wide: bool = False) -> str:
    """Return the text, escaped, with signs and without colours."""
    blocks = [paragraph(one_line(plan.summary))]
    blocks += (
        ["\n".join(_removal(plan, wide=wide))] if plan.consolidates else ["\n".join(_missing(plan, wide=wide)), _table(plan)]
    )
    blocks += ["\n".join(_endings(plan, wide=wide)), _last(plan, wide=wide)]
    return "\n\n".join(block for block in blocks if block) + "\n"


# -- nodes to buy -----------------------------------------------------------------------------------------------------


def _missing(plan: NodePlanValues, *, wide: bool) -> Iterator[str]:
    for one in plan.unplaceable if wide else plan.unplaceable[:_LISTED]:
        yield paragraph(one_line(f"✗ {some(one.pods)} ({_requests(one)})"), indent="  ", hanging="    ")
        by_reason: dict[str, list[str]] = {}
        for why in one.why:
            by_reason.setdefault(f"{why.plugin}: {why.reason}", []).append(why.type)
        for reason, types in by_reason.items():
            yield paragraph(one_line(f"{reason} on {some(types)}"), indent="      ", hanging="        ")
    for left in plan.left if wide else plan.left[:_LISTED]:
        yield paragraph(one_line(f"✗ {some(left.pods)}"), indent="  ", hanging="    ")
        for line in (*left.why, left.message) if left.message else left.why:
            yield paragraph(one_line(line), indent="      ", hanging="        ")


def _requests(one: UnplaceablePods) -> str:
    return ", ".join(f"{human(name, amount)} {name}" for name, amount in one.requests.items())


def _table(plan: NodePlanValues) -> str:
    if plan.lower_bound is None or plan.left or not (plan.sets or plan.packing):
        return ""
    head = ["", "PRICE" if plan.priced else "COST", "NODES", "PENDING", *_ORDERS.values()]
    rows = [head, ["lower bound", _money(plan.lower_bound), "", _KINDS.get(plan.bound_kind, ""), "", "", ""]]
    if plan.packing is not None:
        rows.append(_row("cheapest packing", plan.packing))
    shown: dict[tuple[str, int], list[str]] = {}
    for order, found in plan.sets.items():
        key = str(dict(found.nodes)), 0
        shown.setdefault(key, []).append(order)
    for orders in shown.values():
        name = "verified  ✓" if orders[0] == "asGiven" else f"also {_ORDERS[orders[0]]}  ✓"
        rows.append(_row(name, plan.sets[orders[0]]))
    widths = [max(len(row[at]) for row in rows if at < 3 or row[0] != "lower bound") for at in range(len(head))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(name: str, found: NodeSet) -> list[str]:
    counts = [str(found.pending[order]) if order in found.pending else "" for order in _ORDERS]
    return [name, _money(found.cost), str(sum(found.nodes.values())), "", *counts]


def _line(row: list[str], widths: list[int]) -> str:
    first = row[0].ljust(widths[0])
    if row[0] == "lower bound":
        return f"  {first}  {row[1].rjust(widths[1])}  {''.rjust(widths[2])}  {row[3]}".rstrip()
    rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return f"  {first}  {'  '.join(rest)}".rstrip()


def _endings(plan: NodePlanValues, *, wide: bool) -> Iterator[str]:
    if plan.preempted:
        text = f"! pods of higher priority evict {some(plan.preempted)}; no controller replaces them."
        yield paragraph(one_line(text), indent="  ", hanging="    ")
    said = [f"{name} {used / there:.0%} used" for name, (used, there) in plan.used.items() if there]
    text = f"New nodes: {', '.join(said)}." if said else ""
    if not plan.left and plan.packing is not None and plan.cost is not None and plan.cost > plan.packing.cost + 1e-9:
        text += (
            f" Cost of placing one pod after the other: {_money(round(plan.cost - plan.packing.cost, 9))} {plan.unit}".rstrip()
            + "."
        )
    if text:
        yield paragraph(one_line(text.strip()), indent="  ")
    for name, zones in plan.per_zone.items():
        where = ", ".join(f"{count} in {zone}" for zone, count in zones.items())
        yield paragraph(one_line(f"{name}: {where}"), indent="  ", hanging="    ")
    for one in plan.assumptions if wide else plan.assumptions[1:]:
        yield paragraph(one_line(f"Assumed: {one.name}: {one.value}"), indent="  ", hanging="    ")


def _last(plan: NodePlanValues, *, wide: bool) -> str:
    more = "" if wide else " More: -o wide"
    runs = f"{counted(plan.proof.runs, 'run')} of the engine"
    if plan.consolidates:
        how = "all sets of nodes were tried" if plan.proof.kind == "exhaustive" else "not all sets of nodes were tried"
        return paragraph(f"Verified by {runs}; {how}.{more}")
    if not plan.sets:
        return paragraph(f"The lower bound holds for any scheduler.{more}" if plan.lower_bound else f"{runs}.{more}")
    if plan.left:
        return paragraph(f"Verified by {runs}; other nodes for as many pods may cost less.{more}")
    what = {"bound": "equal to the lower bound", "exhaustive": "every cheaper set leaves a pod pending"}
    return paragraph(f"Verified by {runs}; {what.get(plan.proof.kind, 'a cheaper set may exist')}.{more}")


# -- nodes to remove --------------------------------------------------------------------------------------------------


def _consolidation(plan: NodePlanValues) -> str:
    if not plan.remove:
        return "No node can be removed."
    saved = f", which saves {_money(plan.saved)} {plan.unit}".rstrip() if plan.saved and plan.priced else ""
    bought = f" and buy {_bought(plan.nodes)}" if plan.nodes else ""
    moves = f"{counted(len(plan.moved), 'pod')} move{'s' if len(plan.moved) == 1 else ''}"
    lost = f", {counted(len(plan.lost), 'pod')} deleted for good" if plan.lost else ""
    return f"Remove {counted(len(plan.remove), 'node')}{bought}: {some(plan.remove)}{saved}; {moves}{lost}."


def _removal(plan: NodePlanValues, *, wide: bool) -> Iterator[str]:
    most = None if wide else _LISTED
    by_node: dict[str, list[str]] = {node: [] for node in plan.remove}
    for one in plan.moved:
        by_node.setdefault(one.source, []).append(f"{one.pod} → {one.to}")
    rows = [["", "NODE", "PODS"]]
    rows += [["✓", one_line(node), one_line("; ".join(pods) or "no pod moves")] for node, pods in list(by_node.items())[:most]]
    for node, why in list(plan.blocked.items())[:most]:
        rows.append(
            ["✗", one_line(node), one_line("; ".join(_blocked(one.pod, one.text or one.rule or one.plugin) for one in why))]
        )
    yield cells(rows, (1, 34, WIDTH))
    if plan.lost:
        yield paragraph(one_line(f"! no controller replaces {some(plan.lost)}"), indent="  ", hanging="    ")
    left = len(by_node) + len(plan.blocked) - len(rows) + 1
    if left > 0:
        yield f"  and {left} more nodes: -o wide"


def _blocked(pod: str, why: str) -> str:
    return f"{pod}: {why}" if pod else why
