"""Find the nodes that may be removed, the needs of their pods, and why the others may not: a rule of kubectl, or a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from moorage.api.core import Node, Pod
from moorage.laboratory.budget_figures import BudgetFigures, WatchedBudget, pods_by_namespace
from moorage.laboratory.drain_rules import DrainFlags, judge_pods
from moorage.laboratory.draining import TWO_BUDGETS, DrainCourse
from moorage.laboratory.failures import pods_by_node
from moorage.laboratory.node_groups import groups_by_node
from moorage.laboratory.node_types import Offer
from moorage.report.plan_values import BlockingPod
from moorage.simulator.owners import replacement
from moorage.state.pod_info import PodInfo

__all__ = ["RemovableNode", "candidates_of", "types_of_nodes"]

_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


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
    groups = groups_by_node(nodes)
    found: dict[str, Offer] = {}
    for node in nodes:
        for offer in offers:
            like = offer.type.like.removeprefix("group/")
            same = offer.pattern.status.allocatable == node.status.allocatable
            if node.labels.get(_INSTANCE_TYPE) == offer.type.name or (like and like in {node.name, groups[node.name]}) or same:
                found[node.name] = offer
                break
    return found


def candidates_of(
    course: DrainCourse, flags: DrainFlags, daemon_sets: frozenset[str], offers: Sequence[Offer]
) -> tuple[list[RemovableNode], dict[str, tuple[BlockingPod, ...]]]:
    """Return the nodes that may be removed, and why the others may not. Without offers, each node costs 1."""
    simulation = course.simulation
    nodes = list(simulation.scheduler.cluster.table.nodes)
    known = types_of_nodes(nodes, offers)
    on_node = pods_by_node(simulation)
    spaces = pods_by_namespace(simulation.pods.values())

    @cache  # every pod of a budget asks
    def figures(watched: WatchedBudget) -> BudgetFigures:
        return course.book.figures(watched, spaces.get(watched.budget.namespace, ()), course.is_ready)

    removable: list[RemovableNode] = []
    blocked: dict[str, tuple[BlockingPod, ...]] = {}
    for node in sorted(nodes, key=lambda one: one.name):
        pods = [simulation.pods[uid] for uid in on_node.get(node.name, ())]
        offer = known.get(node.name)
        verdicts = judge_pods(pods, flags, daemon_sets)
        moving = [one.pod for one in verdicts if one.action == "evict"]
        why = [BlockingPod(one.pod.key, one.rule, text=one.text) for one in verdicts if one.action == "refuse"]
        why += [found for pod in moving if (found := _kept_by_budget(course, pod, figures)) is not None]
        if any(label in node.labels for label in _CONTROL_PLANE):
            why.append(BlockingPod(rule="controlPlane", text="runs the control plane"))
        if offers and offer is None:
            why.append(BlockingPod(rule="price", text="no type is like it, so its price is not known"))
        if why:
            blocked[node.name] = tuple(why)
            continue
        budgets = len({watched.key for pod in moving for watched in course.book.covering(pod)})
        price = 1.0 if offer is None else offer.type.price
        name = "" if offer is None else offer.type.name
        removable.append(RemovableNode(node, price, name, tuple(moving), _needs(moving), budgets))
    return removable, blocked


def _needs(pods: Sequence[Pod]) -> dict[str, int]:
    """Return the requests of those pods that a controller replaces."""
    replaced = [pod for pod in pods if replacement(pod) is not None]
    needs: dict[str, int] = {"pods": len(replaced)}
    for pod in replaced:
        for name, amount in PodInfo(pod).requests.items():
            needs[name] = needs.get(name, 0) + amount
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
