"""``NodePlan``: which nodes to buy or to remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.basis.printable import counted, one_line, some
from moorage.report.answer import Answer, ending, plain
from moorage.report.short_names import some_pods
from moorage.report.style import WIDTH, amounts_text, cells, cut, item, paragraph


class WhyNot(Struct, frozen=True, rename="camel"):
    """Why pods fit on no node of a type."""

    type: str
    plugin: str
    reason: str


class UnplaceablePods(Struct, frozen=True, rename="camel"):
    """Pods of one shape that fit on no node, existing or new."""

    pods: tuple[str, ...]
    requests: Mapping[str, int]
    why: tuple[WhyNot, ...]


class LeftPods(Struct, frozen=True, rename="camel"):
    """Pods that stay pending with the nodes of a partial plan: why more nodes do not help, and the scheduler's message."""

    pods: tuple[str, ...]
    why: tuple[str, ...]
    message: str


class NodeSet(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A set of new nodes by type; ``pending``: how many pods stay pending with it, by the order in which they are placed."""

    cost: float
    nodes: Mapping[str, int]
    pending: Mapping[str, int] = {}


class CheaperSet(Struct, frozen=True, rename="camel"):
    """A set of new nodes that costs far less, and the few pods that stay pending with it and not with the set to buy."""

    cost: float
    nodes: Mapping[str, int]
    left: tuple[str, ...]


class MovedPod(Struct, frozen=True, rename="camel"):
    """A pod that moves because its node is removed. ``pod`` is the name of the old one, ``to`` the node of its replacement."""

    pod: str
    source: str
    to: str


class BlockingPod(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a node is not removed: the pod that prevents it, and the rule or the plugin."""

    pod: str = ""
    rule: str = ""
    plugin: str = ""
    text: str = ""


class NodePlan(Answer, frozen=True, kw_only=True):
    """The answer of ``moorage plan``.

    ``nodes``        how many of each type to buy; ``per_zone`` the same by zone, for types with zones
    ``lower_bound``  no set of nodes costs less, whatever the scheduler; ``bound_kind`` says how it was computed
    ``packing``      the cheapest packing by resources alone
    ``verified``     the cost of a verified set by order of placement: the real order, the largest and the smallest first
    ``sets``         the sets of nodes that were verified
    ``gap``          the difference between the verified cost and the bound, as a share of the bound
    ``status``       optimal (no cheaper set works), gap, partial (some pods stay pending with any number of these nodes),
                     impossible (all do) or undecided (no set for all of them was found in time)
    ``left``         the pods that stay pending with the nodes of a partial plan
    ``cheaper``      what places almost as many pods for far less
    ``preempted``    running pods that are evicted for pending ones and that no controller replaces
    ``used``         requested and allocatable amounts of the new nodes, by resource
    ``remove``       existing nodes that can be removed; ``blocked`` says why others cannot
    ``moved``        the pods of removed nodes and their new nodes; ``lost``: those that no controller replaces
    """

    KIND = "NodePlan"

    nodes: Mapping[str, int] = {}
    per_zone: Mapping[str, Mapping[str, int]] = {}
    cost: float | None = None
    lower_bound: float | None = None
    bound_kind: str = ""
    packing: NodeSet | None = None
    packing_proven: bool = False
    verified: Mapping[str, float | None] = {}
    sets: Mapping[str, NodeSet] = {}
    gap: float | None = None
    status: str = "undecided"
    unplaceable: tuple[UnplaceablePods, ...] = ()
    used: Mapping[str, tuple[int, int]] = {}
    preempted: tuple[str, ...] = ()
    unit: str = ""
    priced: bool = True
    pods: int = 0
    left: tuple[LeftPods, ...] = ()
    cheaper: CheaperSet | None = None
    remove: tuple[str, ...] = ()
    moved: tuple[MovedPod, ...] = ()
    lost: tuple[str, ...] = ()
    blocked: Mapping[str, tuple[BlockingPod, ...]] = {}
    saved: float | None = None
    consolidates: bool = False

    @property
    def staying(self) -> int:
        """How many of the pods stay pending."""
        return sum([len(one.pods) for one in self.unplaceable]) + sum([len(one.pods) for one in self.left])

    @property
    def holds(self) -> bool | None:
        """Whether there is a set of nodes with which all pods are placed; for a consolidation, whether a node can go."""
        if self.consolidates:
            return True if self.remove else False if self.stopped is None else None
        return {"impossible": False, "partial": False, "undecided": None}.get(self.status, True)

    def with_values(self, **values: Any) -> NodePlan:
        """Return the answer with these values, and with its summary set."""
        whole = replace(self, **values)
        return replace(whole, summary=plan_summary(whole))

    def _answer(self) -> dict[str, Any]:
        found = self._shown("nodes", "cost", "lower_bound", "gap", "status", "remove", "moved", "blocked")
        found["verified"] = dict(self.verified)  # also those without a cost
        if self.consolidates:
            return found | self._shown("saved", "lost")
        found |= self._shown("cheaper") if self.cheaper is not None else {}
        if self.packing is not None:
            found["packing"] = {**plain(self.packing), "proven": self.packing_proven}
        used = {name: {"requested": used, "allocatable": there} for name, (used, there) in self.used.items()}
        return found | self._shown("per_zone", "bound_kind", "sets", "unplaceable", "pods", "left", "preempted", used=used)

    def _node_names(self) -> Collection[str]:
        return {*self.remove, *self.blocked, *(name for one in self.moved for name in (one.source, one.to) if name)}

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        if self.consolidates:
            yield "\n".join(_removal(self, wide=wide))
        else:
            if (less := self.cheaper) is not None:
                price = f" for {_money(less.cost)} {self.unit}".rstrip() if self.priced else ""
                yield item(f"! {_bought(less.nodes)}{price} place all of these but {some_pods(less.left)}")
            yield "\n".join(_missing(self, wide=wide))
            yield _table(self)
        yield "\n".join(_endings(self, wide=wide))
        yield ending(_certainty(self), wide=wide)


# -- plan text ---------------------------------------------------------------------------------------------------------
# A plan as text: what to buy or to remove, how it compares with the bound, and how certain it is.

_ORDERS = {"asGiven": "as given", "largestFirst": "largest first", "smallestFirst": "smallest first"}
_KINDS = {
    "integer": "proven by an integer program", "linear": "proven by a linear program", "resource": "by single resources",
}  # fmt: skip
#: How many nodes and pods are listed before the rest is counted.
_LISTED = 12
#: Up to so many moves of a node are named.
_NAMED = 3
#: The most characters of a pod's name, unless ``wide``.
_NAME = 40


def plan_summary(plan: NodePlan) -> str:
    """Return the answer in one sentence."""
    if plan.consolidates:
        return _consolidation(plan)
    if plan.status in {"partial", "impossible", "undecided"}:
        return _part(plan)
    if not plan.nodes:
        return "Buy nothing: every pod has a node." if plan.pods else "Buy nothing: no pod is pending."
    return f"Buy {_bought(plan.nodes)}{_price(plan)}{_above(plan)}."


def _part(plan: NodePlan) -> str:
    """Return what a plan does that does not place all pods."""
    stays = counted(plan.staying, "pod")
    if plan.status == "impossible":
        return f"Buy nothing: no number of nodes of these types places any of {counted(plan.pods, 'pod')}."
    least = "" if plan.status == "partial" else " A longer search may find nodes for all of them."
    bought = f"Buy {_bought(plan.nodes)}{_price(plan)}, which places" if plan.nodes else "Buy nothing: the existing nodes take"
    return f"{bought} {plan.pods - plan.staying} of {plan.pods} pods; {stays} stay{'s' * (plan.staying == 1)} pending.{least}"


def _bought(nodes: Mapping[str, int]) -> str:
    return one_line(", ".join(f"{count} {name}" for name, count in nodes.items()))


def _price(plan: NodePlan) -> str:
    return f": {_money(plan.cost)} {plan.unit}".rstrip() if plan.priced else ""


def _above(plan: NodePlan) -> str:
    if plan.gap is None:
        return ""
    if plan.gap <= 0:
        return ", which is the lower bound"
    least = "; no cheaper set works" if plan.status == "optimal" else ""
    return f", {plan.gap:.1%} above the lower bound{least}"


def _money(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.3f}" if cost % 1 else str(int(cost))


# -- nodes to buy -----------------------------------------------------------------------------------------------------


def _missing(plan: NodePlan, *, wide: bool) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[UnplaceablePods]] = {}
    for one in plan.unplaceable:
        alike.setdefault(tuple(_reasons(one, plan, wide=wide)), []).append(one)
    for reasons, some_of in list(alike.items())[: None if wide else _LISTED]:
        pods = [pod for one in some_of for pod in one.pods]
        asked = f" ({amounts_text(some_of[0].requests)})" if len(some_of) == 1 else ""
        yield item(f"✗ {some_pods(pods)}{asked}")
        yield from (item(reason, "      ") for reason in reasons)
    for left in plan.left if wide else plan.left[:_LISTED]:
        yield item(f"✗ {some_pods(left.pods)}")
        for line in (*left.why, left.message) if left.message and wide else left.why:
            yield item(line, "      ")


