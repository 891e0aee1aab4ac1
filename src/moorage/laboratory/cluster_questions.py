"""The questions of a cluster as its methods: how full it is, what fits, what to buy or remove, and what outages do.

Nothing changes: each is asked in a transaction. What answers a question is imported when it is asked, because most programs
that make a cluster ask few kinds of questions.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moorage.api.core import Pod
from moorage.api.selectors import SelectorError, parse_selector
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.cluster_objects import ObjectLike, text_of
from moorage.laboratory.trial.asked_cluster import AskedCluster, request_of

if TYPE_CHECKING:
    from moorage.laboratory.capacity.capacity_templates import CapacityTemplate, TemplateSource
    from moorage.laboratory.plan.node_types import NodeType
    from moorage.laboratory.survive.failures import FailureMode
    from moorage.report.capacity import Capacity
    from moorage.report.drain_report import DrainReport
    from moorage.report.overview import Overview
    from moorage.report.plan import NodePlan
    from moorage.report.survival_report import FailureReport, NodeLoss, Survival

#: What writes pages stands above this layer; a notebook loads it.
_PAGES: Final = "moorage.interfaces.web.site"
_MAPS: Final = "moorage.interfaces.web.pod_routes"


def templates_of(
    cluster: AskedCluster, given: ObjectLike | CapacityTemplate | Mapping[str, Any]
) -> tuple[tuple[CapacityTemplate, int], ...]:
    """Return the templates of a question, each with its number of pods in a unit.

    ``given``: a template in any form, or ``{name: template}`` or ``{name: (template, number)}`` for a mix.
    Raises  InputError
    """
    from moorage.laboratory.capacity.capacity_templates import CapacityTemplate, TemplateSource, read_template

    source = TemplateSource(cluster.get, cluster.objects)
    if isinstance(given, Mapping) and not {"kind", "metadata", "spec"} & set(given):
        return tuple(_part(str(name), one, source) for name, one in given.items())
    return ((given if isinstance(given, CapacityTemplate) else read_template(given, source), 1),)


def _part(name: str, given: Any, source: TemplateSource) -> tuple[CapacityTemplate, int]:
    from moorage.laboratory.capacity.capacity_templates import read_template

    template, number = given if isinstance(given, tuple | list) else (given, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError(f"{name}: {number!r} pods of a template; give a whole number from 1")
    return read_template(template, source, name), number


def planned_pods(cluster: AskedCluster, pods: Iterable[str | Pod] | None) -> tuple[Pod, ...]:
    """Return the pods to place: the named ones, or all pending ones that are not gated, in the order of the queue."""
    scheduler = cluster.simulation.scheduler
    if pods is not None:
        return tuple(cluster.pod(one) for one in pods)
    queued = (one.pod.pod for one in scheduler.queue.ranked())
    return tuple(pod for pod in queued if pod.spec.scheduler_name in scheduler.profiles and not pod.spec.scheduling_gates)


def _types_given(types: Sequence[NodeType | Mapping[str, Any]] | str | PathLike[str]) -> tuple[NodeType, ...]:
    """Return the types that a program gives: a text of one line is the path of a file, as everywhere in programs."""
    from moorage.laboratory.plan.node_types import read_types

    return tuple(read_types(Path(types) if isinstance(types, str) and text_of(types) is None else types))


class ClusterQuestions:
    """The methods of a cluster that answer questions. A notebook shows a cluster as its overview, with the map."""

    def overview(
        self: AskedCluster, *, all_nodes: bool = False, by_engine: int = 3, time_limit_s: float | None = None
    ) -> Overview:
        """Return an overview of the cluster, once its pending pods have been placed. The cluster itself is unchanged.

        ``all_nodes``     count nodes that are not ready or not schedulable as well
        ``by_engine``     for how many shapes of pods the engine counts how many more fit
        ``time_limit_s``  stop counting after this time
        """
        from moorage.laboratory.overview import OverviewSetting, overview_of

        request = request_of(self, {"report": {}})
        budget = TimeBudget(time_limit_s, time.monotonic)
        return overview_of(self, request, OverviewSetting(all_nodes=all_nodes, by_engine=by_engine, budget=budget))

    def _repr_mimebundle_(self: Any, **_: Any) -> dict[str, str]:
        pages, maps = importlib.import_module(_PAGES), importlib.import_module(_MAPS)
        overview = self.overview(by_engine=0)
        page: str = pages.framed_page([overview.to_dict()], maps.snapshot_of(self, ""))
        return {"text/plain": overview.text(), "text/html": page}

    def capacity(
        self: AskedCluster,
        template: ObjectLike | Mapping[str, Any],
        limit: int = 0,
        seeds: Iterable[int] = (),
        quota: bool = True,
        *,
        pending: str = "first",
        preempt: bool = False,
        replicas: bool = False,
        gains: bool = True,
        time_limit_s: float | None = None,
    ) -> Capacity:
        """Return how many instances of a pod fit, one after the other, as kube-scheduler places them. Nothing changes.

        ``template``  a pod or a workload as struct, dict, YAML text or path, or the name of one of the cluster:
                      ``deployment/web``; for a mix, ``{"web": (template, 3), "worker": (template, 2)}``: how many units fit
        ``limit``     stop after so many; 0: no limit
        ``seeds``     count once with each seed, because ties can change the number; empty: the cluster's seed
        ``quota``     respect resource quotas
        ``pending``   ``first``: place the pending pods before; ``ignore``: leave them out
        ``preempt``   let instances evict pods of lower priority
        ``replicas``  ask whether the numbers of a mix fit once, instead of how many units fit
        ``time_limit_s``  ends the count and the search for gains: the answer has what was found; None: no limit
        ``gains``     also compute how many more would fit with one more node, or 10% more of a resource

        Raises  InputError
        """
        from moorage.laboratory.capacity.capacity import CapacityQuestion, capacity_of

        if pending not in {"first", "ignore"}:
            raise InputError(f"pending: {pending!r} is neither 'first' nor 'ignore'")
        asked = tuple(seeds) or (self.options.seed,)
        parts = templates_of(self, template)
        names = [one.name for one, _ in parts]
        request = request_of(self, {"capacity": names}, asked)
        what = CapacityQuestion(
            parts,
            replicas=replicas,
            limit=limit,
            seeds=asked,
            pending=pending == "first",
            preempt=preempt,
            gains=gains,
            quota=quota,
            budget=TimeBudget(time_limit_s, time.monotonic),
        )
        return capacity_of(self, request, what)

    # -- nodes to buy and to remove ------------------------------------------------------------------------------------------

    def plan(
        self: AskedCluster,
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
        from moorage.laboratory.plan.plan import PlanQuestion, plan_of

        if objective not in {"price", "nodes"}:
            raise InputError(f"objective: {objective!r} is neither 'price' nor 'nodes'")
        found = _types_given(types)
        request = request_of(self, {"plan": [one.name for one in found]})
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
        self: AskedCluster,
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
        from moorage.laboratory.drain.kubectl_filters import DrainFlags
        from moorage.laboratory.drain.virtual_drain import EvictionRules
        from moorage.laboratory.plan.consolidation import ConsolidationQuestion, consolidation_of

        found = _types_given(types) if isinstance(types, str | PathLike) or types else ()
        request = request_of(self, {"plan": [one.name for one in found], "consolidate": True})
        flags = DrainFlags(ignore_daemonsets=True, delete_emptydir_data=delete_emptydir_data, force=force)
        rules = EvictionRules(ready_after_s=ready_after_s)
        question = ConsolidationQuestion(TimeBudget(time_limit_s, clock), found, buy=buy, flags=flags, rules=rules, unit=unit)
        return consolidation_of(self, request, question)

    # -- outages -----------------------------------------------------------------------------------------------------------

    def drain(
        self: AskedCluster,
        *nodes: str,
        ignore_daemonsets: bool = False,
        delete_emptydir_data: bool = False,
        force: bool = False,
        disable_eviction: bool = False,
        ready_after_s: float = 10.0,
        grace_period_s: int = -1,
        timeout_s: float = 0.0,
        skip_wait_for_delete_timeout_s: int = 0,
        pod_selector: str = "",
        together: bool = False,
        returns: bool = False,
        surge: int = 0,
        find_order: bool = False,
        now_s: float | None = None,
        time_limit_s: float | None = None,
    ) -> DrainReport:
        """Return what ``kubectl drain`` would do to nodes and their pods. Nothing changes.

        Pending pods are placed before. The arguments up to ``pod_selector`` are kubectl's flags, except ``ready_after_s``: how
        many seconds after its placement a pod becomes ready.

        ``together``    drain all nodes at once; otherwise each waits for the one before
        ``returns``     a node takes pods again as soon as it is drained
        ``surge``       the number of empty nodes like the first one to add before
        ``find_order``  drain the nodes in the order that goes best
        ``time_limit_s``  ends the search for an order; None: no limit
        ``now_s``       the time, for ``skip_wait_for_delete_timeout_s``, in seconds of Unix time; None: now

        Raises  InputError for a node that is not there, or a selector that cannot be read
        """
        from moorage.laboratory.drain.drain_question import drain_report
        from moorage.laboratory.drain.drain_run import DrainPlan
        from moorage.laboratory.drain.kubectl_filters import DrainFlags, leaving_for
        from moorage.laboratory.drain.virtual_drain import EvictionRules

        try:
            pods = parse_selector(pod_selector)
        except SelectorError as error:
            raise InputError(f"pod_selector: {error}") from None
        plan = DrainPlan(
            DrainFlags(ignore_daemonsets, delete_emptydir_data, force, skip_wait_for_delete_timeout_s),
            EvictionRules(disable_eviction, grace_period_s, timeout_s, ready_after_s),
            "together" if together else "one-by-one",
            returns, surge, pods, partial(leaving_for, now_s=time.time() if now_s is None else now_s),
        )  # fmt: skip
        budget = TimeBudget(time_limit_s, time.monotonic)
        return drain_report(self, request_of(self, {"drain": list(nodes)}), nodes, plan, find_order=find_order, budget=budget)

    def cordon(self: AskedCluster, *nodes: str) -> DrainReport:
        """Return how cordoning nodes would change where pending pods are placed. The cluster is unchanged.

        Raises  InputError for a node that is not there
        """
        from moorage.laboratory.drain.cordon_question import cordon_report

        return cordon_report(self, request_of(self, {"cordon": list(nodes)}), nodes)

    def fail(self: AskedCluster, *nodes: str, mode: FailureMode | None = None, zone: str = "") -> FailureReport:
        """Return what happens when nodes, or all nodes of a zone, are lost. Pending pods are placed before. Nothing changes.

        ``mode``  ``deleted``: nodes and pods are gone at once; ``unreachable``: the pods are deleted when their tolerations
                  end, but their objects stay, so that a StatefulSet does not replace them. None: ``unreachable`` if no node
                  of these is ready, or else ``deleted``

        Raises  InputError for a node or a zone that is not there
        """
        from moorage.laboratory.survive.survival_question import failure_report, nodes_of_zone

        if zone and nodes:
            raise InputError("give nodes or a zone, not both")
        lost = nodes_of_zone(self, zone) if zone else nodes
        asked = {"fail": list(lost), **({"mode": mode} if mode else {}), **({"zone": zone} if zone else {})}
        return failure_report(self, request_of(self, asked), lost, mode, zone)

    def survive(
        self: AskedCluster,
        over: str = "node",
        depth: int = 1,
        processes: int = 1,
        *,
        spare: str = "",
        fix_probes: int = 2000,
        on_loss: Callable[[NodeLoss], None] | None = None,
        executor: Executor | None = None,
        time_limit_s: float | None = None,
    ) -> Survival:
        """Return whether the cluster survives the loss of each node, zone or value of a label. Nothing changes.

        Pending pods are placed before. A loss is survived if no pod is pending afterwards that was not before.

        ``over``        ``node``, ``zone`` or a label of nodes
        ``depth``       2: every two of them as well
        ``processes``   the number of processes that compute losses, on systems that can fork
        ``spare``       find the fewest nodes like this one with which every loss is survived
        ``fix_probes``  how many losses the search for a fix may compute; 0 leaves the fix out
        ``on_loss``     called with every computed loss
        ``executor``    computes losses, in place of ``processes``: any executor of concurrent.futures
        ``time_limit_s``  ends the losses and the searches: the answer has what was found; None: no limit

        Raises  InputError for a label or a node that is not there
        """
        from moorage.laboratory.survive.survival_question import SurvivalAsked, survival_report

        budget = TimeBudget(time_limit_s, time.monotonic)
        asked = SurvivalAsked(over, depth, fix_probes, spare, processes=processes, executor=executor, budget=budget)
        return survival_report(self, request_of(self, {"survive": over, "depth": depth}), asked, on_loss)
