"""``Cluster.plan`` and ``Cluster.consolidate``: which nodes to buy, and which to remove.

What answers a question is imported when it is asked: most programs that make a cluster ask few kinds of questions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from os import PathLike
from typing import TYPE_CHECKING, Any

from moorage.api.core import Pod
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.report.answer import AnswerRequest

if TYPE_CHECKING:
    from typing import Protocol

    from moorage.laboratory.capacity.cluster_capacity import AskedCluster
    from moorage.laboratory.plan.consolidation import ConsolidatedCluster
    from moorage.laboratory.plan.node_types import NodeType
    from moorage.report.plan import NodePlan

    class PlannableCluster(AskedCluster, ConsolidatedCluster, Protocol):
        """The methods of a cluster that these questions need."""

        def pod(self, ref: str | Pod) -> Pod: ...


def planned_pods(cluster: PlannableCluster, pods: Iterable[str | Pod] | None) -> tuple[Pod, ...]:
    """Return the pods to place: the named ones, or all pending ones that are not gated, in the order of the queue."""
    scheduler = cluster.simulation.scheduler
    if pods is not None:
        return tuple(cluster.pod(one) for one in pods)
    queued = (one.pod.pod for one in scheduler.queue.ranked())
    return tuple(pod for pod in queued if pod.spec.scheduler_name in scheduler.profiles and not pod.spec.scheduling_gates)


class PlanQuestions:
    """The methods ``plan`` and ``consolidate`` of a cluster."""

    def plan(
        self: PlannableCluster,
        types: Sequence[NodeType | Mapping[str, Any]] | str | PathLike[str],
        pods: Iterable[str | Pod] | None = None,
        objective: str = "price",
        time_limit_s: float | None = 30.0,
        *,
        unit: str = "",
        clock: Callable[[], float] = time.monotonic,
        executor: Executor | None = None,
        budget: float | None = None,
    ) -> NodePlan:
        """Return which nodes to buy so that kube-scheduler places all pods, and a lower bound of the cost. Nothing changes.

        If that is impossible, the nodes that place the most pods are returned, with the reasons why the others stay pending.

        ``types``      the types to buy: ``NodeType`` or ``{name, node | like, price, max, zones}``, a list, YAML or a path
        ``pods``       None: all pending pods
        ``objective``  ``price``, or ``nodes`` to buy as few as possible
        ``unit``       of the prices, for the text: ``per hour``
        ``executor``   tries several sets of nodes at once: any executor of concurrent.futures
        ``budget``     what the nodes may cost at most, in the unit of the prices

        The bound and the packing are sharper with HiGHS installed, the extra ``plan``.
        Raises  InputError
        """
        from moorage.laboratory.plan.node_types import read_types
        from moorage.laboratory.plan.plan import PlanQuestion, plan_of

        if objective not in {"price", "nodes"}:
            raise InputError(f"objective: {objective!r} is neither 'price' nor 'nodes'")
        found = tuple(read_types(types))
        request = AnswerRequest(
            release=self.simulation.scheduler.gates.release, seeds=(self.options.seed,), digest=self.digest(),
            notes=tuple(note.text for note in self.notes), question={"plan": [one.name for one in found]},
        )  # fmt: skip
        question = PlanQuestion(
            planned_pods(self, pods),
            found,
            TimeBudget(time_limit_s, clock),
            objective,
            unit,
            whole_queue=pods is None,
            executor=executor,
            budget=math.inf if budget is None else budget,
        )
        return plan_of(self, request, question)

    def consolidate(
        self: PlannableCluster,
        types: Sequence[NodeType | Mapping[str, Any]] | str | PathLike[str] = (),
        time_limit_s: float | None = 30.0,
        *,
        buy: bool = False,
        delete_emptydir_data: bool = False,
        force: bool = False,
        ready_after_s: float = 10.0,
        unit: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> NodePlan:
        """Return which nodes can be removed: all their pods fit elsewhere, and kubectl can drain them. Nothing changes.

        ``types``    node types with prices; empty: remove as many nodes as possible
        ``buy``      one new node may replace the removed ones
        ``force``, ``delete_emptydir_data``  evict pods without a controller, and with emptyDir volumes, as kubectl drain does

        Raises  InputError
        """
        from moorage.laboratory.drain.drain_rules import DrainFlags
        from moorage.laboratory.drain.draining import EvictionRules
        from moorage.laboratory.plan.consolidation import ConsolidationQuestion, consolidation_of
        from moorage.laboratory.plan.node_types import read_types

        found = tuple(read_types(types)) if isinstance(types, str | PathLike) or types else ()
        request = AnswerRequest(
            release=self.simulation.scheduler.gates.release, seeds=(self.options.seed,), digest=self.digest(),
            notes=tuple(note.text for note in self.notes),
            question={"plan": [one.name for one in found], "consolidate": True},
        )  # fmt: skip
        flags = DrainFlags(ignore_daemonsets=True, delete_emptydir_data=delete_emptydir_data, force=force)
        rules = EvictionRules(ready_after_s=ready_after_s)
        question = ConsolidationQuestion(TimeBudget(time_limit_s, clock), found, buy=buy, flags=flags, rules=rules, unit=unit)
        return consolidation_of(self, request, question)