def _reasons(one: UnplaceablePods, plan: NodePlan, *, wide: bool) -> Iterator[str]:
    """Yield why pods fit on no type; plugins that repeat what another one says are left out, unless ``wide``."""
    by_reason: dict[str, list[str]] = {}
    for why in one.why:
        by_reason.setdefault(f"{why.plugin}: {why.reason}", []).append(why.type)
    said: list[str] = []
    for reason, types in by_reason.items():
        text = reason.partition(": ")[2]
        if not wide and any(other in text for other in said):
            continue
        said.append(text)
        every = len(types) > 1 and len(types) == len(plan.request.question.get("plan", ()))
        yield f"{reason} on {'every type' if every else some(types)}"


def _table(plan: NodePlan) -> str:
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


def _endings(plan: NodePlan, *, wide: bool) -> Iterator[str]:
    if plan.preempted:
        text = f"! pods of higher priority evict {some_pods(plan.preempted)}; no controller replaces them."
        yield item(text)
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
        yield item(f"{name}: {where}")
    for one in plan.assumptions if wide else plan.assumptions[1:]:
        yield item(f"Assumed: {one.name}: {one.value}")


def _certainty(plan: NodePlan) -> str:
    runs = f"{counted(plan.proof.runs, 'run')} of the engine"
    if plan.consolidates:
        how = "all sets of nodes were tried" if plan.proof.kind == "exhaustive" else "not all sets of nodes were tried"
        return f"Verified by {runs}; {how}."
    if not plan.sets:
        return "The lower bound holds for any scheduler." if plan.lower_bound else f"{runs}."
    if plan.left:
        return f"Verified by {runs}; other nodes for as many pods may cost less."
    what = {"bound": "equal to the lower bound", "exhaustive": "every cheaper set leaves a pod pending"}
    return f"Verified by {runs}; {what.get(plan.proof.kind, 'a cheaper set may exist')}."


