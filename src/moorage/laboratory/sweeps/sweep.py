"""``moorage.sweep``: run every point of a grid that is not in the store yet, and return all results."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from moorage.basis.ending import Terminated, is_ending
from moorage.basis.files import without_content
from moorage.basis.printable import counted
from moorage.errors import InputError
from moorage.laboratory.budget import POLL_S, TimeBudget
from moorage.laboratory.sweeps.cluster_grid import read_grid
from moorage.laboratory.sweeps.grid import SEED, GridPoint, SweepAxis, SweepGrid, axis_of
from moorage.laboratory.sweeps.jobs import CallingThread, FailedRun, StoredRun, SweepJob, perform, process_pool
from moorage.laboratory.sweeps.results import SweepResult
from moorage.laboratory.sweeps.store import RunStore, open_store
from moorage.laboratory.sweeps.store_writer import StoreWriter

# Run jobs on an executor: a bounded number in flight, retries, and executors whose workers die.
#
# When a process pool breaks, every job in flight fails with it, and one of them may be the cause. Those jobs then run one at a
# time in a new pool: if it breaks again, the job in flight is the cause, and only that one loses an attempt.

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
                if is_ending():
                    return  # the jobs that have started end with their workers
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
            if self._running and (self._suspects or self.budget.is_over()):
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


RunFunction = Callable[..., Mapping[str, Any]]
#: Called with the numbers of successful runs (new or stored), of all runs, and of failed runs.
OnRun = Callable[[int, int, int], None]


class SweepPlan:
    """A grid, the function to run at its points, and the metrics to summarise."""

    def __init__(self, grid: SweepGrid, function: RunFunction, metrics: Sequence[str] = (), against: str | None = None) -> None:
        self.grid = grid
        self.function = function
        self.metrics = tuple(metrics)
        self.against = against

    def job(self, point: GridPoint) -> SweepJob:
        """Return the job of a point."""
        return SweepJob(point.key, point.labels, self.function, point.values)


def sweep(
    grid: Mapping[str, Any] | str | os.PathLike[str],
    metrics: Sequence[str] | RunFunction = (),
    executor: Executor | None = None,
    store: str | os.PathLike[str] = "sweep/",
    *,
    retries: int = 2,
    on_run: OnRun | None = None,
    time_limit_s: float | None = None,
) -> SweepResult:
    """Run every point of a grid, keep each result in the store, and return all of them. Results in the store are not run again.

    ``grid``      a file or a mapping with clusters, traces, configurations, parameters and seeds; see docs/reference/sweep.md
    ``metrics``   the metrics to summarise; or a function: then the grid maps the names of its parameters to values, and it
                  returns numbers and columns by name. Worker processes import it, so it must be in a module
    ``executor``  any executor of concurrent.futures; None: one process for each processor
    ``retries``   how often a run is tried again after its worker ended or it raised an unexpected error
    ``on_run``    is called with the numbers of successful runs (new or stored), of all runs, and of failed runs; None: a
                  progress bar in a notebook where tqdm is installed
    ``time_limit_s``  no run starts after it; None: no limit

    Raises  InputError, ConfigError for a faulty grid; runs that fail are in ``failed`` of the result
    """
    plan = _plan_of(grid, metrics)
    with ExitStack() as block:
        if on_run is None and "ipykernel" in sys.modules and find_spec("tqdm") is not None:
            on_run = _bar(block)
        budget = TimeBudget(time_limit_s, time.monotonic)
        return run_sweep(plan, open_store(store), executor, retries=retries, on_run=on_run, budget=budget)


def _bar(block: ExitStack) -> OnRun:
    """Return a function that shows a finished run in a progress bar; the bar ends with the block."""
    bar = block.enter_context(import_module("tqdm.auto").tqdm(unit=" runs"))

    def show(done: int, total: int, failed: int) -> None:
        bar.total, bar.n = total, done + failed
        bar.set_postfix_str(f"{failed} failed" if failed else "")

    return show


def _plan_of(grid: Mapping[str, Any] | str | os.PathLike[str], metrics: Sequence[str] | RunFunction) -> SweepPlan:
    if not callable(metrics):
        found = read_grid(grid)
        return SweepPlan(found.grid, found.function, tuple(metrics) or found.metrics, found.against)
    if not isinstance(grid, Mapping):
        raise InputError("with a function as metrics, the grid is a mapping from its parameters to values")
    axes: list[SweepAxis] = []
    for name, values in grid.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InputError(f"{name}: expected several values, such as a list; found {type(values).__name__}")
        axes.append(axis_of(name, values))
    axes.sort(key=lambda axis: axis.name == SEED)
    return SweepPlan(SweepGrid(tuple(axes), _digest_of(metrics)), metrics)


def _digest_of(function: RunFunction) -> str:
    """Return the digest of a function's name and source. It does not change with the functions that this one calls."""
    known = getattr(function, "digest", None)
    if known is not None:
        return str(known)
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    return blake2b(f"{name}\n{source}".encode(), digest_size=16).hexdigest()


def run_sweep(
    plan: SweepPlan,
    store: RunStore,
    executor: Executor | None = None,
    *,
    processes: int | None = None,
    retries: int = 2,
    on_run: OnRun | None = None,
    budget: TimeBudget | None = None,
) -> SweepResult:
    """Run the points that are not in the store; see ``sweep``."""
    points = list(plan.grid.points())
    there = {point.key: run for point in points if (run := store.read(point.key)) is not None}
    failed: dict[str, FailedRun] = {}

    def noted(found: StoredRun | FailedRun) -> None:
        if isinstance(found, FailedRun):
            failed[found.key] = replace(found, message=without_content(found.message))
        else:
            there[found.key] = found
        if on_run is not None:
            on_run(len(there), len(points), len(failed))

    stored = len(there)
    jobs = [plan.job(point) for point in points if point.key not in there]
    if jobs:
        with StoreWriter(store, noted) as writer:
            _run(jobs, executor, processes, retries, budget or TimeBudget(), writer.put)
    ordered = tuple(replace(there[point.key], labels=point.labels) for point in points if point.key in there)
    store.index(ordered)
    lost = tuple(failed[point.key] for point in points if point.key in failed)
    missing = len(points) - len(ordered) - len(lost)
    if missing and budget is not None:
        budget.leave(f"the other {counted(missing, 'run')}; the same command goes on with them")
    stopped = budget.stopped if missing and budget is not None else None
    return SweepResult(plan.grid, ordered, lost, len(there) - stored, plan.metrics, plan.against, stopped)


def _run(
    jobs: list[SweepJob],
    executor: Executor | None,
    processes: int | None,
    retries: int,
    budget: TimeBudget,
    note: Callable[[StoredRun | FailedRun], None],
) -> None:
    with ExitStack() as block:
        renew: Callable[[], Executor] | None = None
        if executor is None and (processes == 1 or len(jobs) == 1):
            executor = CallingThread()
        elif executor is None:

            def renew() -> Executor:
                return block.enter_context(process_pool(processes))

            executor = renew()
        runner = JobRunner(executor, renew, retries, budget)
        try:
            for found in runner.run(jobs):
                note(found)
        except Terminated:  # during a run in this thread; the runs that ended are in the result
            if budget.is_interrupted:
                return
            raise
        except BaseException:
            for found in runner.finished():
                note(found)
            runner.executor.shutdown(wait=False, cancel_futures=True) if renew is not None else None
            raise
