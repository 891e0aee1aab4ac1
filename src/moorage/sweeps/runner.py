"""Run jobs on an executor: a bounded number in flight, retries, and executors whose workers die.

When a process pool breaks, every job in flight fails with it, and one of them may be the cause. Those jobs then run one at a
time in a new pool: if it breaks again, the job in flight is the cause, and only that one loses an attempt.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Final

from moorage.errors import InputError
from moorage.laboratory.budget import POLL_S, TimeBudget
from moorage.sweeps.jobs import FailedRun, StoredRun, SweepJob, perform

__all__ = ["JobRunner", "Outcome"]

Outcome = StoredRun | FailedRun
#: Jobs in flight for each worker, and for an executor that does not say how many workers it has.
_EACH: Final = 4
_UNKNOWN: Final = 128


@dataclass
class JobRunner:
    """Runs jobs. ``renew`` creates a new executor after one broke; None: the executor is the caller's, and the sweep ends."""

    executor: Executor
    renew: Callable[[], Executor] | None = None
    retries: int = 2
    budget: TimeBudget = field(default_factory=TimeBudget)
    _waiting: deque[SweepJob] = field(default_factory=deque, init=False)
    _suspects: deque[SweepJob] = field(default_factory=deque, init=False)
    _running: dict[Future[Outcome], SweepJob] = field(default_factory=dict, init=False)
    _tries: Counter[str] = field(default_factory=Counter, init=False)

    def run(self, jobs: Iterable[SweepJob]) -> Iterator[Outcome]:
        """Yield the outcome of every job as it ends. Jobs that have not started are cancelled when the caller stops early.

        When the budget is spent, the jobs that have started end, and the others are left.

        Raises  InputError if the caller's executor breaks
        """
        self._waiting.extend(jobs)
        try:
            while self._waiting or self._suspects or self._running:
                if self._fill():
                    done, _ = wait(self._running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                    yield from self._ended(done)
                if (self._waiting or self._suspects) and self.budget.is_over():
                    self._leave()
        finally:
            for future in self._running:
                future.cancel()

    def _leave(self) -> None:
        """Drop the jobs that have not started."""
        self._waiting.clear()
        self._suspects.clear()
        self._running = {future: job for future, job in self._running.items() if not future.cancel()}

    def finished(self) -> Iterator[Outcome]:
        """Yield the outcomes that were complete when the run was interrupted."""
        for future in self._running:
            if future.done() and not future.cancelled() and future.exception() is None:
                yield future.result()

    @property
    def _window(self) -> int:
        if self._suspects:
            return 1
        workers = getattr(self.executor, "_max_workers", None)
        return _EACH * workers if isinstance(workers, int) else _UNKNOWN

    def _fill(self) -> bool:
        """Submit jobs up to the limit; return False if the executor broke."""
        while len(self._running) < self._window and (self._suspects or self._waiting):
            if self._suspects and self._running:
                break
            job = self._suspects[0] if self._suspects else self._waiting[0]
            try:
                self._running[self.executor.submit(perform, job)] = job
            except BrokenExecutor as error:
                self._replace(error)
                return False
            (self._suspects or self._waiting).popleft()
        return True

    def _ended(self, done: Iterable[Future[Outcome]]) -> Iterator[Outcome]:
        broken: BrokenExecutor | None = None
        lost: list[SweepJob] = []
        for future in done:
            job = self._running.pop(future)
            error = future.exception() if not future.cancelled() else None
            if isinstance(error, BrokenExecutor):
                broken = error
                lost.append(job)
            elif error is not None or future.cancelled():
                # Dask, for example, gives up a job whose workers were killed several times.
                yield from self._failed(FailedRun(job.key, job.labels, f"{type(error).__name__}: {error}", again=True), job)
            else:
                yield from self._result(future.result(), job)
        if broken is not None:
            for future, job in self._running.items():
                if future.done() and future.exception() is None:
                    yield from self._result(future.result(), job)
                else:
                    lost.append(job)
            yield from self._lost(lost, broken)

    def _lost(self, lost: list[SweepJob], error: BrokenExecutor) -> Iterator[Outcome]:
        self._running.clear()
        if len(lost) == 1:
            [job] = lost
            yield from self._failed(FailedRun(job.key, job.labels, "the worker process ended in this run", again=True), job)
        else:
            self._suspects.extend(lost)
        self._replace(error)

    def _replace(self, error: BrokenExecutor) -> None:
        if self.renew is None:
            raise InputError(f"the executor broke: {error}; run the sweep again to execute the missing runs")
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = self.renew()

    def _result(self, found: Outcome, job: SweepJob) -> Iterator[Outcome]:
        if isinstance(found, FailedRun):
            yield from self._failed(found, job)
        else:
            yield found

    def _failed(self, failed: FailedRun, job: SweepJob) -> Iterator[Outcome]:
        """Yield the failure, unless the job is to be retried."""
        self._tries[job.key] += 1
        if failed.again and self._tries[job.key] <= self.retries:
            self._suspects.append(job) if self._suspects else self._waiting.append(job)
        else:
            yield failed
