"""Questions that a cluster answers about nodes that are drained or lost. Nothing changes: each is asked in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moorage.api.core import Pod
from moorage.api.selectors import SelectorError, parse_selector
from moorage.errors import InputError
from moorage.laboratory.drain_question import OutageCluster, drain_report
from moorage.laboratory.drain_rules import DrainFlags
from moorage.laboratory.drain_run import DrainPlan
from moorage.laboratory.draining import EvictionRules
from moorage.report.answer import AnswerRequest
from moorage.report.drain_report import DrainReport
from moorage.report.outcome import InputNote
from moorage.simulator.simulate import Options

__all__ = ["OutageQuestions"]


class _AskedCluster(OutageCluster, Protocol):
    options: Options
    notes: tuple[InputNote, ...]

    def digest(self) -> str: ...


class OutageQuestions:
    """The methods of a cluster."""

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
        leaving_s: Callable[[Pod], float] | None = None,
    ) -> DrainReport:
        """Return what ``kubectl drain`` would do to nodes, and what would become of their pods. Nothing changes.

        Pending pods are placed before. The arguments up to ``pod_selector`` are kubectl's flags, but for ``ready_after_s``: how
        long a pod takes to become ready once it is placed.

        ``together``    drain all nodes at once; otherwise each waits for the one before
        ``returns``     a node takes pods again as soon as it is drained
        ``surge``       so many empty nodes like the first one are added before
        ``find_order``  drain the nodes in the order that goes best
        ``leaving_s``   says how long a pod has been leaving already, for ``skip_wait_for_delete_timeout_s``

        Raises  InputError for a node that is not there, or a selector that cannot be read
        """
        try:
            pods = parse_selector(pod_selector)
        except SelectorError as error:
            raise InputError(f"pod_selector: {error}") from None
        plan = DrainPlan(
            DrainFlags(ignore_daemonsets, delete_emptydir_data, force, skip_wait_for_delete_timeout_s),
            EvictionRules(disable_eviction, grace_period_s, timeout_s, ready_after_s),
            "together" if together else "one-by-one",
            returns, surge, pods, leaving_s,
        )  # fmt: skip
        return drain_report(self, _request(self, {"drain": list(nodes)}), nodes, plan, find_order=find_order)


def _request(cluster: _AskedCluster, question: dict[str, object]) -> AnswerRequest:
    return AnswerRequest(
        release=cluster.simulation.scheduler.gates.release,
        seeds=(cluster.options.seed,),
        digest=cluster.digest(),
        notes=tuple(note.text for note in cluster.notes),
        question=question,
    )
