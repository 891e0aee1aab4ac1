"""Find which nodes can be removed: their pods fit on the other nodes, and kubectl can drain them one after the other.

A set of nodes counts only if both hold: the engine places all pods without the nodes, and a drain of the nodes succeeds within
the disruption budgets. With few candidates, every set is tried, the one that saves most first. With many, nodes are added one
at a time, those that save most for the least disruption first; then up to two are exchanged for others as long as that saves
more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount
from moorage.api.workloads import DaemonSet
from moorage.core.engine.facts import Seen
from moorage.laboratory.budget import BudgetSpentError, TimeBudget, silent
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.drain.drain_question import course_of, drain_report
from moorage.laboratory.drain.drain_run import DrainPlan
from moorage.laboratory.drain.kubectl_filters import DrainFlags, judge_pods
from moorage.laboratory.drain.virtual_drain import TWO_BUDGETS, DrainCourse, EvictionRules
from moorage.laboratory.explain.verdicts import free_amount, verdicts_now
from moorage.laboratory.node_groups import groups_by_node
from moorage.laboratory.plan.node_types import ZONE, NodeType, Offer, daemon_pods, offers_of_types, policies_of
from moorage.laboratory.survive.failures import NodeFailures, pods_by_node
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran, Told
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.drain_report import DrainReport
from moorage.report.plan import BlockingPod, MovedPod, NodePlan
from moorage.simulator.allowed_disruptions import BudgetFigures, WatchedBudget, pods_by_namespace
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL
from moorage.simulator.replacements import replacement
from moorage.state.pod_info import PodInfo

# Find the nodes that may be removed, the needs of their pods, and why the others may not: a rule of kubectl, or a budget.

_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
#: Labels of launched nodes in which a node and its type agree.
_LAUNCHED: Final = (CAPACITY_TYPE, NODE_POOL)


@dataclass(frozen=True, slots=True)
class RemovableNode:
    """A node that may be removed. ``pods`` would have to move; ``budgets`` is the number of budgets that cover them.

    ``type`` is the name of its type, "" if it is not known.
    """

    node: Node
    price: float
    type: str
    pods: tuple[Pod, ...]
    needs: Mapping[str, int]
    budgets: int = 0

    @property
    def name(self) -> str:
        return self.node.name


def types_of_nodes(nodes: Sequence[Node], offers: Iterable[Offer]) -> dict[str, Offer]:
    """Return the type of each node, where one is known: by instance type, by group or name, or by equal allocatable amounts."""
    groups, held = groups_by_node(nodes), list(offers)
    found: dict[str, Offer] = {}
    for node in nodes:
        like = {f"group/{groups[node.name]}", groups[node.name], node.name}
        likely = (
            *(offer for offer in held if _is_offering(offer, node)),
            *(offer for offer in held if offer.type.like in like),
            *(offer for offer in held if offer.pattern.status.allocatable == node.status.allocatable),
        )
        if likely:
            found[node.name] = likely[0]
    return found


def _is_offering(offer: Offer, node: Node) -> bool:
    """Return True if a node has the instance type of an offer, and the capacity type, NodePool and zone that it gives."""
    labels, own = node.labels, offer.pattern.labels
    if labels.get(INSTANCE_TYPE) not in {offer.type.name, own.get(INSTANCE_TYPE, offer.type.name)}:
        return False
    zone = labels.get(ZONE, "")
    return (not offer.zones or not zone or zone in offer.zones) and all(
        labels.get(key, own[key]) == own[key] for key in _LAUNCHED if key in own
    )


def candidates_of(
    course: DrainCourse, question: ConsolidationQuestion, daemon_sets: frozenset[str], offers: Sequence[Offer]
) -> tuple[list[RemovableNode], dict[str, tuple[BlockingPod, ...]]]:
    """Return the nodes that may be removed, and why the others may not. Without offers, each node costs 1."""
    simulation = course.simulation
    nodes = list(simulation.scheduler.cluster.table.nodes)
    known = types_of_nodes(nodes, offers)
    on_node = pods_by_node(simulation)
    spaces = pods_by_namespace(simulation.pods.values())

    @cache  # every pod of a budget asks
    def figures(watched: WatchedBudget) -> BudgetFigures:
        covered = filter(watched.covers, spaces.get(watched.budget.namespace, ()))
        return course.book.figures(watched, covered, course.is_ready)

    around = course.cluster.present()
    requests = None if around.written is None else ChangeRequests(around)
    removable: list[RemovableNode] = []
    blocked: dict[str, tuple[BlockingPod, ...]] = {}
    for node in sorted(nodes, key=lambda one: one.name):
        pods = [simulation.pods[uid] for uid in on_node.get(node.name, ())]
        offer = known.get(node.name)
        verdicts = judge_pods(pods, question.flags, daemon_sets)
        moving = [one.pod for one in verdicts if one.action == "evict"]
        why = [BlockingPod(one.pod.key, one.rule, text=one.text) for one in verdicts if one.action == "refuse"]
        why += [found for pod in moving if (found := _kept_by_budget(course, pod, figures)) is not None]
        refused = {one.pod for one in why}
        if requests is not None:
            why += (BlockingPod(pod, "policy", text=text) for pod, text in requests.why_not_drained(node, moving))
        why += (one for one in question.kept.get(node.name, ()) if not one.pod or one.pod not in refused)
        if any(label in node.labels for label in _CONTROL_PLANE):
            why.append(BlockingPod(rule="controlPlane", text="runs the control plane"))
        price = question.prices.get(node.name, 1.0 if offer is None else offer.type.price)
        if offers and offer is None and node.name not in question.prices:
            why.append(BlockingPod(rule="price", text="no type is like it, so its price is not known"))
        if why:
            blocked[node.name] = tuple(why)
            continue
        budgets = len({watched.key for pod in moving for watched in course.book.covering(pod)})
        name = "" if offer is None else offer.type.name
        removable.append(RemovableNode(node, price, name, tuple(moving), _needs(moving), budgets))
    return removable, blocked


def _needs(pods: Sequence[Pod]) -> dict[str, int]:
    """Return the requests of those pods that a controller replaces."""
    replaced = [pod for pod in pods if replacement(pod) is not None]
    needs: dict[str, int] = {"pods": len(replaced)}
    for pod in replaced:
        for name, asked in PodInfo(pod).requests.items():
            needs[name] = needs.get(name, 0) + asked
    return needs


def _kept_by_budget(course: DrainCourse, pod: Pod, figures_of: Callable[[WatchedBudget], BudgetFigures]) -> BlockingPod | None:
    """Return why budgets never allow the eviction of a pod; None if they do, or may later."""
    covering = course.book.covering(pod)
    if len(covering) > 1 and pod.status.phase != "Pending":
        return BlockingPod(pod.key, "budget", text=TWO_BUDGETS)
    for watched in covering:
        policy = watched.budget.spec.unhealthy_pod_eviction_policy
        if policy == "AlwaysAllow" and not course.is_ready(pod):
            continue
        figures = figures_of(watched)
        if figures.allowed == 0 and figures.desired >= figures.expected:
            return BlockingPod(pod.key, "budget", text=f"pdb/{watched.budget.metadata.name} never allows a disruption")
    return None


#: Maximum number of candidates for which all sets are tried.
EXHAUSTIVE: Final = 14
#: Maximum number of nodes whose drain is also tried in other orders.
_ORDERED: Final = 8
_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ConsolidationQuestion:
    """What to remove.

    ``types``    node types with prices; empty: every node costs the same
    ``buy``      one new node may replace the removed ones
    ``flags``    the flags of ``kubectl drain``
    ``kept``     nodes that an autoscaler keeps, and why; ``least``: how many nodes of a type it keeps
    ``prices``   of nodes, where they are known better than by types
    ``budget``   ends the search when it is spent
    """

    budget: TimeBudget
    types: tuple[NodeType, ...] = ()
    buy: bool = False
    flags: DrainFlags = field(default=DrainFlags(ignore_daemonsets=True))
    rules: EvictionRules = field(default=EvictionRules())
    unit: str = ""
    progress: Callable[[str], None] = field(default=silent)
    kept: Mapping[str, tuple[BlockingPod, ...]] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """Nodes to remove, and at most one offer to buy."""

    nodes: tuple[RemovableNode, ...]
    buy: Offer | None = None

    @property
    def saving(self) -> float:
        bought = 0.0 if self.buy is None else self.buy.type.price
        return round(sum(one.price for one in self.nodes) - bought, 9)

    @property
    def rank(self) -> tuple[float, int, int, tuple[str, ...]]:
        """The sort key: the largest saving first, then the fewest lost pods, then the fewest moved pods, then by name."""
        pods = [pod for one in self.nodes for pod in one.pods]
        return -self.saving, sum(replacement(pod) is None for pod in pods), len(pods), self.names

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.nodes)


_NOTHING: Final = Removal(())
_LATE: Final = BlockingPod(text="not tried in time")


def consolidation_of(cluster: AskedCluster, request: AnswerRequest, question: ConsolidationQuestion) -> NodePlan:
    """Return which nodes to remove. The cluster is unchanged afterwards.

    Raises  InputError
    """
    with cluster.transaction():
        question.progress("placing pending pods …")
        cluster._step(Ran(None))
        return _Consolidation(cluster, request, question).answer()


class _Consolidation:
    """One search, in an open transaction of the cluster at rest."""

    def __init__(self, cluster: AskedCluster, request: AnswerRequest, question: ConsolidationQuestion) -> None:
        self.cluster, self.request, self.question = cluster, request, question
        self.budget = question.budget.part()
        self.plan = DrainPlan(question.flags, question.rules)
        nodes: list[Node] = list(cluster.simulation.scheduler.snapshot.table.nodes)
        self.policies = policies_of(cluster.objects())
        self.offers = list(offers_of_types(question.types, nodes))
        daemons = frozenset(obj.key for obj in self.policies if isinstance(obj, DaemonSet))
        self.candidates, self.blocked = candidates_of(course_of(cluster, self.plan), question, daemons, self.offers)
        sizes = Counter(offer.type.name for offer in types_of_nodes(nodes, self.offers).values())
        self.most = {name: max(sizes[name] - least, 0) for name, least in question.least.items()}
        self.prices = {one.name: one.price for one in self.candidates}
        self.total = sum(self.prices.get(node.name, 0.0 if self.offers else 1.0) for node in nodes)
        self.free = self._free(nodes)
        names = dict.fromkeys(name for free in self.free.values() for name in free)
        self.free_in_all = {name: sum(free[name] for free in self.free.values()) for name in names}
        highest = max((pod.spec.priority or 0 for one in self.candidates for pod in one.pods), default=0)
        lower = (one for pods in self.cluster.simulation.scheduler.cluster.table.pods for one in pods.values())
        self.evicts_bare_pods = any(one.priority < highest and replacement(one.pod) is None for one in lower)
        self.runs = 0
        self.complete = True
        self.tried: dict[tuple[tuple[str, ...], str], tuple[BlockingPod, ...]] = {}
        self.drains: dict[tuple[str, ...], DrainReport] = {}

    def answer(self) -> NodePlan:
        few = len(self.candidates) <= EXHAUSTIVE
        best = self._exhaustive() if few else self._greedy()
        remaining = round(self.total - best.saving, 9)
        bound = min(round(self._bound(), 9), remaining)
        gap = round(remaining / bound - 1, 6) if bound > _EPSILON else 0.0
        proven = (few and self.complete) or gap == 0.0
        blocked = dict(sorted({**self.blocked, **self._others(best)}.items()))
        moved = self._moved(best)
        if self.budget.stopped is not None:
            self.budget.leave("nodes to remove that save more, and why the others cannot go")
        return NodePlan(
            request=self.request, summary="", consolidates=True, stopped=self.budget.stopped,
            unit=self.question.unit, priced=bool(self.offers),
            nodes={} if best.buy is None else {best.buy.type.name: 1}, remove=best.names, saved=best.saving, cost=remaining,
            lower_bound=bound, gap=gap, status="optimal" if proven else "gap", moved=moved, lost=self._lost(best),
            blocked=blocked,
            verified={"asGiven": remaining},
            assumptions=(
                Assumption("readyAfter", f"{self.question.rules.ready_after_s:g}s"),
                Assumption("drain", f"with {' '.join(self.question.flags.given())}"), *self.question.assumptions,
            ),
            proof=Proof("exhaustive" if few and self.complete else "bounded", runs=self.runs, lower_bound=bound),
        ).with_values()  # fmt: skip

    # -- all sets --------------------------------------------------------------------------------------------------------

    def _exhaustive(self) -> Removal:
        """Return the best set: the first one that works, trying all sets from the largest saving to the smallest."""
        wanted = [
            one
            for size in range(1, len(self.candidates) + 1)
            for nodes in combinations(self.candidates, size)
            for one in self._with_buys(nodes)
            if one.saving > _EPSILON and self._may_hold(one)
        ]
        for number, one in enumerate(sorted(wanted, key=lambda one: one.rank)):
            if self.budget.is_over():
                self.complete = False
                break
            self.question.progress(f"set {number + 1} of {len(wanted)}: {len(one.nodes)} nodes …")
            if not self._fails(one):
                return one
        return self._greedy() if not self.complete else _NOTHING

    def _with_buys(self, nodes: tuple[RemovableNode, ...]) -> Iterator[Removal]:
        """Yield the removal of nodes alone, and with a bought node of each type that none of the removed nodes has."""
        yield Removal(nodes)
        if self.question.buy:
            own = {one.type for one in nodes}
            yield from (Removal(nodes, offer) for offer in self.offers if offer.type.name not in own and offer.type.max != 0)

    # -- one at a time ---------------------------------------------------------------------------------------------------

    def _greedy(self) -> Removal:
        ordered = sorted(self.candidates, key=lambda one: (-one.price / (1 + len(one.pods) + one.budgets), one.name))
        best = self._extended((), ordered)
        improved, bound = True, self._bound()
        while improved and self.total - best.saving > bound + _EPSILON and not self.budget.is_over():
            improved = False
            for size in (1, 2):
                for given_up in combinations(best.nodes, size):
                    kept = tuple(one for one in best.nodes if one not in given_up)
                    other = self._extended(kept, [one for one in ordered if one not in best.nodes])
                    if self.budget.is_over():
                        break
                    if other.rank < best.rank:
                        best, improved = other, True
                        break
                if improved:
                    break
        self.complete = False
        return best

    def _extended(self, kept: tuple[RemovableNode, ...], more: Sequence[RemovableNode]) -> Removal:
        """Return a set with every further node that can go with it, in this order."""
        chosen = kept
        for one in more:
            if self.budget.is_over():
                break
            wider = Removal(tuple(sorted((*chosen, one), key=lambda each: each.name)))
            self.question.progress(f"{len(chosen)} nodes can go …")
            if self._may_hold(wider) and not self._fails(wider):
                chosen = wider.nodes
        found = Removal(chosen)
        return found if not chosen or not self._fails(found) else _NOTHING

    # -- one set ---------------------------------------------------------------------------------------------------------

    def _free(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return the free amounts on each node, for the resources that pods of candidates request."""
        view = self.cluster.simulation.scheduler.snapshot.nodes
        names = dict.fromkeys(name for one in self.candidates for name in one.needs)
        free = {name: free_amount(view, name) for name in names}
        return {node.name: {name: int(max(0, free[name][row])) for name in names} for row, node in enumerate(nodes)}

    def _may_hold(self, removal: Removal) -> bool:
        """Return False if the other nodes have too little of a resource in all, not counting room from evicting bare pods."""
        sizes = Counter(one.type for one in removal.nodes)
        if any(sizes[name] > most for name, most in self.most.items()):
            return False
        if self.evicts_bare_pods:
            return True
        for name, in_all in self.free_in_all.items():
            need = sum(one.needs.get(name, 0) for one in removal.nodes)
            free = in_all - sum(self.free[one.name][name] for one in removal.nodes)
            if removal.buy is not None:
                free += _amount(removal.buy, name)
            if need > free:
                return False
        return True

    def _fails(self, removal: Removal) -> tuple[BlockingPod, ...]:
        """Return the pods that prevent a removal; empty if it works."""
        key = removal.names, "" if removal.buy is None else removal.buy.type.name
        if key not in self.tried:
            try:
                with self.cluster.within(self.budget):
                    self.tried[key] = self._unplaced(removal) or self._undrained(removal)
            except BudgetSpentError:
                return (_LATE,)
        return self.tried[key]

    def _unplaced(self, removal: Removal) -> tuple[BlockingPod, ...]:
        """Run the engine without the nodes, and return the pods that stay pending."""
        self.runs += 1
        failures = NodeFailures(self.cluster)
        own = {pod.key for one in removal.nodes for pod in one.pods}
        with self.cluster.transaction():
            self._buy(removal.buy)
            loss = failures.lose(" + ".join(removal.names), removal.names)
            lost = [
                BlockingPod(key, "preempted", text="would be evicted for good") for key in loss.lost_for_good if key not in own
            ]
            return (*(self._no_place(key) for key in loss.pending), *lost)

    def _no_place(self, key: str) -> BlockingPod:
        """Return the plugin that refuses a pending pod on the most nodes."""
        scheduler = self.cluster.simulation.scheduler
        pod = self.cluster.simulation.pod_named(key)
        if pod is None or pod.spec.scheduler_name not in scheduler.profiles:
            return BlockingPod(key, text="stays pending")
        judged = verdicts_now(scheduler, pod)
        counts = Counter(
            (status.plugin or "", reason)
            for row in np.flatnonzero(~judged.feasible).tolist() for status in judged.statuses(row) for reason in status.reasons
        )  # fmt: skip
        if not counts:
            return BlockingPod(key, text="stays pending")
        plugin, reason = counts.most_common(1)[0][0]
        return BlockingPod(key, plugin=plugin, text=reason)

    def _undrained(self, removal: Removal) -> tuple[BlockingPod, ...]:
        """Drain the nodes one after the other, and return the pods that block a drain or are pending afterwards."""
        self.runs += 1
        with self.cluster.transaction():
            self._buy(removal.buy)
            report = drain_report(self.cluster, self.request, removal.names, self.plan)
            if not report.holds and 1 < len(removal.nodes) <= _ORDERED:
                report = drain_report(self.cluster, self.request, removal.names, self.plan, find_order=True, budget=self.budget)
        self.drains[removal.names] = report
        if report.holds:
            return ()
        kept = [one for one in report.pods if one.outcome in {"never", "refused"}]
        why = [BlockingPod(one.pod, "budget" if one.budget else "", text=one.why or one.budget or "") for one in kept]
        return (*why, *(BlockingPod(key, text="stays pending during the drain") for key in report.pending)) or (
            BlockingPod(text="cannot be drained"),
        )

    def _buy(self, offer: Offer | None) -> None:
        if offer is None:
            return
        taken = self.cluster.simulation.scheduler.cluster.table.row_of
        node = offer.node(0, taken)
        self.cluster._step(Told((Seen(node), *map(Seen, daemon_pods([node], self.policies)))))
        self.cluster._step(Ran(None))

    # -- what is said of it ----------------------------------------------------------------------------------------------

    def _moved(self, removal: Removal) -> tuple[MovedPod, ...]:
        report = self.drains.get(removal.names)
        if report is None:
            return ()
        return tuple(MovedPod(one.pod, one.origin, one.node) for one in report.pods if one.outcome == "moves" and one.node)

    def _lost(self, removal: Removal) -> tuple[str, ...]:
        report = self.drains.get(removal.names)
        return () if report is None else tuple(one.pod for one in report.pods if one.outcome == "lost")

    def _others(self, best: Removal) -> dict[str, tuple[BlockingPod, ...]]:
        """Return why the other candidates are not removed as well."""
        found: dict[str, tuple[BlockingPod, ...]] = {}
        for one in self.candidates:
            if one in best.nodes:
                continue
            wider = Removal(tuple(sorted((*best.nodes, one), key=lambda each: each.name)), best.buy)
            if one.price <= _EPSILON:
                found[one.name] = (BlockingPod(rule="price", text="saves nothing"),)
            elif Counter(each.type for each in wider.nodes)[one.type] > self.most.get(one.type, len(self.candidates)):
                text = f"node group {one.type} has its minimum of {self.question.least[one.type]} nodes"
                found[one.name] = (BlockingPod(rule="minimum", text=text),)
            elif self.budget.is_over() and (wider.names, "") not in self.tried:
                found[one.name] = (_LATE,)
            else:
                found[one.name] = self._fails(wider) or (BlockingPod(text="another set saves as much"),)
        return found

    def _bound(self) -> float:
        """Return a lower bound of the cost of the remaining nodes: enough of each resource for the pods of the candidates."""
        fixed = self.total - sum(one.price for one in self.candidates)
        names = {one.name for one in self.candidates}
        least = 0.0
        for resource in dict.fromkeys(name for one in self.candidates for name in one.needs):
            need = sum(one.needs.get(resource, 0) for one in self.candidates)
            need -= sum(free.get(resource, 0) for node, free in self.free.items() if node not in names)
            rooms = [(one.needs.get(resource, 0) + self.free[one.name].get(resource, 0), one.price) for one in self.candidates]
            if self.question.buy:
                rooms += [(_amount(offer, resource), offer.type.price) for offer in self.offers]
            least = max(least, _cheapest(need, rooms, whole=not self.offers))
        return fixed + (0.0 if self.evicts_bare_pods else least)


def _cheapest(need: int, rooms: Sequence[tuple[int, float]], *, whole: bool) -> float:
    """Return the least cost of nodes with this amount of a resource; ``whole``: nodes cost 1 each and are not divided."""
    cost = 0.0
    for room, price in sorted((one for one in rooms if one[0] > 0), key=lambda one: one[1] / one[0]):
        if need <= 0:
            break
        cost += price if whole else price * min(1.0, need / room)
        need -= room
    return cost


def _amount(offer: Offer, resource: str) -> int:
    return amount(resource, offer.pattern.status.allocatable.get(resource, 0))