# -- nodes to remove --------------------------------------------------------------------------------------------------


def _consolidation(plan: NodePlan) -> str:
    if not plan.remove:
        return (
            "No node can be removed." if plan.stopped is None else "Undecided: no node that can be removed was found in time."
        )
    saved = f", which saves {_money(plan.saved)} {plan.unit}".rstrip() if plan.saved and plan.priced else ""
    bought = f" and buy {_bought(plan.nodes)}" if plan.nodes else ""
    moves = f"{counted(len(plan.moved), 'pod')} move{'s' if len(plan.moved) == 1 else ''}"
    lost = f", {counted(len(plan.lost), 'pod')} deleted for good" if plan.lost else ""
    return f"Remove {counted(len(plan.remove), 'node')}{bought}: {some(plan.remove)}{saved}; {moves}{lost}."


def _removal(plan: NodePlan, *, wide: bool) -> Iterator[str]:
    most = None if wide else _LISTED
    by_node: dict[str, list[str]] = {node: [] for node in plan.remove}
    for one in plan.moved:
        by_node.setdefault(one.source, []).append(f"{one.pod if wide else cut(one.pod, _NAME)} → {one.to}")
    homes = {node: Counter(one.to for one in plan.moved if one.source == node) for node in by_node}
    rows = [["", "NODE", "PODS"]]
    for node, pods in list(by_node.items())[:most]:
        where = some([home if count == 1 else f"{home} ×{count}" for home, count in homes[node].most_common()])  # noqa: RUF001
        moves = "; ".join(pods) if wide or len(pods) <= _NAMED else f"{len(pods)} pods → {where}"
        rows.append(["✓", one_line(node), one_line(moves or "no pod moves")])
    if most is not None and len(by_node) > most:
        rows.append(["✓", f"and {len(by_node) - most} more", "-o wide"])
    stay: dict[str, dict[str, list[str]]] = {}  # reason → node → pods
    for node, why in plan.blocked.items():
        reasons = dict.fromkeys(one.text or one.rule or one.plugin for one in why)
        stay.setdefault("; ".join(reasons), {})[node] = [one.pod for one in why if one.pod]
    for reason, held in list(stay.items())[:most]:
        nodes, pods = list(held), list(chain.from_iterable(held.values()))
        names = f"{', '.join(pods) if wide else some_pods(pods)}: " if pods else ""
        where = ", ".join(nodes) if wide or len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"
        rows.append(["✗", one_line(where), one_line(f"{names}{reason}")])
    yield cells(rows, (1, 50, WIDTH))
    if plan.lost:
        yield item(f"! no controller replaces {some_pods(plan.lost)}")
    left = sum(map(len, list(stay.values())[len(stay) if wide else _LISTED :]))
    if left > 0:
        yield f"  and {counted(left, 'more node')}: -o wide"
