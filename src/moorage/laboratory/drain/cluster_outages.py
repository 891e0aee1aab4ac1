"""Questions that a cluster answers about nodes that are drained or lost. Nothing changes: each is asked in a transaction.

What answers a question is imported when it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from moorage.api.selectors import SelectorError, parse_selector
from moorage.errors import InputError
from moorage.laboratory.budget import TimeBudget
from moorage.report.answer import AnswerRequest

if TYPE_CHECKING:
    from typing import Protocol

    from moorage.laboratory.survive.failures import FailureMode
    from moorage.laboratory.survive.survival_question import SurvivingCluster
    from moorage.report.drain_report import DrainReport
    from moorage.report.outcome import InputNote
    from moorage.report.survival_report import FailureReport, NodeLoss, Survival
    from moorage.simulator.simulate import Options

    class _AskedCluster(SurvivingCluster, Protocol):
        options: Options
        notes: tuple[InputNote, ...]

        def digest(self) -> str: ...


class OutageQuestions:
    """The methods of a cluster that answer questions about drained and lost nodes."""

    def drain(
        self: _AskedCluster,
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
        from moorage.laboratory.drain.drain_rules import DrainFlags, leaving_for
        from moorage.laboratory.drain.draining import DrainPlan, EvictionRules

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
        return drain_report(self, _request(self, {"drain": list(nodes)}), nodes, plan, find_order=find_order, budget=budget)

    def cordon(self: _AskedCluster, *nodes: str) -> DrainReport:
        """Return how cordoning nodes would change where pending pods are placed. The cluster is unchanged.

        Raises  InputError for a node that is not there
        """
        from moorage.laboratory.drain.drain_question import cordon_report

        return cordon_report(self, _request(self, {"cordon": list(nodes)}), nodes)

    def fail(self: _AskedCluster, *nodes: str, mode: FailureMode = "deleted") -> FailureReport:
        """Return what happens when nodes are lost. Pending pods are placed before. Nothing changes.

        ``mode``  ``deleted``: nodes and pods are gone at once; ``unreachable``: the pods are deleted when their tolerations
                  end, but their objects stay, so that a StatefulSet does not replace them

        Raises  InputError for a node that is not there
        """
        from moorage.laboratory.survive.survival_question import failure_report

        return failure_report(self, _request(self, {"fail": list(nodes), "mode": mode}), nodes, mode)

    def survive(
        self: _AskedCluster,
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
        return survival_report(self, _request(self, {"survive": over, "depth": depth}), asked, on_loss)


def _request(cluster: _AskedCluster, question: dict[str, object]) -> AnswerRequest:
    return AnswerRequest(
        release=cluster.simulation.scheduler.gates.release,
        seeds=(cluster.options.seed,),
        digest=cluster.digest(),
        notes=tuple(note.text for note in cluster.notes),
        question=question,
    )
