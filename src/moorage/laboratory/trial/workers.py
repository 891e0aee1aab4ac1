"""Trials on the workers of an executor: how many, what each caches, and which set of nodes it tries."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.laboratory.plan.plan_problem import PlanProblem
from moorage.laboratory.plan.plan_trials import NodeTrials, TrialCluster

__all__ = ["SpreadTrials", "kept", "workers_of"]


# -- workers -----------------------------------------------------------------------------------------------------------
# Helpers for executors: the number of workers, and the object that a worker caches between calls.

#: The number of workers to assume for an executor that does not report it.
_UNKNOWN: Final = 8
_last: Final = threading.local()


def workers_of(executor: Executor) -> int:
    """Return the number of workers, or a guess."""
    found = getattr(executor, "_max_workers", None)
    return found if isinstance(found, int) and found > 0 else _UNKNOWN


def kept(data: bytes) -> Any:
    """Return the unpickled object; a thread that calls this again with the same bytes gets the same object."""
    if getattr(_last, "data", None) != data:
        _last.held = pickle.loads(data)  # noqa: S301 - the bytes come from the process that submitted the call
        _last.data = data
    return _last.held


# -- spread trials -----------------------------------------------------------------------------------------------------

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
