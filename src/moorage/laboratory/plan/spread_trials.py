"""Trials of sets of nodes on the workers of an executor, each of which has a copy of the cluster."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import Executor

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.laboratory.plan.plan_problem import PlanProblem
from moorage.laboratory.plan.plan_trials import NodeTrials, TrialCluster
from moorage.laboratory.survive.workers import kept, workers_of

__all__ = ["SpreadTrials"]

Counts = tuple[int, ...]


class SpreadTrials:
    """Trials like those of ``NodeTrials``, several at once. ``runs`` and ``probes`` count those of all workers."""

    def __init__(
        self, executor: Executor, cluster: TrialCluster, problem: PlanProblem, pods: Sequence[Pod], policies: Sequence[Object],
        *, whole_queue: bool,
    ) -> None:  # fmt: skip
        self.workers = workers_of(executor)
        self.runs = self.probes = 0
        self._executor = executor
        self._data = pickle.dumps({"given": (cluster, problem, list(pods), list(policies), whole_queue)})

    def pending(self, sets: Sequence[Counts]) -> list[tuple[str, ...]]:
        """Return the pods that stay pending with each set, in the real order."""
        waiting = [self._executor.submit(_pending, self._data, counts) for counts in sets]
        found = []
        for one in waiting:
            left, runs, probes = one.result()
            self.runs += runs
            self.probes += probes
            found.append(left)
        return found


def _pending(data: bytes, counts: Counts) -> tuple[tuple[str, ...], int, int]:
    held = kept(data)
    if "trials" not in held:
        cluster, problem, pods, policies, whole_queue = held["given"]
        held["trials"] = NodeTrials(cluster, problem, pods, policies, whole_queue=whole_queue)
    trials: NodeTrials = held["trials"]
    runs, probes = trials.runs, trials.probes
    left = trials.pending(counts)
    return left, trials.runs - runs, trials.probes - probes
