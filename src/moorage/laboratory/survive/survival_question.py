"""Ask what happens when nodes are lost, and whether the cluster survives the loss of each node, zone or domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from msgspec import Struct, field

from moorage.basis.printable import one_line
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.drain.drain_question import check_nodes
from moorage.laboratory.survive.failures import FailureMode, NodeFailures, class_of
from moorage.laboratory.survive.survival import Losses, SurvivalRun, failure_domains, worst_of
from moorage.laboratory.survive.survival_fix import FixSearch, find_spare
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.survival_report import (
    FailureReport,
    NodeLoss,
    SpareReport,
    Survival,
    SurvivalFix,
    failure_summary,
    survival_summary,
)

_MODES = {
    "deleted": "the node objects and their pods are gone at once",
    "unreachable": "the nodes are tainted at once; their pods are deleted when their tolerations end, and their objects stay",
}


class SurvivalAsked(Struct, frozen=True):
    """The parameters of the question.

    ``over``         ``node``, ``zone`` or a label
    ``depth``        2: every two of them as well
    ``fix_probes``   how many losses the search for a fix may compute; 0 leaves the fix out
    ``processes``    compute losses in so many processes, where the system can fork; ``executor``: or with this
    ``spare``        find the fewest nodes like this one that let every loss be survived, up to ``spare_most``
    ``budget``       ends the losses, then the search for spare nodes or a fix, when it is spent
    """

    over: str = "node"
    depth: int = 1
    fix_probes: int = 2000
    spare: str = ""
    spare_most: int = 20
    processes: int = 1
    executor: Executor | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)


def fitting_mode(cluster: AskedCluster, nodes: Sequence[str]) -> FailureMode:
    """Return how nodes in this state are lost: one that is not ready has its object still, and pods that wait to be evicted."""
    table = cluster.simulation.scheduler.cluster.table
    return "deleted" if any(table.nodes[table.row_of[name]].is_ready for name in nodes) else "unreachable"


def nodes_of_zone(cluster: AskedCluster, zone: str) -> tuple[str, ...]:
    """Return the names of the nodes in a zone.

    Raises  InputError for a zone without nodes
    """
    domains, _ = failure_domains(cluster.simulation.nodes_in_order(), "zone")
    for domain in domains:
        if domain.name == zone:
            return domain.nodes
    raise InputError(one_line(f"zone: no node is in {zone!r}; zones: {', '.join(one.name for one in domains) or 'none'}"))


def failure_report(
    cluster: AskedCluster, request: AnswerRequest, nodes: Sequence[str], mode: FailureMode | None = None, lost: str = ""
) -> FailureReport:
    """Return what happens when nodes are lost. Nothing changes.

    ``mode``: None for the one that fits: ``unreachable`` if no node of these is ready, or else ``deleted``

    Raises  InputError for a node that is not there
    """
    check_nodes(cluster, nodes)
    mode = mode or fitting_mode(cluster, nodes)
    with cluster.transaction():
        cluster._step(Ran(None))
        failures = NodeFailures(cluster)
        loss = failures.lose(lost or " + ".join(nodes), nodes, mode, follows=True)
    return FailureReport(
        request=request,
        summary=one_line(failure_summary(loss)),
        proof=Proof("run", runs=1),
        assumptions=(Assumption("mode", f"{mode}: {_MODES[mode]}"),),
        mode=mode,
        loss=loss,
    )


def survival_report(
    cluster: AskedCluster, request: AnswerRequest, asked: SurvivalAsked, on_loss: Callable[[NodeLoss], None] | None = None
) -> Survival:
    """Return whether a cluster survives the loss of each node, zone or domain. Nothing changes.

    Raises  InputError for a label that no node has
    """
    if asked.spare:
        check_nodes(cluster, [asked.spare])
    budget = asked.budget.part()
    run = SurvivalRun(cluster, asked.over, asked.depth, on_loss, asked.processes, asked.executor, budget)
    with cluster.transaction():
        run.rest()
        before = tuple(pod.key for pod in cluster.simulation.pending_pods())
        losses, certain = run.losses(), run.certain
        priorities = _priorities(cluster)
    if not losses.is_complete:
        left = losses.of - len(losses.all)
        budget.leave("what the other loss does" if left == 1 else f"what the other {left:,} losses do")
    spare = _spare(cluster, run, asked)
    fix, searched = _fix(cluster, run, losses, asked)
    return Survival(
        request=request,
        summary=one_line(survival_summary(asked.over, losses.all, losses.of)),
        proof=Proof("run" if losses.is_complete else "bounded", runs=run.computed),
        assumptions=(Assumption("mode", f"deleted: {_MODES['deleted']}"),),
        stopped=budget.stopped,
        over=asked.over,
        survives=losses.survived,
        failures=losses.all,
        certain=certain,
        not_run=losses.of - len(losses.all),
        unknown=losses.unknown,
        worst=worst_of(losses.all, lambda name: priorities.get(name, 0)),
        pending_before=before,
        without=losses.without,
        fix=fix,
        fix_searched=searched,
        spare=spare,
    )


def _priorities(cluster: AskedCluster) -> dict[str, int]:
    pods = cluster.simulation.pods.values()
    return {class_of(pod): pod.priority for pod in pods}


def _fix(cluster: AskedCluster, run: SurvivalRun, losses: Losses, asked: SurvivalAsked) -> tuple[SurvivalFix | None, bool]:
    """Return a fix, and whether one was searched for."""
    if losses.survived or not losses.is_complete or not asked.fix_probes or losses.computed > asked.fix_probes:
        return None, False
    with cluster.transaction():
        return FixSearch(run, cluster, asked.fix_probes).find(), True


def _spare(cluster: AskedCluster, run: SurvivalRun, asked: SurvivalAsked) -> SpareReport | None:
    if not asked.spare:
        return None
    if run.budget.is_interrupted or run.budget.left_s <= 0:
        run.budget.leave(f"how many spare nodes like {asked.spare} are enough")
        return None
    with cluster.transaction():
        return find_spare(run, asked.spare, asked.spare_most)
