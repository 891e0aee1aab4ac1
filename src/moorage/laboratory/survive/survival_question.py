"""Ask what happens when nodes are lost, and whether the cluster survives the loss of each node, zone or domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from msgspec import Struct, field

from moorage.basis.printable import one_line
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.drain.drain_question import check_nodes
from moorage.laboratory.survive.failures import FailureMode, NodeFailures, class_of
from moorage.laboratory.survive.survival import Losses, SurvivalRun, worst_of
from moorage.laboratory.survive.survival_fix import FixSearch, SpareNodes, find_spare
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
from moorage.simulator.pod_books import State

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


def failure_report(
    cluster: AskedCluster, request: AnswerRequest, nodes: Sequence[str], mode: FailureMode = "deleted", lost: str = ""
) -> FailureReport:
    """Return what happens when nodes are lost. Nothing changes.

    Raises  InputError for a node that is not there
    """
    check_nodes(cluster, nodes)
    with cluster.transaction():
        cluster._step(Ran(None))
        failures = NodeFailures(lambda: cluster.simulation, cluster._step)
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
        records = cluster.simulation.records.values()
        before = tuple(record.pod.key for record in records if record.state == State.PENDING)
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
        spare=None if spare is None else SpareReport(spare.like, spare.tried, spare.nodes),
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


def _spare(cluster: AskedCluster, run: SurvivalRun, asked: SurvivalAsked) -> SpareNodes | None:
    if not asked.spare:
        return None
    if run.budget.is_interrupted or run.budget.left_s <= 0:
        run.budget.leave(f"how many spare nodes like {asked.spare} are enough")
        return None
    with cluster.transaction():
        return find_spare(run, asked.spare, asked.spare_most)
